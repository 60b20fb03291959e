"""An in-memory Kafka: topics, transactions and a consumer group for the worker's ports.

One model of the parts of Kafka that decide about exactly-once. Records of an open transaction have
their offsets and are not readable; the last stable offset stays before the first of them. A commit
or an abort writes a marker, which takes one offset in each partition of the transaction. A new
owner of a transactional.id gets a higher epoch, which aborts the open transaction and fences the
earlier owners. A member that joins the group begins a generation, and offsets sent under an earlier
one are rejected.

The worker's own code runs over it, so it tests the user's functions and the topology. It has no
network and no failing broker: it proves nothing about exactly-once, which needs real brokers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from eosframework.engine.stores.state_ports import Bounds
from eosframework.errors import TaskFenced, TransactionError
from eosframework.records import Position, TopicPartition
from eosframework.testing.stateless_driver import Sent
from eosframework.transactions import failpoints
from eosframework.transactions.ports import (
    Commit,
    Committed,
    Fetched,
    Message,
    Output,
    RebalanceListener,
    TransactionalOutput,
)

UNAWARE_FETCHES = 4
"""A member fetches this often before it learns that the group has another generation."""


class Misuse(AssertionError):
    """A port was used against its protocol."""


@dataclass(slots=True)
class MemoryPartition:
    """The log of a partition.

    Args:
        messages: the committed records, in offset order.
        end: the high watermark.
        open: the first offset of each open transaction, by transactional.id.
    """

    messages: list[Sent] = field(default_factory=list[Sent])
    end: int = 0
    open: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def last_stable(self) -> int:
        """The last stable offset: every transaction before it has ended."""
        return min(self.open.values(), default=self.end)

    def read(self, offset: int, limit: int) -> list[Message]:
        """Return at most `limit` committed messages before the last stable offset."""
        found: list[Message] = []
        stable = self.last_stable
        for message in reversed(self.messages):
            if message.offset_ < offset:
                break
            if message.offset_ < stable:
                found.append(message)
        return found[::-1][:limit]

    def end_transaction(self, transactional_id: str, committed: Sequence[Sent]) -> None:
        """Write the marker of a transaction, and show its records if it is committed."""
        del self.open[transactional_id]
        self.end += 1
        follows = not self.messages or self.messages[-1].offset_ < self.end - 1
        self.messages += committed
        if follows:
            self.messages.sort(key=lambda message: message.offset_)


@dataclass(slots=True)
class _Coordinated:
    """The state of a transactional.id.

    Args:
        written: the records of its open transaction.
    """

    epoch: int = 0
    written: list[Sent] = field(default_factory=list[Sent])


class MemoryKafka:
    """The cluster's state, which survives a worker.

    Args:
        topics: number of partitions by topic.
    """

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.logs: dict[TopicPartition, MemoryPartition] = {}
        for topic, count in topics.items():
            self.add(topic, count)
        self.positions: dict[TopicPartition, Position] = {}
        self.generation = 0
        self.now = 0.0
        self.misuses: list[str] = []
        self._ids: dict[str, _Coordinated] = {}

    def add(self, topic: str, partitions: int) -> None:
        """Create a topic."""
        self.logs |= {TopicPartition(topic, n): MemoryPartition() for n in range(partitions)}

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return a topic's partitions; an undeclared topic gets one."""
        found = [partition for partition in self.logs if partition.topic == topic]
        if not found:
            found = [TopicPartition(topic, 0)]
            self.logs[found[0]] = MemoryPartition()
        return found

    def partition_for(self, topic: str, key: bytes | None) -> TopicPartition:
        """Return the partition of a key; the same for all topics with as many partitions."""
        partitions = self.partitions_of(topic)
        return partitions[zlib.crc32(key or b"") % len(partitions)]

    def is_same_partition(self, topic: str, one: bytes, other: bytes) -> bool:
        """Return whether two keys of a topic have one partition."""
        return self.partition_for(topic, one) == self.partition_for(topic, other)

    def append(self, output: Output) -> Sent:
        """Write one record outside of a transaction."""
        sent = self._place(output)
        self.logs[sent.place].messages.append(sent)
        return sent

    def init(self, transactional_id: str) -> int:
        """Return a new epoch: fence the earlier owners and abort their open transaction."""
        known = self._ids.setdefault(transactional_id, _Coordinated())
        self._end(transactional_id, commit=False)
        known.epoch += 1
        return known.epoch

    def write(self, transactional_id: str, epoch: int, outputs: Sequence[Output]) -> list[Sent]:
        """Add records to the open transaction.

        Raises:
            TaskFenced: the id has a higher epoch.
        """
        self._require_epoch(transactional_id, epoch)
        found: list[Sent] = []
        for output in outputs:
            sent = self._place(output)
            self.logs[sent.place].open.setdefault(transactional_id, sent.offset_)
            found.append(sent)
        self._ids[transactional_id].written += found
        return found

    def commit(
        self, transactional_id: str, epoch: int, positions: Sequence[Position], membership: Any
    ) -> list[Sent]:
        """Commit the open transaction with its positions, and return its records.

        Raises:
            TaskFenced: see `require_right`.
        """
        self.require_right(transactional_id, epoch, membership)
        sent = self._end(transactional_id, commit=True)
        self.positions |= {p.topic_partition: p for p in positions}
        return sent

    def require_right(self, transactional_id: str, epoch: int, membership: Any) -> None:
        """Raise unless a producer may send offsets and commit.

        Args:
            transactional_id: of the producer.
            epoch: of the producer.
            membership: the generation under which offsets are sent; None: without a check.

        Raises:
            TaskFenced: the id has a higher epoch, or the group another generation.
        """
        self._require_epoch(transactional_id, epoch)
        if membership not in (None, self.generation):
            raise TaskFenced(
                f"transactional.id {transactional_id} sends offsets of generation {membership}, "
                f"the group is at {self.generation}"
            )

    def misused(self, problem: str) -> Misuse:
        """Note that a port was used against its protocol, and return the error."""
        self.misuses.append(problem)
        return Misuse(problem)

    def _place(self, output: Output) -> Sent:
        """Give a record its offset."""
        topic, value, key, number, _, _, timestamp, headers = output
        wanted = TopicPartition(topic, number)
        partition = wanted if number >= 0 else self.partition_for(topic, key)
        log = self.logs.setdefault(partition, MemoryPartition())
        place = partition.partition
        sent = Sent(topic, value, key, timestamp, log.end, list(headers or ()) or None, place)
        log.end += 1
        return sent

    def _require_epoch(self, transactional_id: str, epoch: int) -> None:
        if self._ids[transactional_id].epoch != epoch:
            raise TaskFenced(f"transactional.id {transactional_id} was taken by another task")

    def _end(self, transactional_id: str, *, commit: bool) -> list[Sent]:
        known = self._ids[transactional_id]
        written, known.written = known.written, []
        for partition in dict.fromkeys(sent.place for sent in written):
            own = [sent for sent in written if commit and sent.place == partition]
            self.logs[partition].end_transaction(transactional_id, own)
        return written


