"""An attempt over the ports in memory, with faults that a test chooses: for its decisions only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from eosframework.config import BackfillSettings, Settings
from eosframework.engine.codegen.compiler import compile_part
from eosframework.records import TopicPartition
from eosframework.spark.executor.attempt_context import AttemptContext, Run
from eosframework.spark.executor.functions import Attempt
from eosframework.spark.job.job_entry import TaskProgress, task_key
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.resolve.resolve import resolve
from eosframework.txnid import TransactionalId
from tests.support.memory.journal import MemoryJournal
from tests.support.memory.scripted_kafka import At, Broker, MemoryOutputs

P0 = TopicPartition("in", 0)
REGISTRY = "app-control"
PART = "numbers"
KEY = task_key("job", PART, 0)


@dataclass
class Clock:
    """Time that passes when somebody waits, with what happens at certain moments."""

    now: float = 0.0
    events: dict[float, Callable[[], None]] = field(default_factory=dict)
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        for moment in sorted(at for at in self.events if at <= self.now):
            self.events.pop(moment)()


def topology(
    function: Callable[[Any], Any] = lambda value: value, on_error: Any = "fail"
) -> Topology:
    app = Topology("app")
    numbers = app.stream("in", key=bytes, value=dict, name=PART)
    numbers.on_error(on_error).map_values(function).to("out", value=dict)
    return app


class World:
    """What outlasts an attempt."""

    def __init__(self, app: Topology | None = None, end: int = 100, **settings: Any) -> None:
        self.broker = Broker()
        self.broker.fill(0, *({"n": n} for n in range(end)))
        self.journal = MemoryJournal(self.broker, REGISTRY)
        self.clock = Clock()
        self.end = end
        chosen = {"commit_interval_seconds": 5, "stall_seconds": 20, "chunk_records": 10}
        self.settings = Settings(backfill=BackfillSettings(**{**chosen, **settings}))
        self.compiled = compile_part(resolve((app or topology()).loaded()).sub_topologies[0])
        self.unread = False

    def context(self, **changes: Any) -> AttemptContext:
        context = AttemptContext(
            identity=TransactionalId.backfill("app", f"job.{PART}", 0),
            job="job",
            compiled=self.compiled,
            settings=self.settings,
            starts={P0: 0},
            ends={P0: self.end},
            own_topics=frozenset(),
            outputs=MemoryOutputs(self.broker),
            journal=self.journal,
            holds_records=lambda ranges: self.unread,
        )
        return replace(context, **changes)

    def rows(self, first: int = 0, last: int | None = None, size: int = 5) -> list[Run]:
        messages = self.broker.inputs[P0][first : self.end if last is None else last]
        return [(P0, messages[at : at + size]) for at in range(0, len(messages), size)]

    def run(self, number: int = 0, rows: list[Run] | None = None, **changes: Any) -> TaskProgress:
        attempt = Attempt(self.context(**changes), number, clock=self.clock, sleep=self.clock.sleep)
        return attempt.run(lambda _: iter(self.rows() if rows is None else rows))

    def numbers(self, topic: str = "out") -> list[int]:
        """What is visible in an output."""
        return [orjson.loads(o[1] or b"")["n"] for o in self.broker.visible if o[0] == topic]

    def write(self, **changes: Any) -> None:
        """Commit progress as another attempt would."""
        self.journal.commit(KEY, progress(**changes).to_entry())

    def hang(self, **changes: Any) -> None:
        """Write progress as another attempt would that hangs in its commit."""
        self.journal.undecided.append((KEY, progress(**changes).to_entry()))

    @property
    def committed(self) -> TaskProgress | None:
        """The committed progress."""
        entry = self.journal.settled([KEY]).get(KEY)
        return None if entry is None else TaskProgress.from_entry(entry)

    def inits(self) -> int:
        return sum(call.startswith("init") for call in self.broker.calls)


def progress(positions: Mapping[str, int] | None = None, **changes: Any) -> TaskProgress:
    found: dict[str, Any] = {
        "positions": positions or {"in/0": 0},
        "metadata": "eos1;0;0",
        "attempt": "another",
        "written_at": 0,
    }
    return TaskProgress(**{**found, **changes})


__all__ = ["KEY", "P0", "PART", "At", "Clock", "World", "progress", "topology"]
