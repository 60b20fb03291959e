"""Workers of one group on the in-memory Kafka, interleaved by a seed at each step of the protocol.

Each worker runs in a thread of its own, and one thread at a time: it hands the turn on at named
points, at each request about ownership, and at each fetch. A worker may sleep over many turns at
any of them, so each becomes a zombie at each step; it may be killed there, and its instance started
again. The group moves partitions, and checks the membership when offsets are sent, not when the
transaction ends; reads of offsets do not wait for open transactions. A producer may be suspect
after any commit, and its worker may sleep before it is replaced. In some schedules partitions start
at their end, and records arrive while the workers run.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

from eosframework.engine.task.offsets import Progress
from eosframework.engine.worker import worker as worker_module
from eosframework.engine.worker.worker import Worker
from eosframework.engine.worker.worker_plan import Plan
from eosframework.errors import AssignmentLapsed, InstanceFenced, Retriable
from eosframework.records import Position, TopicPartition
from eosframework.testing.memory_kafka import MemoryInput, MemoryOwnership, MemoryStartPositions
from eosframework.testing.stateless_driver import Sent
from eosframework.transactions import failpoints
from eosframework.transactions.ownership import Ownership, by_input, parse
from eosframework.transactions.ports import Commit, Committed, Fetched, TransactionalOutput
from eosframework.txnid import TransactionalId
from tests.support.memory.fault_plan import CommitFault, Faults, Killed
from tests.support.memory.faulty_kafka import FaultyKafka, FaultyOutput, FaultyOutputs
from tests.support.memory.scripted_kafka import OPTIONS
from tests.unit.engine.messages import compiled, part_of, sink

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

    def sleep(self) -> None:
        """Let the others run while this worker sleeps, perhaps."""
        me = threading.current_thread().name
        if me in self._waiting and me not in self.killed and self.chance.random() < 0.5:
            self.asleep = {me: self.count + self.chance.randint(20, 160)}
        self.switch()

    def switch(self) -> None:
        """Let others run; a worker may be killed here."""
        me = threading.current_thread().name
        if me not in self._waiting or me in self.killed:
            return
        self.count += 1
        if self.count > TURNS:
            raise AssertionError(f"no end after {TURNS} turns")
        others = (until for name, until in self.asleep.items() if name != me)
        if self.chance.random() < 0.12 and all(until <= self.count for until in others):
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


class Cluster(FaultyKafka):
    """A cluster that ends a transaction whatever became of the membership of its offsets.

    Attributes:
        entries: the ownership topic.
        unlisted: ids that were about to commit and were not listed for a partition.
    """

    def __init__(self, topics: Mapping[str, int]) -> None:
        super().__init__(topics)
        self.entries = MemoryOwnership()
        self.unlisted: list[str] = []

    def require_listed(self, output: FaultyOutput, positions: Sequence[Position]) -> None:
        """Note an id that may write for a partition and is not found in the topic."""
        if self._ids[output.transactional_id].epoch != output._epoch:
            return
        listed = {
            (entry.claim.transactional_id, place)
            for place, found in by_input(parse(self.entries.read(), "")).items()
            for entry in found
        }
        if {(output.transactional_id, p.topic_partition) for p in positions} - listed:
            self.unlisted.append(output.transactional_id)

    def commit(
        self, transactional_id: str, epoch: int, positions: Sequence[Position], membership: Any
    ) -> list[Sent]:
        return super().commit(transactional_id, epoch, positions, None)


class Input:
    """The records of the input; some arrive while the workers run."""

    def __init__(self, kafka: FaultyKafka, turns: Turns, at_once: int) -> None:
        self._kafka = kafka
        self._turns = turns
        self._left = [(n, number) for n in range(RECORDS) for number in range(PARTITIONS)]
        while self._left and self._left[0][0] < at_once:
            self._feed()

    def look(self) -> None:
        """Append a record, perhaps."""
        if self._left and self._turns.chance.random() < 0.2:
            self._feed()

    def _feed(self) -> None:
        n, number = self._left.pop(0)
        value = str(100 * number + n).encode()
        self._kafka.append(("in", value, b"k", number, None, None, 0, None))


class AtTheEnd(MemoryStartPositions):
    """Partitions without a commit start at their end."""

    def starting_positions(self, committed: Sequence[Position], log: Any) -> list[Position]:
        ends = log.end_offsets([p.topic_partition for p in committed])
        return [
            p
            if p.offset is not None
            else replace(p, offset=ends[p.topic_partition], metadata=str(Progress()))
            for p in committed
        ]

    def starts_at_end(self, partition: TopicPartition) -> bool:
        return True


@dataclass
class Group:
    """The group's assignment, which moves now and then."""

    turns: Turns
    members: Sequence[str]
    source: Input
    kafka: FaultyKafka
    moves: int = 12
    split: dict[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])

    def of(self, member: str) -> list[TopicPartition]:
        """Return the partitions of a member."""
        return [p for p in INPUTS if self.split.get(p, self.members[0]) == member]

    def look(self) -> None:
        """Move the partitions, perhaps."""
        self.source.look()
        if self.moves and self.turns.chance.random() < 0.1:
            self.moves -= 1
            self.kafka.generation += 1
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
        self._joins, self._unaware = False, 0  # The group decides.
        if self._known != group.kafka.generation:
            self._late -= 1
            if self._late < 0:
                self._late = group.turns.chance.randint(0, 6)
                if self.at:
                    lost = group.turns.chance.random() < 0.5
                    (self.lose if lost else self.revoke)(*sorted(self.at))
                self._known = group.kafka.generation
                self.assign(*group.of(self._name))
        return super().fetch(limit, timeout_seconds)

    def confirm_assignment(self, partitions: Sequence[TopicPartition]) -> None:
        self._group.turns.switch()
        if self.generation != self.kafka.generation:
            raise AssignmentLapsed("the group has another generation")

    def committed(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        self._group.turns.switch()
        return super().committed(partitions)

    def assign(self, *partitions: TopicPartition) -> None:
        assert self.listener is not None
        self.generation = self.kafka.generation
        try:
            starts = self.listener.assigned(list(partitions))
        except AssignmentLapsed:
            starts = list[Position]()
        self.at = {p.topic_partition: p.offset or 0 for p in starts}
        self.paused = set(self.at)


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

    def at_commit(self) -> CommitFault:
        is_suspect = self._turns.chance.random() < 0.25
        return CommitFault(recycled=is_suspect, overtaken=is_suspect)


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
        super().__init__(kafka, faults, turns.sleep)
        self._turns = turns

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        found: list[TransactionalOutput] = []
        for name in transactional_ids:
            self._turns.switch()
            found += super().open([name])
        return found

    def commit(
        self, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> list[Committed]:
        for commit in commits:
            cast("Cluster", self._log).require_listed(
                cast("FaultyOutput", commit.output), commit.positions
            )
        return super().commit(commits, within_seconds)

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
    kafka: Cluster

    @property
    def holds(self) -> bool:
        """Whether each input took effect once, and each id that might write was listed."""
        return self.values == self.expected and not self.kafka.unlisted


def play(
    seed: int,
    ownership: type[Ownership] = Ownership,
    outputs: type[Outputs] = Outputs,
    *,
    group_checks: bool = True,
) -> Played:
    """Run two workers by a seed until all input is processed."""
    turns = Turns(seed)
    kafka = Cluster({"in": PARTITIONS, "out": 1})
    kafka.generation = 1
    kafka.has_one_fence = not group_checks
    at_end = turns.chance.random() < 0.5
    names = ["a", "b"]
    group = Group(turns, names, Input(kafka, turns, RECORDS // 3 if at_end else RECORDS), kafka)
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
                # A supervisor starts it again. It may have been refused several times before it
                # learned of a rebalance, which takes one heartbeat in reality.
                except (Killed, Retriable, InstanceFenced):
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
            outputs(kafka, faults, turns),
            AtTheEnd() if at_end else MemoryStartPositions(),
            OPTIONS,
            ownership=ownership(Topic(kafka.entries, turns, faults), process),
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
    first = dict[TopicPartition, int]()
    for transaction in kafka.history if at_end else ():
        for position in transaction.positions:
            first.setdefault(position.topic_partition, position.offset or 0)
    expected = sorted(
        str(100 * place.partition + n).encode()
        for place in INPUTS
        for n in range(first.get(place, 0), RECORDS)
    )
    return Played(values, expected, turns, kafka)


def _clock(kafka: FaultyKafka) -> float:
    kafka.now += 0.02
    return kafka.now
