"""The ports of the cycle, as protocols; `kafka/` implements them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from eosframework.errors import RunError, TransactionError
from eosframework.records import Position, TopicPartition

Delivered = Callable[[Any, Any], None]
"""Delivery callback: takes the error or None, and the message with its offset."""

Output = tuple[str, bytes | None, bytes | None, int, "Delivered | None", Any, int, Any]
"""One record to produce, in the positional order of `confluent_kafka.Producer.produce`: topic,
value, key, partition (-1: by key), delivery callback (the argument has a second name, which is
None), timestamp in milliseconds, headers. Positional arguments cost a third less than named ones.

A row that a database writes in its decision of the transaction is an output of the same form: it
names its tables in place of a topic, and in place of the second name the message it comes from."""

ROW_OF = 5
"""Index of the message that a row comes from; None: the output goes to Kafka."""


def is_row(output: Output) -> bool:
    """Return whether an output is a row for a database."""
    return output[ROW_OF] is not None


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
    """The result of one poll of the consumer.

    Args:
        messages: by partition, in offset order.
        ends: partitions read to their last stable offset, with that offset.
        membership: an opaque token of the group membership at the fetch, passed to `send_offsets`
            as the second fence (KIP-447).
        sizes: estimated bytes of the messages' values, by partition.
        unreadable: partitions whose next batch cannot be read, with its error; the messages before
            it are processed first.
    """

    messages: dict[TopicPartition, list[Message]]
    ends: dict[TopicPartition, int]
    membership: Any
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    unreadable: Mapping[TopicPartition, RunError] = field(
        default_factory=dict[TopicPartition, RunError]
    )


class Purger(Protocol):
    """Deletes processed records of internal topics."""

    def committed(self, positions: Sequence[Position]) -> None:
        """Allow the deletion of the records before these positions."""
        ...

    def close(self) -> None:
        """Finish pending requests, within seconds."""
        ...


class RebalanceListener(Protocol):
    """Receives rebalances, inside the consumer's callback."""

    def assigned(self, partitions: list[TopicPartition]) -> list[Position]:
        """Take partitions over; return the partitions taken, with their start positions.

        A position without an offset is sought before the partition is resumed.
        """
        ...

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Finish or abort open transactions and release the partitions."""
        ...

    def lost(self, partitions: list[TopicPartition]) -> None:
        """Release the partitions without a commit: another member may own them."""
        ...


class InputLog(Protocol):
    """A consumer: a group member with `read_committed`."""

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join the group. New partitions are assigned paused."""
        ...

    def fetch(self, limit: int, timeout_seconds: float, gather_seconds: float = 0.0) -> Fetched:
        """Return at most `limit` messages.

        Args:
            limit: the most messages.
            timeout_seconds: time to wait for a first message.
            gather_seconds: time to wait for more where only a few are available.

        Raises:
            PositionLost: a position is no longer in the log.
            InstanceFenced: another member joined with this one's instance name.
        """
        ...

    def membership(self) -> Any:
        """Return the membership of the assignment, also inside `assigned`; None: there is none."""
        ...

    def confirm_assignment(self, partitions: Sequence[TopicPartition]) -> None:
        """Make sure, inside `assigned`, that the group assigns partitions to this member.

        Raises:
            AssignmentLapsed: it does not; another assignment follows.
            ClusterUnreachable: the group cannot be described now.
        """
        ...

    def committed(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        """Return the stable committed positions; waits for pending transactions.

        Raises:
            Retriable: they could not be read within the request timeout.
        """
        ...

    def decided(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        """Return the committed positions, without those of transactions that are still open.

        Raises:
            EosError: they could not be read within the request timeout.
        """
        ...

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch these partitions again."""
        ...

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch no messages of these partitions until `resume`."""
        ...

    def seek(self, positions: Sequence[Position]) -> None:
        """Resume at these positions; the partitions are assigned to this member."""
        ...

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first available offset of each partition."""
        ...

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of each partition."""
        ...

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition's log, which includes open transactions.

        Raises:
            EosError: they could not be read within the request timeout.
        """
        ...

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Return every partition of `topics`."""
        ...

    def lag(self, positions: Mapping[TopicPartition, int]) -> int:
        """Return the number of offsets after `positions`, by the last fetch responses."""
        ...

    def close(self, *, leave: bool) -> None:
        """Stop consuming; with `leave` the group reassigns the partitions at once."""
        ...


class TransactionalOutput(Protocol):
    """One transactional.id with its current producer."""

    @property
    def transactional_id(self) -> str:
        """The id that fences every earlier owner of the same partition."""
        ...

    @property
    def is_suspect(self) -> bool:
        """True if the producer may have a frame in flight, and was not replaced yet."""
        ...

    @property
    def produce(self) -> Callable[..., None]:
        """`produce(*output)` of the current producer; changes when it is recycled.

        It raises BufferError while the queue is full (poll, then call again); any other
        exception goes through `explain`.
        """
        ...

    def explain(self, error: Exception) -> TransactionError:
        """Return the error that stands for an exception of `produce`."""
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
        """Wait until the brokers have stored all produced records.

        Raises:
            TransactionError: nothing of the open transaction may be kept.
        """
        ...


@dataclass(frozen=True, slots=True)
class Commit:
    """One producer's part in a commit round.

    Args:
        decide: decides the transaction in a database, once the brokers have all of it (V2); None:
            the brokers' commit decides. It raises a TransactionError.
    """

    output: TransactionalOutput
    positions: Sequence[Position]
    membership: Any
    decide: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of one commit.

    Args:
        error: None if the broker confirmed the commit; otherwise the error.
        recycled: the producer was suspect and has been replaced.
        throttled_seconds: for which the brokers throttled the transaction, as far as is known.
    """

    error: TransactionError | None = None
    recycled: bool = False
    throttled_seconds: float = 0.0


class TransactionalOutputs(Protocol):
    """Opens, commits and closes the outputs of a worker's tasks in parallel."""

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        """Init every id, in parallel: fences the previous owners and ends their open transactions.

        Raises:
            TransactionError: an id could not be inited; the others are closed again.
        """
        ...

    def commit(
        self, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> list[Committed]:
        """Send offsets and commit each transaction; then check for stragglers.

        A suspect producer is recycled before this returns. A failed commit never raises: its
        `Committed.error` reports it, so that the others are unaffected.

        Args:
            commits: of different outputs.
            within_seconds: a commit that is not confirmed within this time has an unknown outcome;
                None: the transaction timeout.
        """
        ...

    def abort(self, outputs: Sequence[TransactionalOutput]) -> Sequence[TransactionError | None]:
        """Make sure that nothing of the open transactions becomes visible.

        Recycles each output: where no error is returned, a new producer has the id, and no request
        of the old one can take effect.

        Returns:
            For each output the error that prevented the init of its id, or None.
        """
        ...

    def recycle(self, outputs: Sequence[TransactionalOutput]) -> Sequence[TransactionError | None]:
        """Replace the producers: fences all requests that the old ones have in flight.

        Returns:
            For each output the error that prevented the init of its id, or None.
        """
        ...

    def close(self, outputs: Sequence[TransactionalOutput]) -> None:
        """Close the producers; a suspect one is re-inited first."""
        ...

    def stop(self) -> None:
        """Stop the resources that the outputs share; the outputs have been closed."""
        ...


@dataclass(frozen=True, slots=True)
class Decided:
    """The last transaction of a transactional id that the database has decided.

    Args:
        positions: with their metadata.
        outputs: all that it produced.
    """

    transactional_id: str
    positions: Sequence[Position]
    outputs: Sequence[Output]


class Undecided(Protocol):
    """The content of an open transaction so far, as the database takes it."""

    def add(self, outputs: Sequence[Output]) -> Sequence[Output]:
        """Add rows, and copies of outputs; return the outputs without the rows."""
        ...

    def prepared(self, positions: Sequence[Position], within_seconds: float) -> Callable[[], None]:
        """Return a function for another thread that decides the transaction (V2).

        Args:
            positions: with their metadata.
            within_seconds: time to wait for an unavailable database.

        Raises, when it is called:
            RowsRefused: nothing was decided.
            TransactionAborted: nothing was decided, and other data or time helps.
            TaskFenced: nothing was decided; another process has taken the id.
            OutcomeUnknown: only `take` shows whether it is decided.
            TransactionFatal: the database refuses that until the cause is fixed.
        """
        ...


class Decisions(Protocol):
    """The database that decides transactions; its errors are TransactionErrors."""

    @property
    def unavailable(self) -> str | None:
        """The reason why the last attempt did not reach it, as a sentence; None: it did."""
        ...

    def take(
        self, ids: Collection[str], own: Mapping[str, Collection[TopicPartition]]
    ) -> Sequence[Decided]:
        """Keep earlier owners of ids from deciding more, and return their decisions (V4).

        Waits for their open transactions, or ends them.

        Args:
            ids: of any process, `own` included.
            own: the partitions that each id of this process decides from now on.

        Raises:
            Retriable: the database did not answer; try again.
            RunError: it refuses that until the cause is fixed.
        """
        ...

    def next_offsets(self, transactional_id: str) -> Mapping[TopicPartition, int | None]:
        """Return the offsets that the database had when `own` was taken; None: none was decided."""
        ...

    def offsets(self) -> Mapping[TopicPartition, int | None]:
        """Return the offsets of all partitions as they are now.

        Raises:
            Retriable: the database did not answer.
        """
        ...

    def begin(self, transactional_id: str) -> Undecided:
        """Begin a transaction of an id of this process, in place of an earlier one."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


Entries = Mapping[str, Any]
"""Entries of a journal by key, as JSON data."""


class Journal(Protocol):
    """Entries that outlast the retention of offsets: the newest of each key counts.

    They are committed with the records of their transaction. Methods raise ClusterUnreachable if no
    broker answers.
    """

    def settled(self, keys: Collection[str], since: int | None = None) -> Entries:
        """Return committed entries, once all transactions of this moment are decided.

        Args:
            keys: the requested keys.
            since: an offset before which no entry matters; None: there is none.
        """
        ...

    def settled_under(self, prefix: str) -> Entries:
        """Return the committed entries of all keys with a prefix, as `settled`."""
        ...

    def decided(self, keys: Collection[str]) -> Entries:
        """Return committed entries before the first open transaction, without waiting."""
        ...

    def newest(self, keys: Collection[str], since: int = 0) -> Mapping[str, tuple[int, Any]]:
        """Return the newest entries from an offset on with their offsets, committed or not."""
        ...

    def written_end(self) -> int:
        """Return the log end offset, past open transactions."""
        ...

    def output(self, key: str, entry: Any) -> Output:
        """Return the record that writes an entry in a transaction; None deletes it."""
        ...


Positions = Callable[[], Mapping[TopicPartition, int]]
"""Returns the committed positions of a worker's tasks."""


class Identities(Protocol):
    """Compares topics and committed offsets with those that the worker started with."""

    def turn(self, positions: Positions) -> None:
        """Handle the last look's result, and begin another look when it is due; never waits.

        Raises:
            IdentityChanged: a topic or committed offsets are not those of the start.
            RunError: a topic that is read has more partitions.
        """
        ...

    def confirm(self, positions: Positions) -> bool:
        """Look at once; return False if the brokers do not answer.

        Raises:
            IdentityChanged, RunError: as `turn`.
        """
        ...

    def renewed(self) -> bool:
        """Return whether topics of global tables were created again since the last call."""
        ...


class ProgressLedger(Protocol):
    """The application's start markers and transactional.ids, which do not expire."""

    def starting_positions(self, committed: Sequence[Position], log: InputLog) -> list[Position]:
        """Return a start position for every partition without a committed offset.

        The number of requests does not depend on the number of partitions.

        Raises:
            StartRefused: a partition was committed before and its offset is gone.
        """
        ...

    def marker(self, sub_topology: str, partition: TopicPartition) -> Output | None:
        """Return the marker of a partition's first transaction; None: it exists."""
        ...

    def starts_at_end(self, partition: TopicPartition) -> bool:
        """Return whether a partition that was never committed starts at its end."""
        ...

    def confirm_members(self) -> None:
        """Confirm that all members of the group are workers.

        Raises:
            RunError: one is not.
            Retriable: the members cannot be determined now.
        """
        ...

    def confirm_start(self) -> None:
        """Confirm the facts found at the start, after a time without membership.

        Raises:
            RunError: a fact has changed.
            Retriable: the facts cannot be determined now.
        """
        ...
