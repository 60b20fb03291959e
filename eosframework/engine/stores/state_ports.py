"""The ports of the stores on this machine, as protocols; `state/` implements them.

A store has committed changes only: the changes of a transaction stay in its task and are written
after the commit, together with their changelog position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eosframework.engine.operators.store_transaction import CommittedStore
from eosframework.records import TopicPartition
from eosframework.transactions.ports import Message


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """The identity of a store on disk; a store with another identity is not used.

    Args:
        name: the name of the store.
        changelog: the id of its changelog topic, which changes when the topic is created anew.
        schema_version: version of the format of its entries.
    """

    name: str
    changelog: str
    schema_version: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The size of a store.

    Args:
        store: its name.
        keys: the number of keys, possibly estimated.
        disk_bytes: the size of its files.
        memory_bytes: data in memory that is not in files yet.
    """

    store: str
    keys: int
    disk_bytes: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Reached:
    """The committed transaction of a task up to which its stores have all changes.

    Args:
        transaction: its number.
        positions: the next offset of each source partition after it, by the partition's text.
    """

    transaction: int
    positions: Mapping[str, int]

    def contradiction(self, committed: Reached) -> str | None:
        """Return the reason why stores are no prefix of a task's history; None: they may be.

        Args:
            committed: what the brokers have committed of the task.
        """
        number, other = self.transaction, committed.transaction
        if number > other:
            return f"it has transaction {number} of its task, and only {other} is committed"
        if number < other:
            return None
        moved = {
            partition: (offset, committed.positions[partition])
            for partition, offset in self.positions.items()
            if committed.positions.get(partition, offset) != offset
        }
        places = ", ".join(
            f"{name} at {own} instead of {its}" for name, (own, its) in moved.items()
        )
        return f"it has another transaction {number} of its task: {places}" if moved else None


Changes = Iterable[tuple[bytes, bytes | None]]
"""Keys with their new entries; None deletes."""


class TaskStores(Protocol):
    """All stores of one task; used by one thread."""

    def store(self, name: str) -> CommittedStore:
        """Return the content of a store."""
        ...

    def position(self, name: str) -> int | None:
        """Return the next changelog offset to apply; None: the store is empty."""
        ...

    def written_at(self, name: str) -> float | None:
        """Return the time of the store's last write, in seconds since the epoch.

        For an incomplete copy this is the time at which it was complete.
        """
        ...

    @property
    def stream_time(self) -> int | None:
        """The stream time up to which entries may have expired, in milliseconds; None: unknown."""
        ...

    @property
    def reached(self) -> Reached | None:
        """The task's last transaction that all stores have; None: unknown, as for a new copy."""
        ...

    def write(
        self,
        changes: Mapping[str, Changes],
        positions: Mapping[str, int],
        stream_time: int | None = None,
        whole_at: float | None = None,
        reached: Reached | None = None,
    ) -> None:
        """Apply changes and their positions atomically, for any number of stores.

        Args:
            changes: by store.
            positions: next changelog offsets to apply, by store.
            stream_time: stream time of the task, in milliseconds; None: unchanged.
            whole_at: time at which these stores last had all of their changelogs, in seconds since
                the epoch, returned by `written_at`; None: now.
            reached: the task's last transaction that the stores have; None: unchanged.

        Raises:
            RunError: the disk rejects the write; nothing was applied.
        """
        ...

    def stats(self) -> Sequence[StoreStats]:
        """Return the size of each store, in constant time; for any thread."""
        ...

    def clear(self, name: str) -> None:
        """Delete a store's content and position."""
        ...

    def close(self) -> None:
        """Close the stores; another process may open them."""
        ...


class StateBackend(Protocol):
    """Opens the stores of a worker's tasks."""

    def open(self, task: str, partitions: int, stores: Sequence[StoreIdentity]) -> TaskStores:
        """Open a task's stores on this machine; unusable ones are empty.

        Args:
            task: `sub_topology-partition`.
            partitions: the number of partitions of the sub-topology.
            stores: their identities.
        """
        ...

    def close(self) -> None:
        """Close everything."""
        ...


class CopyBackend(StateBackend, Protocol):
    """A backend that also keeps copies of other workers' stores."""

    def keep_copy(self, task: str, partitions: int, stores: Sequence[StoreIdentity]) -> TaskStores:
        """Open this worker's copy of a task's stores; see `open`.

        Directories of other workers on this machine stay untouched, because these may restart.
        """
        ...

    def own(self, stores: TaskStores) -> None:
        """Turn a copy of `keep_copy` into the stores of a task that runs here."""
        ...


Bounds = Mapping[TopicPartition, tuple[int, int]]
"""By partition, the first offset in the log and the last stable offset."""


class ChangelogReading(Protocol):
    """Reads ranges of changelog partitions in slices."""

    def read(self, seconds: float) -> Mapping[TopicPartition, Sequence[Message]]:
        """Return the messages that arrive within `seconds`, in offset order.

        Raises:
            PositionLost: retention removed records that were not read yet.
        """
        ...

    def read_to(self, partition: TopicPartition) -> int:
        """Return the next offset of a partition; at the end of its range it is complete."""
        ...

    def close(self) -> None:
        """Stop reading."""
        ...


class Changelogs(Protocol):
    """The changelog topics of an application."""

    def bounds(self, partitions: Sequence[TopicPartition]) -> Bounds:
        """Return the first offset and the last stable one of each changelog.

        Raises:
            ClusterUnreachable: no broker answered in time.
        """
        ...

    def written_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermark of each changelog: every written record lies before it.

        Committed records may lie after the last stable offset, which is the first record of an open
        transaction. So a reader that must see every record committed when it began reads up to the
        high watermark.

        Raises:
            ClusterUnreachable: no broker answered in time.
        """
        ...

    def open(self, ranges: Bounds) -> ChangelogReading:
        """Begin to read ranges: from the first offset to the second, exclusive."""
        ...
