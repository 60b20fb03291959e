"""Workers of one group on the in-memory Kafka, interleaved by a seed at each step of the protocol.

Each worker runs in a thread of its own, and one thread at a time: it hands the turn on at named
points, at each request about ownership, and at each fetch. A worker may sleep over many turns at
any of them, so each becomes a zombie at each step; it may be killed there, and its instance started
again. The group moves partitions and does not check offsets: only the fence protects.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from eosframework.engine.worker import worker as worker_module
from eosframework.engine.worker.worker import Worker
from eosframework.engine.worker.worker_plan import Plan
from eosframework.errors import Retriable
from eosframework.records import Position, TopicPartition
from eosframework.testing.memory_kafka import MemoryInput, MemoryOwnership, MemoryStartPositions
from eosframework.transactions import failpoints
from eosframework.transactions.ownership.ownership import Ownership
from eosframework.transactions.ports import Fetched, TransactionalOutput
from eosframework.txnid import TransactionalId
from tests.support.memory.fault_plan import Faults, Killed
from tests.support.memory.faulty_kafka import FaultyKafka, FaultyOutputs
from tests.support.memory.scripted_kafka import OPTIONS
from tests.unit.processing.messages import compiled, part_of, sink

PARTITIONS = 3
RECORDS = 6
INPUTS = [TopicPartition("in", number) for number in range(PARTITIONS)]
POINTS = (
    "takeover.before_init",
    "takeover.after_init",
    "ownership.before_entry",
    "ownership.after_entry",
    "ownership.after_read",
    "ownership.after_fence",
    "transaction.after_begin",
    "transaction.before_commit",
    "transaction.after_commit",
    "revoke.before_commit",
    "revoke.after_commit",
)
TURNS = 6000


class Turns:
    """Hands the turn to one thread after the other."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.count = 0
        self.asleep: dict[str, int] = {}
        self.killed: set[str] = set()
        self.crashes = 1
        self._waiting: dict[str, threading.Semaphore] = {}
        self._main = threading.Semaphore(0)
        self.errors: list[BaseException] = []

    def run(self, bodies: Mapping[str, Callable[[], None]]) -> None:
        """Run all bodies to their end."""
        self._waiting = {name: threading.Semaphore(0) for name in bodies}
        threads = [
            threading.Thread(target=self._run, args=(name, body), name=name, daemon=True)
            for name, body in bodies.items()
        ]
        for thread in threads:
            thread.start()
        self._hand_on()
        self._main.acquire()
        for thread in threads:
            thread.join(10)
        if self.errors:
            raise self.errors[0]

    def switch(self) -> None:
        """Let others run; a worker may be killed here."""
        me = threading.current_thread().name
        if me not in self._waiting or me in self.killed:
            return
        self.count += 1
        if self.count > TURNS:
            raise AssertionError(f"no end after {TURNS} turns")
        if self.chance.random() < 0.12:
            self.asleep[me] = self.count + self.chance.randint(5, 80)
        if self.crashes and self.chance.random() < 0.004:
            self.crashes -= 1
            self.killed.add(me)
            raise Killed
        if self._hand_on(me):
            self._waiting[me].acquire()

    def _hand_on(self, me: str | None = None) -> bool:
        awake = [n for n in self._waiting if self.asleep.get(n, 0) <= self.count]
        following = self.chance.choice(sorted(awake or self._waiting))
        if following != me:
            self._waiting[following].release()
        return following != me

    def _run(self, name: str, body: Callable[[], None]) -> None:
        self._waiting[name].acquire()
        try:
            body()
        except BaseException as error:
            self.errors.append(error)
        finally:
            del self._waiting[name]
            if self._waiting and not self.errors:
                self._hand_on()
            else:
                self._main.release()


@dataclass
class Group:
    """The group's assignment, which moves now and then."""

    turns: Turns
    members: Sequence[str]
    generation: int = 1
    moves: int = 12
    split: dict[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])

    def of(self, member: str) -> list[TopicPartition]:
        """Return the partitions of a member."""
        return [p for p in INPUTS if self.split.get(p, self.members[0]) == member]

    def look(self) -> None:
        """Move the partitions, perhaps."""
        if self.moves and self.turns.chance.random() < 0.1:
            self.moves -= 1
            self.generation += 1
            self.split = {p: self.turns.chance.choice(self.members) for p in INPUTS}


