"""`operators`: what each operator adds to a record, above the loop that does nothing with it.

One task runs messages that are there already, over stores in memory, with a commit every 20,000
records; nothing is decoded, and what an operator gives is filtered out, so that its own cost is
left. Processor time of the thread; the broker that every benchmark has is not used.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.options import Options
from benchmarks.report import Report, Table
from benchmarks.session import Session
from eosframework import Stream, Topology, hopping, session, sliding, tumbling
from eosframework.engine.codegen.compiler import CompiledPart, compile_part
from eosframework.engine.operators.entries import LAYOUT
from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.engine.task.open_state import OpenState
from eosframework.engine.task.producer_group import ProducerGroup
from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.worker.group_work import worker_policy
from eosframework.records import Position, TopicPartition
from eosframework.state.memory import MemoryState
from eosframework.topology.resolve.resolve import resolve
from eosframework.transactions.session.session_states import Event
from eosframework.transactions.session.transaction_session import TransactionSession
from eosframework.txnid import TransactionalId

DEFAULT_RECORDS = 200_000
DEFAULT_ROUNDS = 5
BATCH_RECORDS = 2000
COMMIT_RECORDS = 20_000
KEYS = 1000
APART_MS = 10


class Read(tuple[str, bytes, bytes, int, int]):
    """A message: topic, key, value, time, offset."""

    __slots__ = ()

    def topic(self) -> str:
        return self[0]

    def partition(self) -> int:
        return 0

    def key(self) -> bytes:
        return self[1]

    def value(self) -> bytes:
        return self[2]

    def timestamp(self) -> tuple[int, int]:
        return 1, self[3]

    def offset(self) -> int:
        return self[4]

    def headers(self) -> None:
        return None


@dataclass(frozen=True)
class Delivered:
    """The content of a delivery report."""

    offset_: int

    def offset(self) -> int:
        return self.offset_


class Nowhere:
    """An output that counts, and reports everything as delivered."""

    transactional_id = "operators:part:0"
    is_suspect = False

    def __init__(self) -> None:
        self.count = 0

    def begin(self) -> None:
        """Nothing is needed."""

    def produce(self, *output: Any) -> None:
        self.count += 1
        if output[4] is not None:
            output[4](None, Delivered(self.count))

    def poll(self, timeout_seconds: float = 0) -> None:
        """Reports came at once."""

    def deliver(self) -> None:
        """Nothing is refused."""

    def explain(self, error: Exception) -> Any:
        raise error


def same(value: Any) -> Any:
    return value


def yes(value: Any) -> bool:
    return True


def no(value: Any) -> bool:
    return False


def alone(value: Any) -> list[Any]:
    return [value]


def key_of(record: Any) -> bytes:
    return record.key


def one(value: Any) -> int:
    return 1


def later(so_far: Any, value: Any) -> Any:
    return value


def nothing() -> int:
    return 0


def add(so_far: int, value: Any) -> int:
    return so_far + 1


def both(mine: Any, other: Any) -> Any:
    return mine


def counted(record: Any, context: Any) -> list[Any]:
    store = context.store("seen")
    store.put(record.key, store.get(record.key, 0) + 1)
    return [record]


def folded(stream: Stream) -> Any:
    return stream.group_by_key()


def with_table(stream: Stream, app: Topology, **options: Any) -> Stream:
    return stream.join(app.table("rows", key="bytes", value="bytes", **options), both)


OPERATORS: dict[str, Callable[[Stream, Topology], Stream]] = {
    "filter": lambda s, app: s.filter(yes),
    "map_values": lambda s, app: s.map_values(same),
    "flat_map_values": lambda s, app: s.flat_map_values(alone),
    "peek": lambda s, app: s.peek(same),
    "select_key": lambda s, app: s.select_key(key_of),
    "map": lambda s, app: s.map(same),
    "flat_map": lambda s, app: s.flat_map(alone),
    "process": lambda s, app: s.process(alone),
    "process with a store": lambda s, app: s.process(counted, stores={"seen": "json"}),
    "split in two": lambda s, app: s.split(yes)[0],
    "count": lambda s, app: folded(s).count(),
    "count, emit commit": lambda s, app: folded(s).count(emit="commit"),
    "count, ttl": lambda s, app: folded(s).count(ttl="1d"),
    "sum": lambda s, app: folded(s).sum(one),
    "min": lambda s, app: folded(s).min(one),
    "reduce": lambda s, app: folded(s).reduce(later, value="bytes"),
    "aggregate": lambda s, app: folded(s).aggregate(nothing, add),
    "deduplicate within 1 s": lambda s, app: folded(s).deduplicate("1s"),
    "count, tumbling 1 m": lambda s, app: folded(s).window(tumbling("1m")).count(),
    "the same, emit close": lambda s, app: folded(s).window(tumbling("1m")).count(emit="close"),
    "count, hopping 1 m every 15 s": lambda s, app: (
        folded(s).window(hopping("1m", every="15s")).count()
    ),
    "count, sliding 30 s": lambda s, app: folded(s).window(sliding("30s")).count(),
    "count, session 5 s": lambda s, app: folded(s).window(session("5s")).count(),
    "join with a table": with_table,
    "join with a table that knows its past": lambda s, app: with_table(s, app, history="1h"),
    "join with a stream within 5 s": lambda s, app: s.join_within(
        app.stream("others", key="bytes", value="bytes"), both, within="5s"
    ),
}
"""Each operator by name. Joins take a record of the other side for each record."""


def run(_: Session, options: Options, report: Report) -> None:
    """Run every operator in every round; the medians count."""
    records = options.records or DEFAULT_RECORDS
    works = {name: work_of(operator, records) for name, operator in OPERATORS.items()}
    empty = work_of(lambda s, app: s, records)
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    costs: dict[str, list[float]] = {name: [] for name in works}
    loops: list[float] = []
    for _round in range(options.rounds or DEFAULT_ROUNDS):
        loops.append(empty())
        for name, work in works.items():
            costs[name].append(work())
    loop = statistics.median(loops)
    medians = {name: statistics.median(found) - loop for name, found in costs.items()}
    report.add(
        "operators",
        Table(
            f"Operators over {records:,} records of {KEYS:,} keys; the loop itself takes "
            f"{loop:.0f} ns",
            ("operator", "ns a record above the loop", "lowest", "highest"),
            [
                (
                    name,
                    f"{median:.0f}",
                    f"{min(costs[name]) - loop:.0f}",
                    f"{max(costs[name]) - loop:.0f}",
                )
                for name, median in medians.items()
            ],
        ),
        {"loop_ns": loops, "operators_ns": costs},
    )


def work_of(operator: Callable[[Stream, Topology], Stream], records: int) -> Callable[[], float]:
    """Return what runs an operator once, from empty stores on, and gives nanoseconds a record."""
    app = Topology("operators")
    stream = app.stream("in", key="bytes", value="bytes")
    operator(stream, app).filter(no).to("out")
    (part,) = resolve(app.loaded()).sub_topologies
    compiled = compile_part(part)
    batches = _batches(sorted(compiled.sources), records)
    return lambda: nanoseconds_of(compiled, Nowhere(), batches) / records


def nanoseconds_of(
    compiled: CompiledPart, output: Nowhere, batches: Sequence[tuple[str, list[Read]]]
) -> int:
    """Return the processor time in which a new task, with empty stores, runs all batches.

    Args:
        batches: with their topics.
    """
    names = [StoreIdentity(s.name, s.changelog, LAYOUT) for s in compiled.part.stores]
    stores = MemoryState().open("part-0", 1, names)
    transactions = TransactionSession(output, worker_policy(3600, 1), time.monotonic)
    task = Task(
        TransactionalId.make("operators", "part", 0),
        compiled.sources,
        output,
        group=ProducerGroup(transactions, time.monotonic),
        markers={},
        transaction_timeout_seconds=3600,
        clock=time.monotonic,
        emissions=compiled.emissions,
        stores=OpenState(compiled, 0, stores) if compiled.keyed else None,
    )
    task.start_at([Position(topic, 0, 0, "") for topic in compiled.sources])
    task.enter(TaskState.RUNNING)
    began = time.thread_time_ns()
    open_records = 0
    for topic, batch in batches:
        task.add(TopicPartition(topic, 0), batch, None)
        task.run(float("inf"))
        open_records += len(batch)
        if open_records >= COMMIT_RECORDS:
            task.commit()
            transactions.move(Event.COMMITTING)
            transactions.committed(Event.COMMITTED)
            task.committed()
            open_records = 0
    return time.thread_time_ns() - began


def _batches(topics: Sequence[str], records: int) -> list[tuple[str, list[Read]]]:
    """Return batches of each source in turn: the records of `in`, and as many of another."""
    value = b"x" * 100
    batches: list[tuple[str, list[Read]]] = []
    for first in range(0, records, BATCH_RECORDS):
        numbers = range(first, min(first + BATCH_RECORDS, records))
        batches += [
            (
                topic,
                [Read((topic, b"%d" % (n * 7919 % KEYS), value, n * APART_MS, n)) for n in numbers],
            )
            for topic in reversed(topics)
        ]
    return batches