class MemoryOutput:
    """A transactional producer; it takes its transactional.id over when it is made.

        ready ── begin ──▶ open ── commit ──▶ ready
        a call failed, or the outcome is unknown ──▶ failed ── init ──▶ ready

    Records are sent by `poll`, `deliver` and `commit`. Delivery reports follow at the next of them.
    """

    is_suspect = False

    def __init__(self, kafka: MemoryKafka, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.kafka = kafka
        self.state = "ready"
        self.open: list[Output] = []
        self._sent: list[Sent] = []
        self._reported = 0
        self._epoch = kafka.init(transactional_id)

    @property
    def produce(self) -> Callable[..., None]:
        """`produce(*output)`."""
        return self._produce

    def _produce(self, *output: Any) -> None:
        self.require("produce", "open")
        self.open.append(cast("Output", output))

    def explain(self, error: Exception) -> TransactionError:
        """Return the error; `produce` raises no other kind."""
        if not isinstance(error, TransactionError):
            raise self.kafka.misused(f"explain was given {error!r}")
        return error

    def begin(self) -> None:
        """Begin a transaction."""
        self.require("begin", "ready")
        self.state = "open"

    def poll(self, timeout_seconds: float = 0) -> None:
        """Report deliveries, and send what was produced."""
        self.require("poll", "open")
        self.report()
        self.send()

    def deliver(self) -> None:
        """Send and report everything.

        Raises:
            TaskFenced: another owner has the id.
        """
        self.require("deliver", "open")
        if error := self.send():
            self.state = "failed"
            raise error
        self.report()

    def commit(self, commit: Commit) -> Committed:
        """Commit, or return the error of a fence."""
        failpoints.hit("transaction.after_send_offsets")
        if commit.decide is not None:
            try:
                commit.decide()
            except TransactionError as error:
                return Committed(error)
        failpoints.hit("transaction.before_commit")
        self.require("commit", "open")
        if error := self.send():
            self.state = "failed"
            return Committed(error)
        try:
            self.kafka.commit(
                self.transactional_id, self._epoch, commit.positions, commit.membership
            )
        except TaskFenced as error:
            self.state = "failed"
            return Committed(error)
        self.report()
        self._clear()
        failpoints.hit("transaction.after_commit")
        return Committed()

    def init(self) -> None:
        """Take the id again: aborts the open transaction."""
        self._epoch = self.kafka.init(self.transactional_id)
        self._clear()

    def require(self, call: str, state: str) -> None:
        """Raise `Misuse` unless the producer is in a state."""
        if self.state != state:
            raise self.kafka.misused(f"{self.transactional_id}: {call} of one that is {self.state}")

    def send(self) -> TaskFenced | None:
        """Send what was produced; return the error of a fenced producer."""
        try:
            new = self.open[len(self._sent) :]
            self._sent += self.kafka.write(self.transactional_id, self._epoch, new)
        except TaskFenced as error:
            return error
        return None

    def report(self) -> None:
        """Report what was sent since the last report."""
        since, self._reported = self._reported, len(self._sent)
        for output, sent in zip(self.open[since:], self._sent[since:], strict=False):
            if output[4] is not None:
                output[4](None, sent)

    def _clear(self) -> None:
        self.state, self.open, self._sent, self._reported = "ready", [], [], 0


class MemoryOutputs:
    """Opens and commits outputs; see `TransactionalOutputs`."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self.kafka = kafka

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        """Take over every id."""
        return [self.new_output(name) for name in transactional_ids]

    def new_output(self, transactional_id: str) -> MemoryOutput:
        """Take over one id."""
        return MemoryOutput(self.kafka, transactional_id)

    def commit(
        self, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> list[Committed]:
        """Commit one after the other."""
        return [cast("MemoryOutput", each.output).commit(each) for each in commits]

    def abort(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        """Abort open transactions."""
        return self.recycle(outputs)

    def recycle(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        """Take over the ids anew."""
        for output in outputs:
            cast("MemoryOutput", output).init()
        return [None] * len(outputs)

    def close(self, outputs: Sequence[TransactionalOutput]) -> None:
        """Close the producers."""
        for output in outputs:
            cast("MemoryOutput", output).state = "closed"

    def stop(self) -> None:
        """Do nothing: no thread runs."""


class MemoryInput:
    """A member of a consumer group; see `InputLog`.

    The member that joined last owns all partitions. An earlier one reads on for a few fetches,
    then its partitions are lost.
    """

    def __init__(self, kafka: MemoryKafka) -> None:
        self.kafka = kafka
        self.listener: RebalanceListener | None = None
        self.at: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.generation = 0
        self._topics: Sequence[str] = ()
        self._joins = False
        self._unaware = 0

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join; the assignment comes with the first fetch."""
        self.listener, self._topics, self._joins = listener, topics, True

    def fetch(self, limit: int, timeout_seconds: float, gather_seconds: float = 0.0) -> Fetched:
        """Return the available messages; if there are none, the timeout passes at once."""
        if self.generation != self.kafka.generation and self.at:
            self._unaware += 1
            if self._unaware > UNAWARE_FETCHES:
                self.lose(*self.at)
                self._joins = True
        if self._joins:
            self._joins, self._unaware = False, 0
            self.assign(*self.partitions(self._topics))
        messages: dict[TopicPartition, list[Message]] = {}
        ends: dict[TopicPartition, int] = {}
        active = sorted(self.at.keys() - self.paused)
        for number, partition in enumerate(active):
            if limit <= 0:
                break
            log = self.kafka.logs[partition]
            share = -(-limit // (len(active) - number))
            if found := log.read(self.at[partition], share):
                messages[partition] = found
                self.at[partition] = found[-1].offset() + 1
                limit -= len(found)
            # As in librdkafka, the end may come with the last messages.
            if limit > 0 and not log.read(self.at[partition], 1):
                ends[partition] = log.last_stable
                self.at[partition] = max(self.at[partition], log.last_stable)
        if not messages:
            self.kafka.now += timeout_seconds
        return Fetched(messages, ends, self.generation)

    def assign(self, *partitions: TopicPartition) -> None:
        """Assign partitions, paused, in a new generation."""
        assert self.listener is not None
        self.kafka.generation += 1
        self.generation = self.kafka.generation
        starts = self.listener.assigned(list(partitions))
        self.at |= {p.topic_partition: p.offset or 0 for p in starts}
        self.paused |= {p.topic_partition for p in starts}

    def revoke(self, *partitions: TopicPartition) -> None:
        """Revoke partitions; their transactions may still be committed."""
        assert self.listener is not None
        self._let_go(partitions, self.listener.revoked)

    def lose(self, *partitions: TopicPartition) -> None:
        """Take partitions away that another member may own already."""
        assert self.listener is not None
        self._let_go(partitions, self.listener.lost)

    def leave(self, *, lost: bool) -> None:
        """Take all partitions away; the member joins again at the next fetch."""
        (self.lose if lost else self.revoke)(*sorted(self.at))
        self._joins = True

    def membership(self) -> int:
        """Return the generation in which this member joined."""
        return self.generation

    def confirm_assignment(self, partitions: Sequence[TopicPartition]) -> None:
        """Do nothing: each generation calls the listener."""

    def committed(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        """Return the committed positions."""
        return [self.kafka.positions.get(p, Position(*p, None)) for p in partitions]

    def decided(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        """Return the committed positions."""
        return self.committed(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver messages of these partitions from now on."""
        self._require_assigned("resume", partitions)
        self.paused.difference_update(partitions)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver no more messages of these partitions."""
        self.paused.update(partitions)

    def seek(self, positions: Sequence[Position]) -> None:
        """Resume at these positions."""
        self._require_assigned("seek", [p.topic_partition for p in positions])
        self.at |= {p.topic_partition: p.offset or 0 for p in positions}

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return 0 for each."""
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of each partition."""
        return {partition: self.kafka.logs[partition].last_stable for partition in partitions}

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition, which includes open transactions."""
        return {partition: self.kafka.logs[partition].end for partition in partitions}

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Return every partition of the topics."""
        return [partition for topic in topics for partition in self.kafka.partitions_of(topic)]

    def lag(self, positions: Mapping[TopicPartition, int]) -> int:
        """Return the number of offsets after the positions."""
        return sum(self.kafka.logs[p].end - offset for p, offset in positions.items())

    def close(self, *, leave: bool) -> None:
        """Do nothing: the next member that joins owns all partitions."""

    def _let_go(
        self,
        partitions: Sequence[TopicPartition],
        announce: Callable[[list[TopicPartition]], None],
    ) -> None:
        try:
            announce(list(partitions))
        finally:
            for partition in partitions:
                del self.at[partition]

    def _require_assigned(self, call: str, partitions: Sequence[TopicPartition]) -> None:
        if missing := [p for p in partitions if p not in self.at]:
            raise self.kafka.misused(f"{call} of {missing}, which are not assigned")


class MemoryStartPositions:
    """Starts every partition at its beginning; see `ProgressLedger`."""

    def starting_positions(self, committed: Sequence[Position], log: Any) -> list[Position]:
        """Start every partition without a committed offset at its beginning."""
        return [p if p.offset is not None else Position(p.topic, p.partition, 0) for p in committed]

    def marker(self, sub_topology: str, partition: TopicPartition) -> Output | None:
        """Return None: no progress is recorded."""
        return None

    def starts_at_end(self, partition: TopicPartition) -> bool:
        """Return False: every partition starts at its beginning."""
        return False

    def confirm_members(self) -> None:
        """Do nothing: all members are workers."""

    def confirm_start(self) -> None:
        """Do nothing: no reset runs."""


class MemoryOwnership:
    """The ownership topic; see `OwnershipLog`."""

    topic = "memory-ownership"

    def __init__(self) -> None:
        self._stored: dict[bytes, tuple[int, bytes]] = {}
        self._next_offset = 0

    def write(self, values: Mapping[bytes, bytes | None]) -> None:
        """Write records; None removes one."""
        for key, value in values.items():
            if value is None:
                self._stored.pop(key, None)
            else:
                self._stored[key] = (self._next_offset, value)
            self._next_offset += 1

    def read(self) -> Mapping[bytes, tuple[int, bytes]]:
        """Return the records that are not removed."""
        return dict(self._stored)


class MemoryChangelogs:
    """Reads changelogs; see `Changelogs`.

    Args:
        records_per_read: the most records of a partition that one read returns.
        read_seconds: the time that passes with each read.
    """

    def __init__(
        self, kafka: MemoryKafka, records_per_read: int = 1_000_000, read_seconds: float = 0.0
    ) -> None:
        self._kafka = kafka
        self._records_per_read = records_per_read
        self._read_seconds = read_seconds

    def bounds(self, partitions: Sequence[TopicPartition]) -> Bounds:
        """Return the beginning and the last stable offset of each partition."""
        return {partition: (0, self._kafka.logs[partition].last_stable) for partition in partitions}

    def written_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermark of each partition."""
        return {partition: self._kafka.logs[partition].end for partition in partitions}

    def open(self, ranges: Bounds) -> MemoryReading:
        """Start to read ranges."""
        return MemoryReading(self._kafka, ranges, self._records_per_read, self._read_seconds)


class MemoryReading:
    """Reads ranges of changelogs; see `ChangelogReading`."""

    def __init__(
        self, kafka: MemoryKafka, ranges: Bounds, records_per_read: int, read_seconds: float
    ) -> None:
        self._kafka = kafka
        self._limit = records_per_read
        self._read_seconds = read_seconds
        self._ends = {partition: end for partition, (_, end) in ranges.items()}
        self._read_to = {partition: start for partition, (start, _) in ranges.items()}

    def read(self, seconds: float) -> Mapping[TopicPartition, Sequence[Message]]:
        """Return the next messages."""
        self._kafka.now += self._read_seconds
        found: dict[TopicPartition, Sequence[Message]] = {}
        for partition, end in self._ends.items():
            log, at = self._kafka.logs[partition], self._read_to[partition]
            messages = [m for m in log.read(at, self._limit) if m.offset() < end]
            if messages:
                found[partition] = messages
                self._read_to[partition] = messages[-1].offset() + 1
            else:
                self._read_to[partition] = max(at, min(end, log.last_stable))
        return found

    def read_to(self, partition: TopicPartition) -> int:
        """Return the next offset."""
        return self._read_to[partition]

    def close(self) -> None:
        """Do nothing: no resource is held."""
