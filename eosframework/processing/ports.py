"""What the cycle needs from the outside, as protocols; `kafka/` implements them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from eosframework.errors import TransactionError
from eosframework.records import Position, TopicPartition

Output = tuple[str, bytes | None, bytes | None, int, None, int, Any]
"""One record to produce, in the argument order of `confluent_kafka.Producer.produce`:
topic, value, key, partition (-1: by key), no callback, timestamp in milliseconds, headers."""


class Message(Protocol):
    """A consumed message, as `confluent_kafka.Message` has it."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one look at the consumer brought.

    Args:
        messages: by partition, in offset order.
        ends: partitions read to their last stable offset, with that offset.
        membership: an opaque token of the group membership under which this was fetched;
            it goes into `send_offsets` as the second fence (KIP-447).
    """

    messages: dict[TopicPartition, list[Message]]
    ends: dict[TopicPartition, int]
    membership: Any


class RebalanceListener(Protocol):
    """Told about partitions, inside the consumer's callback."""

    def assigned(self, partitions: list[TopicPartition]) -> list[Position]:
        """Take the partitions over and return where to read each of them from."""
        ...

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Finish or abort what is open and let the partitions go."""
        ...

    def lost(self, partitions: list[TopicPartition]) -> None:
        """Let the partitions go without a commit: somebody else may own them."""
        ...


class InputLog(Protocol):
    """A `read_committed` group member."""

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join the group. New partitions are assigned paused."""
        ...

    def fetch(self, limit: int, timeout_seconds: float) -> Fetched:
        """Return at most `limit` messages, waiting only while there is none.

        Raises:
            PositionLost: a position is no longer in the log.
            InstanceFenced: another member joined with this one's instance name.
        """
        ...

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_seconds: float
    ) -> list[Position]:
        """Return the stable committed positions (waits for a transaction in doubt)."""
        ...

    def resume(self, partitions: Sequence[TopicPartition]) -> None: ...
    def pause(self, partitions: Sequence[TopicPartition]) -> None: ...
    def seek(self, positions: Sequence[Position]) -> None: ...

    def end_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the last stable offset of every partition of `topics`."""
        ...

    def close(self, *, leave: bool) -> None:
        """Stop consuming. With `leave` the partitions go to other members at once."""
        ...


class TransactionalOutput(Protocol):
    """One transactional.id with its current producer."""

    @property
    def transactional_id(self) -> str: ...

    @property
    def produce(self) -> Callable[..., None]:
        """`produce(*output)` of the current producer; changes when it is recycled."""
        ...

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            TransactionError: as `TransactionalOutputs.commit`.
        """
        ...

    def poll(self, timeout_seconds: float = 0) -> None:
        """Serve delivery reports, so that the producer's queue drains."""
        ...

    def abort(self) -> None:
        """Make sure that nothing of the open transaction becomes visible.

        Recycles: when it returns, a new producer has the id, and no frame of the old one can
        take effect.

        Raises:
            TransactionError: the id could not be taken again.
        """
        ...

    def recycle(self) -> None:
        """Replace the producer: fence whatever the old one may have in flight."""
        ...


@dataclass(frozen=True, slots=True)
class Commit:
    """One task's part in a round of commits."""

    output: TransactionalOutput
    positions: Sequence[Position]
    membership: Any


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of one commit.

    Args:
        error: None when the broker confirmed; otherwise what followed instead.
        recycled: the producer was suspect and has been replaced.
    """

    error: TransactionError | None = None
    recycled: bool = False


class TransactionalOutputs(Protocol):
    """Opens, commits and closes the outputs of a worker's tasks, overlapping their waits."""

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        """Init every id, in parallel: fences the last owners and ends what they left open.

        Raises:
            TransactionError: an id could not be had; those that could are closed again.
        """
        ...

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        """Send offsets and commit each transaction; then look once for signs of a straggler.

        A producer found suspect is recycled before this returns. Never raises for one
        commit's failure: its `Committed.error` says it, so that the others are not affected.
        """
        ...

    def close(self, outputs: Sequence[TransactionalOutput]) -> None:
        """Discard the producers; one that is suspect is re-inited first."""
        ...
