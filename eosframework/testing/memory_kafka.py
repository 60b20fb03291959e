"""An in-memory Kafka: topics, transactions and a consumer group for the worker's ports.

The worker's own code runs over it, so it tests the user's functions and the topology. It has no
network, no second worker and no failing broker: it proves nothing about exactly-once, which needs
real brokers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from eosframework import failpoints
from eosframework.errors import TaskFenced, TransactionError
from eosframework.processing.ports import (
    Commit,
    Committed,
    Fetched,
    Message,
    Output,
    RebalanceListener,
    TransactionalOutput,
)
from eosframework.processing.stores.state_ports import Bounds
from eosframework.records import Position, TopicPartition
from eosframework.testing.stateless_driver import Sent


@dataclass(slots=True)
class MemoryPartition:
    """The log of a partition; a commit leaves a gap of one offset, as a marker does."""

    messages: list[Sent] = field(default_factory=list[Sent])
    end: int = 0

    def read(self, offset: int, limit: int) -> list[Message]:
        """Return at most `limit` messages, starting at an offset."""
        found: list[Message] = []
        for message in reversed(self.messages):
            if message.offset_ < offset:
                break
            found.append(message)
        return found[::-1][:limit]


class MemoryKafka:
    """The cluster's state, which survives a worker.

    Args:
        topics: number of partitions by topic.
    """

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.logs = {
            TopicPartition(topic, number): MemoryPartition()
            for topic, count in topics.items()
            for number in range(count)
        }
        self.positions: dict[TopicPartition, Position] = {}
        self.owners: dict[str, MemoryOutput] = {}
        self.now = 0.0

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

    def append(self, output: Output) -> Sent:
        """Write one record, visible at once."""
        topic, value, key, number, _, _, timestamp, headers = output
        wanted = TopicPartition(topic, number)
        partition = wanted if number >= 0 else self.partition_for(topic, key)
        log = self.logs.setdefault(partition, MemoryPartition())
        sent = Sent(
            topic, value, key, timestamp, log.end, list(headers or ()) or None, partition.partition
        )
        log.messages.append(sent)
        log.end += 1
        return sent


class MemoryOutput:
    """A transactional producer with one transactional.id."""

    def __init__(self, kafka: MemoryKafka, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._kafka = kafka
        self._open: list[Output] = []

    @property
    def produce(self) -> Callable[..., None]:
        """`produce(*output)`."""
        return lambda *output: self._open.append(cast("Output", output))

    def explain(self, error: Exception) -> TransactionError:
        """Raise the error: nothing here fails on purpose."""
        raise error

    def begin(self) -> None:
        """Begin a transaction."""
        self._open = []

    def poll(self, timeout_seconds: float = 0) -> None:
        """Do nothing: deliveries are reported at the commit."""

    def deliver(self) -> None:
        """Do nothing: no record is refused."""

    def take_over(self) -> None:
        """Take the id and drop the open transaction of the last owner."""
        self._kafka.owners[self.transactional_id] = self
        self._open = []

    def commit(self, commit: Commit) -> TransactionError | None:
        """Make everything visible, or return the error that another owner has the id."""
        failpoints.hit("transaction.after_send_offsets")
        failpoints.hit("transaction.before_commit")
        if self._kafka.owners.get(self.transactional_id) is not self:
            return TaskFenced(f"transactional.id {self.transactional_id} was taken by another task")
        touched: set[TopicPartition] = set()
        for output in self._open:
            sent = self._kafka.append(output)
            touched.add(TopicPartition(sent.topic_, sent.partition_))
            if output[4] is not None:
                output[4](None, sent)
        for partition in touched:
            self._kafka.logs[partition].end += 1
        self._kafka.positions |= {p.topic_partition: p for p in commit.positions}
        self._open = []
        failpoints.hit("transaction.after_commit")
        return None


class MemoryOutputs:
    """Opens and commits outputs; see `TransactionalOutputs`."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self._kafka = kafka

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        """Take over every id."""
        outputs = [MemoryOutput(self._kafka, name) for name in transactional_ids]
        for output in outputs:
            output.take_over()
        return list(outputs)

    def commit(
        self, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> list[Committed]:
        """Commit one after the other."""
        return [Committed(cast("MemoryOutput", each.output).commit(each)) for each in commits]

    def abort(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        """Drop open transactions."""
        return self.recycle(outputs)

    def recycle(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        """Take over the ids anew."""
        for output in outputs:
            cast("MemoryOutput", output).take_over()
        return [None] * len(outputs)

    def close(self, outputs: Sequence[TransactionalOutput]) -> None:
        """Do nothing: no resource is held."""

    def stop(self) -> None:
        """Do nothing: no thread runs."""


class MemoryInput:
    """A consumer group with one member, which owns all partitions; see `InputLog`."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self._kafka = kafka
        self._listener: RebalanceListener | None = None
        self._wanted: list[TopicPartition] = []
        self._at: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join; the assignment comes with the first fetch."""
        self._listener, self._wanted = listener, self.partitions(topics)

    def fetch(self, limit: int, timeout_seconds: float, gather_seconds: float = 0.0) -> Fetched:
        """Return the available messages; if there are none, the timeout passes at once."""
        if self._wanted and self._listener is not None:
            partitions, self._wanted = self._wanted, []
            self._paused.update(partitions)
            self.seek(self._listener.assigned(partitions))
        messages: dict[TopicPartition, list[Message]] = {}
        ends: dict[TopicPartition, int] = {}
        for partition in self._at.keys() - self._paused:
            log = self._kafka.logs[partition]
            if found := log.read(self._at[partition], limit):
                messages[partition] = found
                self._at[partition] = found[-1].offset() + 1
            else:
                self._at[partition] = ends[partition] = log.end
        if not messages:
            self._kafka.now += timeout_seconds
        return Fetched(messages, ends, "member")

    def membership(self) -> str:
        """Return the only membership."""
        return "member"

    def committed(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        """Return the committed positions."""
        return [self._kafka.positions.get(p, Position(*p, None)) for p in partitions]

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver messages of these partitions from now on."""
        self._paused.difference_update(partitions)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver no more messages of these partitions."""
        self._paused.update(partitions)

    def seek(self, positions: Sequence[Position]) -> None:
        """Continue at these positions."""
        self._at |= {p.topic_partition: p.offset or 0 for p in positions}

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return 0 for each."""
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition."""
        return {partition: self._kafka.logs[partition].end for partition in partitions}

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Return every partition of the topics."""
        return [partition for topic in topics for partition in self._kafka.partitions_of(topic)]

    def lag(self, positions: Mapping[TopicPartition, int]) -> int:
        """Return the number of offsets after the positions."""
        return sum(self._kafka.logs[p].end - offset for p, offset in positions.items())

    def close(self, *, leave: bool) -> None:
        """Do nothing: the group has no other member."""


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

    def former_ids(self, by_task: Any) -> list[str]:
        """Return no ids."""
        return []

    def confirm_ids(self, by_task: Any) -> None:
        """Do nothing: all ids are valid."""

    def confirm_start(self) -> None:
        """Do nothing: no reset runs."""


class MemoryChangelogs:
    """Reads changelogs; see `Changelogs`."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self._kafka = kafka

    def bounds(self, partitions: Sequence[TopicPartition]) -> Bounds:
        """Return the beginning and end of each partition."""
        return {partition: (0, self._kafka.logs[partition].end) for partition in partitions}

    def written_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end of each partition: no transaction is ever open."""
        return {partition: self._kafka.logs[partition].end for partition in partitions}

    def open(self, ranges: Bounds) -> _MemoryReading:
        """Start to read ranges."""
        return _MemoryReading(self._kafka, ranges)


class _MemoryReading:
    """Returns the content of each range at once; see `ChangelogReading`."""

    def __init__(self, kafka: MemoryKafka, ranges: Bounds) -> None:
        self._kafka = kafka
        self._ends = {partition: end for partition, (_, end) in ranges.items()}
        self._read_to = {partition: start for partition, (start, _) in ranges.items()}

    def read(self, seconds: float) -> Mapping[TopicPartition, Sequence[Message]]:
        """Return all messages that are left."""
        found: dict[TopicPartition, Sequence[Message]] = {}
        for partition, end in self._ends.items():
            start, until = self._read_to[partition], min(end, self._kafka.logs[partition].end)
            if start < until:
                messages = self._kafka.logs[partition].read(start, until)
                found[partition] = [message for message in messages if message.offset() < until]
                self._read_to[partition] = until
        return found

    def read_to(self, partition: TopicPartition) -> int:
        """Return the next offset."""
        return self._read_to[partition]

    def close(self) -> None:
        """Do nothing: no resource is held."""