class Member(MemoryInput):
    """A member that learns of a rebalance a few fetches late."""

    def __init__(self, kafka: FaultyKafka, name: str, group: Group) -> None:
        super().__init__(kafka)
        self._name = name
        self._group = group
        self._known = 0
        self._late = 0

    def fetch(self, limit: int, timeout_seconds: float, gather_seconds: float = 0.0) -> Fetched:
        group = self._group
        group.turns.switch()
        group.look()
        self._joins = False
        if self._known != group.generation:
            self._late -= 1
            if self._late < 0:
                self._late = group.turns.chance.randint(0, 3)
                if self.at:
                    lost = group.turns.chance.random() < 0.5
                    (self.lose if lost else self.revoke)(*sorted(self.at))
                self._known = group.generation
                self.assign(*group.of(self._name))
        return super().fetch(limit, timeout_seconds)

    def committed(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        self._group.turns.switch()
        return super().committed(partitions)

    def assign(self, *partitions: TopicPartition) -> None:
        assert self.listener is not None
        starts = self.listener.assigned(list(partitions))
        self.at = {p.topic_partition: p.offset or 0 for p in starts}
        self.paused = set(self.at)
        self.generation = self.kafka.generation


class Mortal(Faults):
    """No faults, but the end of the process."""

    def __init__(self, name: str, turns: Turns) -> None:
        self._name = name
        self._turns = turns
        super().__init__()

    @property
    def killed(self) -> bool:
        return self._name in self._turns.killed

    @killed.setter
    def killed(self, value: bool) -> None:
        assert not value


class Topic:
    """The ownership topic, where each request gives others a turn."""

    topic = "memory-ownership"

    def __init__(self, kept: MemoryOwnership, turns: Turns, faults: Faults) -> None:
        self._kept = kept
        self._turns = turns
        self._faults = faults

    def write(self, values: Mapping[bytes, bytes | None]) -> None:
        self._turns.switch()
        if self._faults.killed:
            raise Killed
        self._kept.write(values)

    def read(self) -> Mapping[bytes, tuple[int, bytes]]:
        self._turns.switch()
        return self._kept.read()


class Outputs(FaultyOutputs):
    """Producers whose inits give others a turn."""

    def __init__(self, kafka: FaultyKafka, faults: Faults, turns: Turns) -> None:
        super().__init__(kafka, faults)
        self._turns = turns

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        found: list[TransactionalOutput] = []
        for name in transactional_ids:
            self._turns.switch()
            found += super().open([name])
        return found

    def recycle(self, outputs: Sequence[TransactionalOutput]) -> Any:
        self._turns.switch()
        return super().recycle(outputs)


@dataclass(frozen=True)
class Played:
    """The end of a schedule.

    Args:
        values: the committed outputs.
        expected: each input's output, once.
    """

    values: list[bytes]
    expected: list[bytes]
    turns: Turns
    kafka: FaultyKafka


def play(seed: int, ownership: type[Ownership] = Ownership) -> Played:
    """Run two workers by a seed until all input is processed."""
    turns = Turns(seed)
    kafka = FaultyKafka({"in": PARTITIONS, "out": 1})
    kafka.has_one_fence = True
    for number in range(PARTITIONS):
        for n in range(RECORDS):
            value = str(100 * number + n).encode()
            kafka.append(("in", value, b"k", number, None, None, 0, None))
    names = ["a", "b"]
    group = Group(turns, names)
    topic = MemoryOwnership()
    source = compiled(sink())

    def is_done() -> bool:
        ends = (kafka.positions.get(p) for p in INPUTS)
        return all(end is not None and (end.offset or 0) >= RECORDS for end in ends)

    def body(name: str, has_own_id: bool) -> Callable[[], None]:
        def run() -> None:
            incarnation = 0
            while not is_done():
                incarnation += 1
                turns.killed.discard(name)
                try:
                    _worker(f"{name}{incarnation}", name, has_own_id).run()
                except (Killed, Retriable):  # A supervisor starts it again.
                    continue

        return run

    def _worker(process: str, name: str, has_own_id: bool) -> Worker:
        faults = Mortal(name, turns)
        own_id = TransactionalId.worker("app", name) if has_own_id else None
        plan = Plan(
            "app",
            {"sub": part_of(source)},
            lambda sub, number: TransactionalId("app", sub, number),
            own_id=own_id,
        )
        worker = Worker(
            plan,
            Member(kafka, name, group),
            Outputs(kafka, faults, turns),
            MemoryStartPositions(),
            OPTIONS,
            ownership=ownership(Topic(topic, turns, faults), process),
            clock=lambda: _clock(kafka),
            on_round=lambda _: worker.stop() if is_done() else None,
        )
        return worker

    modes = {name: turns.chance.random() < 0.7 for name in names}
    for point in POINTS:
        failpoints.arm(point, lambda _: turns.switch())

    def sleep(seconds: float) -> None:
        kafka.now += seconds
        turns.switch()

    worker_module.time, kept = SimpleNamespace(sleep=sleep), worker_module.time  # type: ignore[assignment]
    try:
        turns.run({name: body(name, modes[name]) for name in names})
    finally:
        worker_module.time = kept
        for point in POINTS:
            failpoints.disarm(point)
    log = kafka.logs[TopicPartition("out", 0)]
    values = sorted(m.value() or b"" for m in log.messages)
    expected = sorted(str(100 * p + n).encode() for p in range(PARTITIONS) for n in range(RECORDS))
    return Played(values, expected, turns, kafka)


def _clock(kafka: FaultyKafka) -> float:
    kafka.now += 0.02
    return kafka.now
