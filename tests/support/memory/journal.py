"""The journal over the in-memory Kafka: a topic of its own, with one partition."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import orjson

from eosframework.records import TopicPartition
from eosframework.testing.memory_kafka import MemoryKafka, MemoryPartition
from eosframework.transactions.ports import Output

Found = dict[str, tuple[int, Any]]
"""By key, the offset and the newest entry."""


class MemoryJournal:
    """A `Journal`; reads what transactions have committed.

    Attributes:
        undecided: entries after all others, of a transaction that stays open.
    """

    def __init__(self, kafka: MemoryKafka, topic: str = "app-control") -> None:
        self.topic = topic
        self.undecided: list[tuple[str, Any]] = []
        self._kafka = kafka

    def settled(self, keys: Collection[str], since: int | None = None) -> dict[str, Any]:
        return self._found(lambda key, offset: key in keys and offset >= (since or 0))

    def settled_under(self, prefix: str) -> dict[str, Any]:
        return self._found(lambda key, _: key.startswith(prefix))

    def decided(self, keys: Collection[str]) -> dict[str, Any]:
        return self._found(lambda key, _: key in keys)

    def newest(self, keys: Collection[str], since: int = 0) -> Found:
        end = self._log.end
        hung = {key: (end + n, entry) for n, (key, entry) in enumerate(self.undecided)}
        found = {**self._entries(), **hung}
        return {k: one for k, one in found.items() if k in keys and one[0] >= since}

    def written_end(self) -> int:
        return self._log.end + len(self.undecided)

    def output(self, key: str, entry: Any) -> Output:
        value = None if entry is None else orjson.dumps(entry)
        return (self.topic, value, key.encode(), 0, None, None, 0, None)

    def commit(self, key: str, entry: Any) -> None:
        """Write an entry as another process would."""
        self._kafka.append(self.output(key, entry))

    def empty(self) -> None:
        """Remove all entries, as a topic that was created again lacks them."""
        self._log.messages.clear()

    @property
    def _log(self) -> MemoryPartition:
        return self._kafka.logs.setdefault(TopicPartition(self.topic, 0), MemoryPartition())

    def _entries(self) -> Found:
        entries = {
            (m.key() or b"").decode(): (m.offset(), None if (v := m.value()) is None else v)
            for m in self._log.messages
        }
        return {key: (n, orjson.loads(v)) for key, (n, v) in entries.items() if v is not None}

    def _found(self, is_wanted: Callable[[str, int], bool]) -> dict[str, Any]:
        return {key: entry for key, (n, entry) in self._entries().items() if is_wanted(key, n)}
