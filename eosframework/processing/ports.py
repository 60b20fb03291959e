"""What the cycle needs from the outside, as protocols; `kafka/` implements them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from eosframework.errors import TransactionError
from eosframework.records import Position, TopicPartition
from eosframework.txnid import TransactionalId

Delivered = Callable[[Any, Any], None]
"""Told the error, or None, and the message with its offset, when a record was delivered."""

Output = tuple[str, bytes | None, bytes | None, int, "Delivered | None", None, int, Any]
"""One record to produce, in the positional order of `confluent_kafka.Producer.produce`: topic,
value, key, partition (-1: by key), who is told of its delivery (the argument has a second name),
timestamp in milliseconds, headers. Positional arguments cost a third less than named ones."""


class Message(Protocol):
    """A consumed message, as `confluent_kafka.Message` has it."""

    def topic(self) -> str:
        """The topic it was read from."""
        ...

    def partition(self) -> int:
        """The partition it was read from."""
        ...

    def offset(self) -> int:
        """Its offset."""
        ...

    def key(self) -> bytes | None:
        """The encoded key."""
        ...

    def value(self) -> bytes | None:
        """The encoded value; None is a tombstone."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """The timestamp's type, and the timestamp in milliseconds."""
        ...

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """The headers in order, or None where there are none."""
        ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one look at the consumer brought.

    Args:
        messages: by partition, in offset order.
        ends: partitions read to their last stable offset, with that offset.
        membership: an opaque token of the group membership under which this was fetched;
            it goes into `send_offsets` as the second fence (KIP-447).
        sizes: of the messages' values, in bytes, by partition, estimated.
    """

    messages: dict[TopicPartition, list[Message]]
    ends: dict[TopicPartition, int]
    membership: Any
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])


class Purger(Protocol):
    """Makes room in topics of the application's own."""

    def committed(self, positions: Sequence[Position]) -> None:
        """Take in how far own topics were read; what lies behind may be removed."""
        ...

    def close(self) -> None:
        """Finish what is under way, within seconds."""
        ...


