"""A record that a keyed node gives later than the record that caused it, as a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eosframework.operators.joins.stream_joins import Unpaired
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import StreamJoin


@dataclass(frozen=True, slots=True)
class Emitted:
    """What a keyed node gives at a commit, or when a window closes.

    Args:
        store: changelog topic of the node's store; a dead letter names it as its origin.
        partition_: of the task.
        key_: the encoded key.
        entry_value: the value, decoded.
        timestamp_: in milliseconds since the epoch.
        serde: of the value.
    """

    store: str
    partition_: int
    key_: bytes
    entry_value: Any
    timestamp_: int
    serde: Serde

    def topic(self) -> str:
        """The changelog of the store that it comes from."""
        return self.store

    def partition(self) -> int:
        """The task's partition."""
        return self.partition_

    def offset(self) -> int:
        """Always 0: it has no place in a log."""
        return 0

    def key(self) -> bytes:
        """The encoded key."""
        return self.key_

    def value(self) -> bytes | None:
        """The encoded value."""
        if self.entry_value is None or self.serde.encode is None:
            return self.entry_value
        return self.serde.encode(self.entry_value)

    def timestamp(self) -> tuple[int, int]:
        """The timestamp's type, and the timestamp in milliseconds."""
        return 1, self.timestamp_

    def headers(self) -> None:
        """None: it comes from many records."""
        return


@dataclass(frozen=True, slots=True)
class Alone(Emitted):
    """A record of a stream that met none of the other, when it can meet none any more."""

    is_left: bool


def alone(join: StreamJoin, partition: int, record: Unpaired) -> Alone:
    """Return what met nothing as a message."""
    return Alone(
        store=join.store.changelog,
        partition_=partition,
        key_=record.key,
        entry_value=record.value,
        timestamp_=record.timestamp,
        serde=join.values[0 if record.is_left else 1],
        is_left=record.is_left,
    )
