"""What the cycle needs of the stores on this machine, as protocols; `state/` implements them.

A store holds what was committed and never more: what a transaction changes waits in its task
and comes here after the commit, together with how far that is in the changelog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eosframework.operators.operator_ports import CommittedStore
from eosframework.processing.ports import Message
from eosframework.records import TopicPartition


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """What a store on disk must have been made for; another one is not used.

    Args:
        name: of the store.
        changelog: the id of its changelog topic, which changes when that is created anew.
        schema_version: of the format of its entries.
    """

    name: str
    changelog: str
    schema_version: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """How large a store is.

    Args:
        store: its name.
        keys: how many there are, perhaps estimated.
        disk_bytes: of its files.
        memory_bytes: of what is in memory and in no file yet.
    """

    store: str
    keys: int
    disk_bytes: int
    memory_bytes: int


Changes = Iterable[tuple[bytes, bytes | None]]
"""Keys with their new entries; None deletes."""


class TaskStores(Protocol):
    """All stores of one task; used by one thread."""

    def store(self, name: str) -> CommittedStore:
        """Return what one of them holds."""
        ...

    def position(self, name: str) -> int | None:
        """Return the next offset of the changelog to apply; None: the store is empty."""
        ...

    def written_at(self, name: str) -> float | None:
        """Return when the store was last written, in seconds since the epoch.

        Of a copy that lags behind: when it had everything.
        """
        ...

    @property
    def stream_time(self) -> int | None:
        """Up to which stream time, in milliseconds, entries may have expired; None: not known."""
        ...

    def write(
        self,
        changes: Mapping[str, Changes],
        positions: Mapping[str, int],
        stream_time: int | None = None,
        whole_at: float | None = None,
    ) -> None:
        """Apply changes and the positions behind them, of any number of stores, atomically.

        Args:
            changes: by store.
            positions: next offsets of the changelogs to apply, by store.
            stream_time: of the task, in milliseconds; None: as before.
            whole_at: when these stores last had all of their changelogs, in seconds since the
                epoch, which is what `written_at` tells; None: now.

        Raises:
            RunError: the disk does not take it; nothing was applied.
        """
        ...

    def stats(self) -> Sequence[StoreStats]:
        """Return how large each store is; any thread may ask, and it takes no longer for more."""
        ...

    def clear(self, name: str) -> None:
        """Forget a store's content and position."""
        ...

    def close(self) -> None:
        """Give the stores up; another process may open them."""
        ...


class StateBackend(Protocol):
    """Opens the stores of a worker's tasks."""

    def open(self, task: str, partitions: int, stores: Sequence[StoreIdentity]) -> TaskStores:
        """Open what this machine has of a task's stores; what cannot be used is empty.

        Args:
            task: `sub_topology-partition`.
            partitions: how many the sub-topology has.
            stores: what they must have been made for.
        """
        ...

    def close(self) -> None:
        """Give everything up."""
        ...


class CopyBackend(StateBackend, Protocol):
    """Also keeps copies of the stores of tasks that run elsewhere."""

    def keep_copy(self, task: str, partitions: int, stores: Sequence[StoreIdentity]) -> TaskStores:
        """Open this worker's own copy of a task's stores; see `open`.

        What other workers of this machine left behind is not touched: it is theirs to come back to.
        """
        ...

    def own(self, stores: TaskStores) -> None:
        """Make a copy that `keep_copy` opened the stores of a task that runs here."""
        ...


Bounds = Mapping[TopicPartition, tuple[int, int]]
"""By partition, the first offset in the log and the last stable offset."""


class ChangelogReading(Protocol):
    """Reads ranges of changelog partitions, a little at a time."""

    def read(self, seconds: float) -> Mapping[TopicPartition, Sequence[Message]]:
        """Return what came within `seconds`, in offset order.

        Raises:
            PositionLost: retention removed what was still to be read.
        """
        ...

    def read_to(self, partition: TopicPartition) -> int:
        """Return the next offset of a partition; at the end of its range it is all read."""
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
        """Return the high watermark of each changelog: all that is written lies before it.

        What is committed may lie behind the last stable offset: at or behind the first record of
        a transaction that is still open. So a reader that has to see all that was committed when
        it began reads up to here.

        Raises:
            ClusterUnreachable: no broker answered in time.
        """
        ...

    def open(self, ranges: Bounds) -> ChangelogReading:
        """Begin to read ranges: from the first offset to before the second."""
        ...
