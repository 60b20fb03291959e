"""A task over stores in memory, whose commits succeed or are taken back as a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import CompiledPart, compile_part
from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.engine.task.open_state import ChangesBudget, OpenState
from eosframework.engine.task.producer_group import ProducerGroup
from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.worker.group_work import worker_policy
from eosframework.errors import RecordFailed, TransactionError
from eosframework.records import Position, TopicPartition
from eosframework.state import MemoryState
from eosframework.topology.dsl.builder import Stream, Topology
from eosframework.topology.dsl.streams import KeyedStream
from eosframework.topology.resolve.resolve import resolve
from eosframework.transactions.ports import Output
from eosframework.transactions.session.session_states import Event
from eosframework.transactions.session.transaction_session import TransactionSession
from eosframework.txnid import TransactionalId

INPUT = TopicPartition("in", 0)


@dataclass(frozen=True)
class Sent:
    """A record of the input: key, value and time."""

    key_: str | None
    number: Any
    time: int
    offset_: int = 0

    def topic(self) -> str:
        return "in"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.offset_

    def key(self) -> bytes | None:
        return None if self.key_ is None else self.key_.encode()

    def value(self) -> bytes | None:
        return None if self.number is None else orjson.dumps(self.number)

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time

    def headers(self) -> None:
        return None


@dataclass(frozen=True)
class Delivered:
    """The message of a delivery report."""

    offset_: int

    def offset(self) -> int:
        return self.offset_


class Transaction:
    """An output that keeps what was produced until its transaction ends."""

    transactional_id = "w:part:0"
    is_suspect = False

    def __init__(self) -> None:
        self.open: list[Output] = []
        self.committed: list[Output] = []
        self.offset = 0

    def begin(self) -> None:
        """Nothing is open."""
        assert not self.open

    def produce(self, *output: Any) -> None:
        """Keep a record, and report it as delivered."""
        self.open.append(output)
        self.offset += 1
        if output[4] is not None:
            output[4](None, Delivered(self.offset))

    def poll(self, timeout_seconds: float = 0) -> None:
        """Reports came at once."""

    def deliver(self) -> None:
        """Nothing is refused."""

    def explain(self, error: Exception) -> TransactionError:
        """Nothing fails."""
        raise error


class Bench:
    """One task of a topology whose input is `in` and whose output is `out`."""

    def __init__(
        self,
        declare: Callable[[KeyedStream], Stream],
        *,
        value: Any = dict,
        on_error: Any = None,
        receipts: bool = False,
        budget: ChangesBudget | None = None,
    ) -> None:
        app = Topology("w")
        stream = app.stream("in", key=str, value=value, on_error=on_error)
        declare(stream.group_by_key()).to("out")
        (part,) = resolve(app.loaded()).sub_topologies
        self.compiled: CompiledPart = compile_part(part, CompileContext(receipts=receipts))
        names = [StoreIdentity(store.name, store.changelog, 1) for store in part.stores]
        self.kept = MemoryState().open("part-0", 1, names)
        self.output = Transaction()
        self._receipts = receipts
        self._budget = budget
        self.position = Position(*INPUT, 0, "")
        self.sent: list[Sent] = []
        self.start()

    def start(self) -> None:
        """Begin as a worker does that knows nothing but the stores and the committed position."""
        self.output.open.clear()
        self.state = OpenState(self.compiled, 0, self.kept)
        self.session = TransactionSession(self.output, worker_policy(30, 1), lambda: 0.0)
        self.task = Task(
            TransactionalId.make("w", "part", 0),
            self.compiled.sources,
            self.output,
            group=ProducerGroup(self.session, lambda: 0.0),
            markers={},
            transaction_timeout_seconds=30,
            clock=lambda: 0.0,
            receipts=self._receipts,
            emissions=self.compiled.emissions,
            stores=self.state,
            budget=self._budget,
        )
        self.task.start_at([self.position])
        self.task.enter(TaskState.RUNNING)

    def send(self, *records: tuple[str | None, Any, int]) -> None:
        """Append records to the input: key, value and time."""
        self.sent += [Sent(*record, len(self.sent) + i) for i, record in enumerate(records)]

    def run(self, count: int | None = None) -> None:
        """Run the input from the position on, or some records of it."""
        first = self.task.positions[INPUT]
        messages = self.sent[first:] if count is None else self.sent[first : first + count]
        if messages:
            self.task.add(INPUT, messages, "member")
            self.task.run(until=float("inf"))

    def commit(self) -> None:
        """Commit, and raise the failure of the task afterwards, as the worker does."""
        if not self.task.has_progress:
            self.raise_failure()
            return
        commit = self.task.commit()
        self.output.committed += self.output.open
        self.output.open.clear()
        self.session.move(Event.COMMITTING)
        self.session.committed(Event.COMMITTED)
        self.task.committed()
        self.position = commit.positions[0]
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise what the worker would end with."""
        if self.task.failure is not None:
            raise self.task.failure

    def crash(self) -> None:
        """Lose everything that was not committed, and start again."""
        self.start()

    def drop(self) -> None:
        """Take the open transaction back, and go on in the same process."""
        self.output.open.clear()
        self.session.abort_now()
        self.session.move(Event.TAKEN)
        self.session.resumed()
        self.task.drop()
        self.task.start_at([self.position])

    def feed(self, *records: tuple[str | None, Any, int]) -> list[Any]:
        """Run and commit records; return what went out, as `results` does."""
        before = len(self.output.committed)
        self.send(*records)
        self.run()
        self.commit()
        return self.results()[before_outputs(self.output.committed[:before]) :]

    def results(self) -> list[Any]:
        """Return what went to `out`: key, value, time."""
        return [shown(output) for output in self.output.committed if output[0] == "out"]

    def written(self, topic: str) -> list[Output]:
        """Return what was committed to a topic."""
        return [output for output in self.output.committed if output[0] == topic]

    def entries(self) -> int:
        """Return how many entries all stores have, apart from what they say of themselves."""
        names = [store.name for store in self.compiled.part.stores]
        return sum(1 for name in names for key, _ in self.kept.store(name).scan() if key != b"\xff")


def before_outputs(outputs: Sequence[Output]) -> int:
    """Return how many of these are results."""
    return sum(1 for output in outputs if output[0] == "out")


def shown(output: Output) -> tuple[str, Any, int]:
    """Return key, value and time of a result; a window as (start, end, value)."""
    assert output[1] is not None
    assert output[2] is not None
    value: Any = orjson.loads(output[1])
    match value:
        case {"start": start, "end": end, "value": result}:
            return output[2].decode(), (start, end, result), output[6]
        case _:
            return output[2].decode(), value, output[6]


def failed(bench: Bench) -> RecordFailed:
    """Run and commit what is in the input, and return the failure that this leads to."""
    try:
        bench.run()
        bench.commit()
    except RecordFailed as error:
        return error
    raise AssertionError("nothing failed")
