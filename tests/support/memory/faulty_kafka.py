"""The in-memory Kafka with faults: each call of each port fails as a plan or a script says.

`eosframework.testing.memory_kafka` is the model; this module adds faults and nothing else:
commits whose outcome is lost or comes late, producers that are suspect, rounds that last, and other
workers that take over in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from eosframework.engine.stores.state_ports import Bounds, Changelogs, StoreIdentity
from eosframework.errors import TaskFenced, TransactionError
from eosframework.records import Position, TopicPartition
from eosframework.testing.memory_kafka import (
    MemoryChangelogs,
    MemoryInput,
    MemoryKafka,
    MemoryOutput,
    MemoryOutputs,
    MemoryStartPositions,
)
from eosframework.testing.stateless_driver import Sent
from eosframework.testing.topology_test_driver import MachineState
from eosframework.transactions.ports import (
    Commit,
    Committed,
    Fetched,
    InputLog,
    Output,
    TransactionalOutput,
)
from tests.support.memory.fault_plan import KILL, KINDS, CommitFault, Faults, Killed

FETCH_SECONDS = 0.03
EMPTY_SECONDS = 0.005
READ_SECONDS = 0.001
READ_RECORDS = 3

FAR = 1_000_000
"""Offset reported for records of a transaction that is over: others may have followed them."""


class FaultSource(Protocol):
    """The faults of a worker's producers; see `Faults` for a plan, `Broker` for a script."""

    @property
    def killed(self) -> bool:
        """True once the worker's process is gone."""
        ...

    def check(self, call: str) -> None:
        """Raise the error of this call, if it fails."""
        ...

    def refused(self, output: Output, *, at_once: bool) -> Exception | None:
        """Return the error of a record that the brokers reject, by `produce` or later."""
        ...

    def error(self, kind: str, call: str) -> BaseException:
        """Return the error of a kind; `KILL` ends the worker's process."""
        ...

    def at_commit(self) -> CommitFault:
        """Return the course of this commit."""
        ...

    def at_end(self, call: str, transactional_id: str) -> TransactionError | None:
        """Return the error of an abort or a recycling."""
        ...


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed transaction."""

    transactional_id: str
    positions: Sequence[Position]
    sent: Sequence[Sent]


class FaultyKafka(MemoryKafka):
    """A cluster that finishes late commits and keeps the history of committed transactions."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        super().__init__(topics)
        self.history: list[Transaction] = []
        self.late: dict[str, tuple[int, Sequence[Position]]] = {}
        """Commits on their way, by transactional.id: epoch and positions."""
        self.has_one_fence = False
        """The group accepts offsets of an earlier generation: only the epoch fences."""

    def init(self, transactional_id: str) -> int:
        """Finish a commit that is on its way, then init the id."""
        if late := self.late.pop(transactional_id, None):
            epoch, positions = late
            self.commit(transactional_id, epoch, positions, None)
        return super().init(transactional_id)

    def commit(
        self, transactional_id: str, epoch: int, positions: Sequence[Position], membership: Any
    ) -> list[Sent]:
        sent = super().commit(transactional_id, epoch, positions, membership)
        self.history.append(Transaction(transactional_id, positions, sent))
        return sent

    def require_right(self, transactional_id: str, epoch: int, membership: Any) -> None:
        super().require_right(transactional_id, epoch, None if self.has_one_fence else membership)


