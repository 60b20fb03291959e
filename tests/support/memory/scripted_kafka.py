"""The in-memory Kafka with a script: a test says which commits fail and when the group rebalances.

For the decisions of a worker; tests/faults proves on real brokers that they keep exactly-once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from eosframework.engine.worker.worker_plan import WorkerOptions
from eosframework.errors import TransactionError
from eosframework.records import Position, TopicPartition
from eosframework.testing import memory_kafka
from eosframework.testing.stateless_driver import Sent as SentMessage
from eosframework.transactions.ports import (
    Fetched,
    Message,
    Output,
    RebalanceListener,
    TransactionalOutput,
)
from tests.support.memory.fault_plan import CommitFault
from tests.support.memory.faulty_kafka import FaultyKafka, FaultyOutput, FaultyOutputs
from tests.unit.engine.messages import Sent

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
    """A message at an offset of a partition."""

    place: TopicPartition = P0

    def topic(self) -> str:
        return self.place.topic

    def partition(self) -> int:
        return self.place.partition


class Broker(FaultyKafka):
    """A cluster with the faults of its producers, and the calls of its ports in order.

    Attributes:
        commit_faults: for the next commits in turn the error, and whether they take effect.
        recycle_faults: for the next re-inits in turn the error.
        produce_fault: returns the error of `produce` of a record.
        deliver_fault: returns the error of a record that the brokers reject.
    """

    killed = False

    def __init__(self) -> None:
        super().__init__({})
        self.visible: list[Output] = []
        self.calls: list[str] = []
        self.commit_faults: list[tuple[TransactionError | None, bool]] = []
        self.recycle_faults: list[TransactionError] = []
        self.produce_fault: Callable[[Output], Exception | None] = lambda output: None
        self.deliver_fault: Callable[[Output], TransactionError | None] = lambda output: None

    @property
    def inputs(self) -> Mapping[TopicPartition, Sequence[Message]]:
        """The records of topic `in` by partition."""
        return {p: log.messages for p, log in self.logs.items() if p.topic == "in"}

    @property
    def values(self) -> list[Any]:
        """The committed values, in the order of their commits."""
        return [orjson.loads(output[1] or b"null") for output in self.visible]

    def fill(self, partition: int, *values: Any) -> None:
        """Append JSON values to a partition of topic `in`."""
        self.put(partition, *map(orjson.dumps, values))

    def put(self, partition: int, *data: bytes | None) -> None:
        """Append encoded values to a partition of topic `in`."""
        log = self.logs.setdefault(TopicPartition("in", partition), memory_kafka.MemoryPartition())
        for value in data:
            self.append(("in", value, b"k", partition, None, None, log.end, None))

    def init(self, transactional_id: str) -> int:
        self.calls.append(f"init {transactional_id}")
        return super().init(transactional_id)

    def commit(
        self, transactional_id: str, epoch: int, positions: Sequence[Position], membership: Any
    ) -> list[SentMessage]:
        sent = super().commit(transactional_id, epoch, positions, membership)
        self.visible += [
            (s.topic_, s.value_, s.key_, s.partition_, None, None, s.timestamp_, s.headers_)
            for s in sent
        ]
        return sent

    # --- faults: see `FaultSource` ---------------------------------------------------------

    def check(self, call: str) -> None:
        return

    def error(self, kind: str, call: str) -> BaseException:
        raise AssertionError(f"a script has no {kind} at {call}")

    def refused(self, output: Output, *, at_once: bool) -> Exception | None:
        return self.produce_fault(output) if at_once else self.deliver_fault(output)

    def at_commit(self) -> CommitFault:
        error, done = self.commit_faults.pop(0) if self.commit_faults else (None, True)
        return CommitFault(error, done=done)

    def at_end(self, call: str, transactional_id: str) -> TransactionError | None:
        if call == "outputs.abort":
            self.calls.append(f"abort {transactional_id}")
        if not self.recycle_faults:
            return None
        self.calls.append(f"init {transactional_id}")
        return self.recycle_faults.pop(0)


class MemoryLog(memory_kafka.MemoryInput):
    """A member of the group whose rebalances happen when the test says.

    Attributes:
        next: the rebalances of the next fetches, one each.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.broker = broker
        self.next: list[Callable[[], None]] = []

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self.listener = listener
        self.next.append(lambda: self.assign(*self.broker.inputs))

    def assign(self, *partitions: TopicPartition) -> None:
        super().assign(*partitions)
        self.broker.calls.append("assign")

    def fetch(self, limit: int, timeout_seconds: float, gather_seconds: float = 0) -> Fetched:
        if self.next:
            self.next.pop(0)()
        # Each partition may fill the limit, so that the content of a fetch is easy to state.
        return super().fetch(limit * max(len(self.at), 1), timeout_seconds, gather_seconds)

    def committed(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        self.broker.calls.append("committed")
        return super().committed(partitions)

    def close(self, *, leave: bool) -> None:
        self.broker.calls.append("leave" if leave else "close")


class MemoryOutput(FaultyOutput):
    """A producer with the faults of its broker."""

    def __init__(self, broker: Broker, transactional_id: str) -> None:
        super().__init__(broker, transactional_id, broker)


class MemoryOutputs(FaultyOutputs):
    """Producers with the faults of their broker."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, broker)
        self.broker = broker
        self.closed: list[str] = []

    def close(self, outputs: Sequence[TransactionalOutput]) -> None:
        super().close(outputs)
        self.closed += [output.transactional_id for output in outputs]

    def stop(self) -> None:
        self.broker.calls.append("stop")
