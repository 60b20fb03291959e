"""The layouts of the three stores of a join of two tables by a foreign key (ADR 41)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from eosframework.engine.operators.foreign_keys import (
    OF_KEY,
    number_of,
    read_subscriber,
    split_subscription,
    subscribers_of,
)
from eosframework.engine.operators.store_transaction import CommittedStore
from eosframework.serialization.row_states import decode_state
from eosframework.state.layout import Layout, Row, bounds
from eosframework.topology.graph.graph import Answers, ForeignJoin, Subscribe


class _KeyedLayout(Layout):
    """One row for each left key, besides what the store has of tasks."""

    has_one_row = True

    def get(self, content: CommittedStore, key: bytes) -> Iterator[Row]:
        """Yield the row of a left key."""
        if (data := content.get(OF_KEY + key)) is not None:
            yield self._shown(key, *self._form.decode(data))

    def scan(self, content: CommittedStore, first: bytes, last: bytes | None) -> Iterator[Row]:
        """Yield the rows in the order of their keys."""
        for name, data in content.scan(*bounds(OF_KEY, first, last)):
            yield self._shown(name[len(OF_KEY) :], *self._form.decode(data))

    def _number(self, version: bytes) -> int:
        return self._form.held.reading(number_of)(version) if version else 0

    @abstractmethod
    def _shown(self, key: bytes, kept: bytes, timestamp: int) -> Row: ...


class SubscribedLayout(_KeyedLayout):
    """Left rows with the foreign key that each subscribes to; None: it has none."""

    def __init__(self, node: Subscribe) -> None:
        super().__init__(node.store)
        self._foreign = node.foreign

    def _shown(self, key: bytes, kept: bytes, timestamp: int) -> Row:
        version, foreign = split_subscription(kept)
        shown = None if foreign is None else self._decoded(self._foreign, foreign)
        value = {"foreign_key": shown, "version": self._number(version)}
        return self._row(key, value, timestamp)


class SubscribersLayout(Layout):
    """Foreign keys with the left rows that subscribe to them, one row for each of these."""

    def __init__(self, node: Answers) -> None:
        super().__init__(node.store)
        self._left = node.key

    def get(self, content: CommittedStore, key: bytes) -> Iterator[Row]:
        """Yield the subscribers of a foreign key."""
        for name, data in content.scan(*subscribers_of(key)):
            yield self._subscriber(name, data)

    def scan(self, content: CommittedStore, first: bytes, last: bytes | None) -> Iterator[Row]:
        """Yield the subscribers by the length of the foreign key, then by that key."""
        for name, data in content.scan(b"", None):
            key, _ = self._form.held.reading(read_subscriber)(name)
            if key >= first and (last is None or key < last):
                yield self._subscriber(name, data)

    def _subscriber(self, name: bytes, data: bytes) -> Row:
        kept, timestamp = self._form.decode(data)
        foreign, key = self._form.held.reading(read_subscriber)(name)
        version = self._form.held.reading(number_of)(kept)
        shown = {"subscriber": self._decoded(self._left, key), "version": version}
        return self._row(foreign, shown, timestamp)


class JoinedLayout(_KeyedLayout):
    """The rows of both tables by the left key, with the versions that say whether they belong."""

    def __init__(self, node: ForeignJoin) -> None:
        super().__init__(node.store)
        self._rows = node.rows

    def _shown(self, key: bytes, kept: bytes, timestamp: int) -> Row:
        state = self._form.held.reading(decode_state)(kept)
        left, right = (
            None if data is None else self._decoded(serde, data)
            for serde, data in zip(self._rows, (state.left, state.right), strict=True)
        )
        value = {
            "left": left,
            "right": right,
            "version": self._number(state.version),
            "answered": self._number(state.answered),
        }
        return self._row(key, value, timestamp)
