"""The ports in memory, with faults that a test chooses: for the worker's decisions only.

Nothing about exactly-once is claimed from these; tests/faults does that on real brokers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from eosframework.errors import TransactionError
from eosframework.processing.ports import (
    Commit,
    Committed,
    Fetched,
    Message,
    Output,
    RebalanceListener,
    TransactionalOutput,
)
from eosframework.processing.worker_plan import WorkerOptions
from eosframework.records import Position, TopicPartition
from eosframework.testing import memory_kafka as testing
from tests.unit.processing.messages import Sent

OPTIONS = WorkerOptions(
    commit_interval_seconds=0.1,
    transaction_timeout_seconds=30,
    heartbeat_interval_seconds=1,
    takeover_deadline_seconds=5,
    batch_records=10,
    leave_on_stop=True,
    stop_deadline_seconds=20,
)
P0 = TopicPartition("in", 0)


@dataclass(frozen=True)
class At(Sent):
    """A message at one place of one partition."""

    place: TopicPartition = P0

    def topic(self) -> str:
        return self.place.topic

    def partition(self) -> int:
        return self.place.partition


@dataclass
class Broker:
    """Topics, committed offsets and what has been asked, in order."""

    inputs: dict[TopicPartition, list[Message]] = field(default_factory=dict)
    visible: list[Output] = field(default_factory=list)
    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    commit_faults: list[tuple[TransactionError | None, bool]] = field(default_factory=list)
    """For the next commits in turn: the error, and whether the broker committed all the same."""
    recycle_faults: list[TransactionError] = field(default_factory=list)
    produce_fault: Callable[[Output], Exception | None] = lambda output: None
    deliver_fault: Callable[[Output], TransactionError | None] = lambda output: None
    """The outputs that are rejected by the time of delivery."""

    def fill(self, partition: int, *values: Any) -> None:
        place = TopicPartition("in", partition)
        log = self.inputs.setdefault(place, [])
        for value in values:
            log.append(At(orjson.dumps(value), len(log), time=len(log), place=place))

    @property
    def values(self) -> list[Any]:
        return [orjson.loads(output[1] or b"null") for output in self.visible]


class MemoryLog:
    """An InputLog whose rebalances happen when the test says."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.listener: RebalanceListener | None = None
        self.at: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.next: list[Callable[[], None]] = []

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self.listener = listener
        self.next.append(lambda: self.assign(*self.broker.inputs))

    def assign(self, *partitions: TopicPartition) -> None:
        assert self.listener is not None
        for position in self.listener.assigned(list(partitions)):
            self.at[position.topic_partition] = position.offset or 0
        self.paused.update(partitions)
        self.broker.calls.append("assign")

    def revoke(self, *partitions: TopicPartition) -> None:
        assert self.listener is not None
        self.listener.revoked(list(partitions))
        for partition in partitions:
            del self.at[partition]

    def lose(self, *partitions: TopicPartition) -> None:
        assert self.listener is not None
        self.listener.lost(list(partitions))
        for partition in partitions:
            del self.at[partition]

    def fetch(self, limit: int, timeout_seconds: float, gather_seconds: float = 0) -> Fetched:
        if self.next:
            self.next.pop(0)()
        messages: dict[TopicPartition, list[Message]] = {}
        ends: dict[TopicPartition, int] = {}
        for partition, offset in self.at.items():
            if partition not in self.paused:
                log = self.broker.inputs[partition]
                taken = log[offset : offset + limit]
                if taken:
                    messages[partition] = taken
                    self.at[partition] = offset + len(taken)
                else:
                    ends[partition] = len(log)
        return Fetched(messages, ends, "member")

    def membership(self) -> str:
        return "member"

    def committed(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        self.broker.calls.append("committed")
        return [self.broker.positions.get(p, Position(*p, None)) for p in partitions]

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused.difference_update(partitions)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused.update(partitions)

    def seek(self, positions: Sequence[Position]) -> None:
        for position in positions:
            self.at[position.topic_partition] = position.offset or 0

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {p: len(self.broker.inputs[p]) for p in partitions}

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        return list(self.broker.inputs)

    def lag(self, positions: Mapping[TopicPartition, int]) -> int:
        return 0

    def close(self, *, leave: bool) -> None:
        self.broker.calls.append("leave" if leave else "close")


class MemoryOutput:
    """A TransactionalOutput."""

    def __init__(self, broker: Broker, transactional_id: str) -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        self.open: list[Output] | None = None

    @property
    def produce(self) -> Callable[..., None]:
        def produce(*fields: Any) -> None:
            output = cast("Output", fields)
            assert self.open is not None, "produced outside a transaction"
            if fault := self.broker.produce_fault(output):
                raise fault
            self.open.append(output)

        return produce

    def explain(self, error: Exception) -> TransactionError:
        assert isinstance(error, TransactionError)
        return error

    def begin(self) -> None:
        assert self.open is None
        self.open = []

    def poll(self, timeout_seconds: float = 0) -> None:
        return None

    def deliver(self) -> None:
        assert self.open is not None
        if refused := next(filter(None, map(self.broker.deliver_fault, self.open)), None):
            raise refused


class MemoryOutputs:
    """TransactionalOutputs with the faults of the broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.closed: list[str] = []

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        self.broker.calls += [f"init {id_}" for id_ in transactional_ids]
        return [MemoryOutput(self.broker, id_) for id_ in transactional_ids]

    def commit(
        self, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> list[Committed]:
        results: list[Committed] = []
        for commit in commits:
            error, done = (None, True)
            output = commit.output
            assert isinstance(output, MemoryOutput)
            assert output.open is not None
            if self.broker.commit_faults:
                error, done = self.broker.commit_faults.pop(0)
            elif refused := next(filter(None, map(self.broker.deliver_fault, output.open)), None):
                error, done = refused, False
            if done:
                self.broker.visible += output.open
                for position in commit.positions:
                    self.broker.positions[position.topic_partition] = position
            if error is None:
                output.open = None
            results.append(Committed(error))
        return results

    def abort(self, outputs: Sequence[Any]) -> list[TransactionError | None]:
        self.broker.calls += [f"abort {output.transactional_id}" for output in outputs]
        return self.recycle(outputs)

    def recycle(self, outputs: Sequence[Any]) -> list[TransactionError | None]:
        self.broker.calls += [f"init {output.transactional_id}" for output in outputs]
        if self.broker.recycle_faults:
            return [self.broker.recycle_faults.pop(0) for _ in outputs]
        for output in outputs:
            output.open = None
        return [None] * len(outputs)

    def close(self, outputs: Sequence[Any]) -> None:
        self.closed += [output.transactional_id for output in outputs]

    def stop(self) -> None:
        self.broker.calls.append("stop")


class MemoryStartPositions(testing.MemoryStartPositions):
    """A ProgressLedger that starts everything at 0, with former ids that a test chooses."""

    def __init__(self, former: Mapping[TopicPartition, list[str]] | None = None) -> None:
        self.former = defaultdict(list, former or {})

    def former_ids(self, by_task: Mapping[Any, Sequence[TopicPartition]]) -> list[str]:
        return sorted({id_ for ps in by_task.values() for p in ps for id_ in self.former[p]})