class FaultyOutput(MemoryOutput):
    """A producer whose calls fail; deliveries are reported as late as Kafka may report them."""

    def __init__(
        self,
        kafka: FaultyKafka,
        transactional_id: str,
        faults: FaultSource,
        overtake: Callable[[], None] = lambda: None,
    ) -> None:
        self.faults = faults
        self._log = kafka
        self._overtake = overtake
        self._is_reported = True
        super().__init__(kafka, transactional_id)

    def begin(self) -> None:
        self._check("begin", "ready")
        super().begin()

    def _produce(self, *output: Any) -> None:
        self._check("produce", "open")
        refused = None
        if not self._was_accepted(output):
            refused = self.faults.refused(cast("Output", output), at_once=True)
        if refused:
            self._fail(refused)
        super()._produce(*output)

    def _was_accepted(self, output: tuple[Any, ...]) -> bool:
        """Tell whether a transaction has committed an equal record: no broker rejects it then.

        A worker that was overtaken produces what its successor has committed.
        """
        topic, value, key = output[:3]
        return any(
            (message.key(), message.value()) == (key, value)
            for partition in self._log.partitions_of(topic)
            for message in self._log.logs[partition].messages
        )

    def poll(self, timeout_seconds: float = 0) -> None:
        self._check("poll", "open")
        self.send()

    def deliver(self) -> None:
        self._check("deliver", "open")
        if error := self._refusal():
            self._fail(error)
        super().deliver()

    def init(self) -> None:
        """Take the id again, and report the deliveries of the transaction that is over."""
        over = self.open[self._reported :]
        super().init()
        for topic, value, key, number, report, _, time, _ in over:
            if report is not None:
                report(None, Sent(topic, value, key, time, FAR, None, number))

    def commit(self, commit: Commit) -> Committed:
        """Commit, or take the course of a fault."""
        self.require("commit", "open")
        fault = self.faults.at_commit()
        error = self._refusal()
        try:
            self.kafka.require_right(self.transactional_id, self._epoch, commit.membership)
        except TaskFenced as fence:
            error = fence
        if error is not None:
            self.state = "failed"
            return Committed(error)
        if fault.done:
            self._is_reported = fault.reported
            done = super().commit(commit)
            self._is_reported = True
            if done.error is not None:  # Another worker ran in between, and took the id.
                return done
        elif fault.late:
            self.send()
            self._log.late[self.transactional_id] = self._epoch, commit.positions
        if fault.kills:
            raise self.faults.error(KILL, "outputs.commit")
        self.state = "ready" if fault.error is None else "failed"
        if fault.overtaken:
            self._overtake()
        if fault.recycled:
            self.init()
        return Committed(fault.error, fault.recycled)

    def report(self) -> None:
        if self._is_reported:
            super().report()

    def require(self, call: str, state: str) -> None:
        if self.faults.killed:
            raise Killed
        super().require(call, state)

    def _check(self, call: str, state: str) -> None:
        self.require(call, state)
        try:
            self.faults.check(f"output.{call}")
        except TransactionError as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if isinstance(error, TransactionError):
            self.state = "failed"
        raise error

    def _refusal(self) -> TransactionError | None:
        found = (self.faults.refused(output, at_once=False) for output in self.open)
        return cast("TransactionError | None", next(filter(None, found), None))


