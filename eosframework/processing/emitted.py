"""Messages for results that a keyed node emits later than the record that caused them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eosframework.operators.joins.stream_joins import Unpaired
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import StreamJoin


@dataclass(frozen=True, slots=True)
class EmittedResult:
    """A result that a keyed node emits at a commit, or when a window closes.

    Args:
        store: changelog topic of the node's store, the origin that a dead letter names.
        partition_: partition of the task.
        key_: the encoded key.
        entry_value: the decoded value.
        timestamp_: in milliseconds since the epoch.
        serde: serde of the value.
    """

    store: str
    partition_: int
    key_: bytes
    entry_value: Any
    timestamp_: int
    serde: Serde

    def topic(self) -> str:
        """The changelog of its store."""
        return self.store

    def partition(self) -> int:
        """The task's partition."""
        return self.partition_

    def offset(self) -> int:
        """Always 0: it has no offset."""
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
        """None: it results from many records."""
        return


@dataclass(frozen=True, slots=True)
class UnpairedMessage(EmittedResult):
    """A record of a stream-stream join that can have no match any more."""

    is_left: bool


def unpaired_message(join: StreamJoin, partition: int, record: Unpaired) -> UnpairedMessage:
    """Return a record without a match as a message."""
    return UnpairedMessage(
        store=join.store.changelog,
        partition_=partition,
        key_=record.key,
        entry_value=record.value,
        timestamp_=record.timestamp,
        serde=join.values[0 if record.is_left else 1],
        is_left=record.is_left,
    )