class RebalanceListener(Protocol):
    """Told about partitions, inside the consumer's callback."""

    def assigned(self, partitions: list[TopicPartition]) -> list[Position]:
        """Take partitions over and return which these are, and where to read each of them from.

        They need not be the same: see `Plan.owned`. A position without an offset is sought before
        the partition is resumed.
        """
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

    def fetch(self, limit: int, timeout_seconds: float, gather_seconds: float = 0.0) -> Fetched:
        """Return at most `limit` messages.

        Args:
            limit: the most messages.
            timeout_seconds: to wait while there is none.
            gather_seconds: to wait for more where there are only a few.

        Raises:
            PositionLost: a position is no longer in the log.
            InstanceFenced: another member joined with this one's instance name.
        """
        ...

    def membership(self) -> Any:
        """Return the membership as it is now; inside `assigned`, the one that it is about."""
        ...

    def committed(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        """Return the stable committed positions (waits for a transaction in doubt).

        Raises:
            Retriable: they could not be read within the request timeout.
        """
        ...

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver messages of these partitions again."""
        ...

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver no message of these partitions until `resume`."""
        ...

    def seek(self, positions: Sequence[Position]) -> None:
        """Go on at these positions; the partitions are assigned to this member."""
        ...

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset still in the log of each partition."""
        ...

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of each partition."""
        ...

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Return every partition of `topics`."""
        ...

    def lag(self, positions: Mapping[TopicPartition, int]) -> int:
        """Return how many offsets lie after `positions`, by what the last fetches said."""
        ...

    def close(self, *, leave: bool) -> None:
        """Stop consuming. With `leave` the partitions go to other members at once."""
        ...


class TransactionalOutput(Protocol):
    """One transactional.id with its current producer."""

    @property
    def transactional_id(self) -> str:
        """The id that fences every earlier owner of the same partition."""
        ...

    @property
    def produce(self) -> Callable[..., None]:
        """`produce(*output)` of the current producer; changes when it is recycled.

        It raises BufferError while the queue is full (poll, then call again); any other
        exception goes through `explain`.
        """
        ...

    def explain(self, error: Exception) -> TransactionError:
        """Return what an exception out of `produce` means."""
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

    def deliver(self) -> None:
        """Wait until the brokers have what was produced.

        Raises:
            TransactionError: nothing of the open transaction may be kept.
        """
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


class CommitRound(Protocol):
    """Commits that are under way."""

    @property
    def took_seconds(self) -> float:
        """How long it took until the last answer; known once it is done."""
        ...

    def is_done(self) -> bool:
        """Tell whether `results` would return without waiting for an answer."""
        ...

    def join(self, commits: Sequence[Commit]) -> None:
        """Begin further commits, of other outputs; all are waited for together."""
        ...

    def results(self) -> list[Committed]:
        """Wait for every answer; then look once for signs of a straggler.

        A producer found suspect is recycled before this returns. Never raises for one
        commit's failure: its `Committed.error` says it, so that the others are not affected.
        """
        ...


class FinishedRound:
    """Commits that are waited for where they are begun."""

    took_seconds = 0.0

    def __init__(
        self, commit: Callable[[Sequence[Commit]], list[Committed]], commits: Sequence[Commit]
    ) -> None:
        self._commit = commit
        self._results = commit(commits)

    def is_done(self) -> bool:
        """It is."""
        return True

    def join(self, commits: Sequence[Commit]) -> None:
        """Commit these as well."""
        self._results += self._commit(commits)

    def results(self) -> list[Committed]:
        """Return what became of them."""
        return self._results


class TransactionalOutputs(Protocol):
    """Opens, commits and closes the outputs of a worker's tasks, overlapping their waits."""

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        """Init every id, in parallel: fences the last owners and ends what they left open.

        Raises:
            TransactionError: an id could not be had; those that could are closed again.
        """
        ...

    def begin_commit(
        self, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> CommitRound:
        """Begin to send offsets and to commit each transaction.

        Until the results were taken nothing else may be done with these outputs.

        Args:
            commits: of different outputs.
            within_seconds: what is not confirmed by then is unknown; None: by the transaction
                timeout.
        """
        ...

    def commit(
        self, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> list[Committed]:
        """Begin and wait for the results."""
        ...

    def abort(self, outputs: Sequence[TransactionalOutput]) -> Sequence[TransactionError | None]:
        """Make sure that nothing of the open transactions becomes visible.

        Recycles each output: where no error is returned, a new producer has the id, and no frame
        of the old one can take effect.

        Returns:
            For each output why its id could not be taken again, or None.
        """
        ...

    def recycle(self, outputs: Sequence[TransactionalOutput]) -> Sequence[TransactionError | None]:
        """Replace the producers: fence whatever the old ones may have in flight.

        Returns:
            For each output why its id could not be taken again, or None.
        """
        ...

    def close(self, outputs: Sequence[TransactionalOutput]) -> None:
        """Discard the producers; one that is suspect is re-inited first."""
        ...

    def stop(self) -> None:
        """End what the outputs share; they have been closed."""
        ...


class ProgressLedger(Protocol):
    """What the application has committed before, kept where it does not expire."""

    def starting_positions(self, committed: Sequence[Position], log: InputLog) -> list[Position]:
        """Give every partition without a committed offset the position to start at.

        Asks as often for many partitions, of any sub-topologies, as for one.

        Raises:
            StartRefused: a partition was committed before and its offset is gone.
        """
        ...

    def marker(self, sub_topology: str, partition: TopicPartition) -> Output | None:
        """Return what to write into a partition's first transaction; None: it is there."""
        ...

    def starts_at_end(self, partition: TopicPartition) -> bool:
        """Tell whether a partition that was never committed starts at its end."""
        ...

    def former_ids(self, by_task: Mapping[TransactionalId, Sequence[TopicPartition]]) -> list[str]:
        """Return the ids under which the tasks' partitions were processed and are no more.

        Raises:
            RunError: another member of the group takes the same partitions under other ids.
            Retriable: that cannot be told now.
        """
        ...

    def confirm_ids(self, by_task: Mapping[TransactionalId, Sequence[TopicPartition]]) -> None:
        """Make sure that the tasks still have their ids; the former ones are fenced.

        Raises:
            RunError: one has not.
            Retriable: that cannot be told now.
        """
        ...

    def confirm_start(self) -> None:
        """Make sure that what this worker found at its start still holds; it was no member since.

        Raises:
            RunError: it does not.
            Retriable: that cannot be told now.
        """
        ...