class FaultyOutputs(MemoryOutputs):
    """Producers whose calls fail.

    Args:
        overtake: lets another worker run for a while.
    """

    def __init__(
        self,
        kafka: FaultyKafka,
        faults: FaultSource,
        overtake: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(kafka)
        self._log = kafka
        self._faults = faults
        self._overtake = overtake

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        self._faults.check("outputs.open")
        return super().open(transactional_ids)

    def new_output(self, transactional_id: str) -> FaultyOutput:
        return FaultyOutput(self._log, transactional_id, self._faults, self._overtake)

    def abort(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        return self._end("outputs.abort", outputs)

    def recycle(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        return self._end("outputs.recycle", outputs)

    def close(self, outputs: Sequence[TransactionalOutput]) -> None:
        self._faults.check("outputs.close")
        super().close(outputs)

    def _end(
        self, call: str, outputs: Sequence[TransactionalOutput]
    ) -> list[TransactionError | None]:
        answers: list[TransactionError | None] = []
        for output in cast("Sequence[FaultyOutput]", outputs):
            if output.state == "closed":
                raise self.kafka.misused(f"{output.transactional_id}: {call} while closed")
            answers.append(error := self._faults.at_end(call, output.transactional_id))
            if error is None:
                output.init()
            else:
                output.state = "failed"
        return answers


T = TypeVar("T")


def faulty(target: T, prefix: str, faults: Faults) -> T:
    """Return an object whose calls fail by their names in `KINDS`: `PREFIX.METHOD`."""
    return cast("T", _Faulty(target, prefix, faults))


class _Faulty:
    def __init__(self, target: Any, prefix: str, faults: Faults) -> None:
        self._target = target
        self._prefix = prefix
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        call = f"{self._prefix}.{name}"
        if call not in KINDS or call == "log.fetch":  # `_Input` fails in several ways there
            return found

        def checked(*args: Any, **options: Any) -> Any:
            self._faults.check(call)
            return found(*args, **options)

        setattr(self, name, checked)
        return checked


def faulty_input(kafka: FaultyKafka, faults: Faults, overtake: Callable[[], None]) -> InputLog:
    """Return a member of the group.

    Args:
        overtake: lets another worker run for a while.
    """
    return faulty(_Input(kafka, faults, overtake), "log", faults)


class _Input(MemoryInput):
    def __init__(self, kafka: FaultyKafka, faults: Faults, overtake: Callable[[], None]) -> None:
        super().__init__(kafka)
        self._faults = faults
        self._overtake = overtake

    def fetch(self, limit: int, timeout_seconds: float, gather_seconds: float = 0.0) -> Fetched:
        match self._faults.hit("log.fetch"):
            case None:
                pass
            case "revoke" | "lose" as kind:
                self.leave(lost=kind == "lose")
                return Fetched({}, {}, self.generation)
            case "overtake":
                self._overtake()
            case kind:
                raise self._faults.error(kind, "log.fetch")
        fetched = super().fetch(limit, timeout_seconds)
        passes = FETCH_SECONDS if fetched.messages else EMPTY_SECONDS - timeout_seconds
        self.kafka.now += max(passes, 0.0)
        return fetched


def faulty_start_positions(kafka: FaultyKafka, faults: Faults) -> MemoryStartPositions:
    """Return start positions that write markers into a topic `registry`."""
    return faulty(_StartPositions(kafka), "ledger", faults)


class _StartPositions(MemoryStartPositions):
    def __init__(self, kafka: FaultyKafka) -> None:
        self._kafka = kafka

    def marker(self, sub_topology: str, partition: TopicPartition) -> Output | None:
        if partition in self._kafka.positions:
            return None
        return ("registry", b"", str(partition).encode(), 0, None, None, 0, None)


def faulty_changelogs(kafka: FaultyKafka, faults: Faults) -> Changelogs:
    """Return changelogs that return a few records with each read."""
    return faulty(_Changelogs(kafka, faults), "changelogs", faults)


class _Changelogs(MemoryChangelogs):
    def __init__(self, kafka: FaultyKafka, faults: Faults) -> None:
        super().__init__(kafka, READ_RECORDS, READ_SECONDS)
        self._faults = faults

    def open(self, ranges: Bounds) -> Any:
        return faulty(super().open(ranges), "reading", self._faults)


@dataclass(slots=True)
class Machine:
    """The stores of one machine, with faults; see `StateBackend`."""

    faults: Faults
    kept: MachineState = field(default_factory=MachineState)
    opened: dict[str, Any] = field(default_factory=dict[str, Any])

    def open(self, task: str, partitions: int, stores: Sequence[StoreIdentity]) -> Any:
        self.faults.check("state.open")
        self.opened[task] = kept = self.kept.open(task, partitions, stores)
        return faulty(_Stores(kept, self.faults), "stores", self.faults)

    def lose(self) -> None:
        """Forget everything."""
        self.kept, self.opened = MachineState(), {}

    def close(self) -> None:
        return


class _Stores:
    def __init__(self, kept: Any, faults: Faults) -> None:
        self._kept = kept
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept, name)

    def store(self, name: str) -> Any:
        return faulty(_Store(self._kept.store(name), self._faults), "stores", self._faults)


class _Store:
    def __init__(self, kept: Any, faults: Faults) -> None:
        self.get = kept.get
        self._kept = kept
        self._faults = faults

    def scan(self, *args: Any, **options: Any) -> Iterator[tuple[bytes, bytes]]:
        for entry in self._kept.scan(*args, **options):
            self._faults.check("stores.next")
            yield entry
