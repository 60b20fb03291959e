"""Plays a scenario with planned faults: workers follow those that end until all is done."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from eosframework.application.internal_topics import own_topics, task_counts
from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import compile_part
from eosframework.engine.operators.entries import LAYOUT
from eosframework.engine.restoration.local_state import LocalState
from eosframework.engine.restoration.restoration import Restoration
from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.engine.worker import worker as worker_module
from eosframework.engine.worker.worker import Worker
from eosframework.engine.worker.worker_plan import Plan, WorkerOptions, downstream_of
from eosframework.errors import EosError
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.timed_topics import timed_topics
from eosframework.topology.resolve.resolve import resolve
from eosframework.txnid import TransactionalId
from tests.support.memory.fault_plan import CURRENT, Faults, Killed
from tests.support.memory.faulty_kafka import (
    FaultyKafka,
    FaultyOutputs,
    Machine,
    faulty_changelogs,
    faulty_input,
    faulty_start_positions,
)

ROUNDS = 3000
"""A worker that is not through after so many turns does not get through."""

OVERTAKEN_ROUNDS = 12
"""For so many turns another worker runs."""


class Wrong(AssertionError):
    """What a case shows must never happen."""


class Endless(BaseException):
    """A worker turns and turns."""


@dataclass(frozen=True, slots=True)
class Choices:
    """How workers run, whatever the fault.

    Args:
        interval_seconds: between commits; 0: in each turn.
        lose_stores: each worker finds nothing on its machine.
        rival_stops: another worker that comes between commits what it has; it is killed otherwise.
        one_fence: the group takes offsets under a membership that is over.
    """

    batch_records: int = 2
    interval_seconds: float = 0.1
    lose_stores: bool = False
    until_caught_up: bool = False
    rival_stops: bool = False
    one_fence: bool = False

    @classmethod
    def of(cls, number: int) -> Choices:
        """Return one of all combinations, of which there are 48."""
        batch, interval_seconds = ((1, 0.1), (2, 0.0), (5, 0.1))[number % 3]
        number //= 3
        bits = [bool(number >> bit & 1) for bit in range(4)]
        return cls(batch, interval_seconds, *bits)


@dataclass(frozen=True)
class Scenario:
    """A topology with its input, and what has to come of it.

    Args:
        partitions: of each source topic.
        waves: each appends records; the next one comes when all of the last one is done.
        judge: raises `Wrong` if what is committed is wrong; told whether all is done.
        has_own_id: the worker has one producer for all of its partitions.
        is_done: further than that all is read; told how many waves came.
        by_clock: that all is read does not mean that all is done.
        receipts: outputs have receipts.
        refuses: the judge knows what follows where brokers refuse records of topic `out`.
    """

    name: str
    app: Callable[[], Topology]
    waves: tuple[Callable[[FaultyKafka], None], ...]
    judge: Callable[[World], None]
    partitions: int = 1
    has_own_id: bool = False
    is_done: Callable[[FaultyKafka, int], bool] = lambda log, waves: True
    by_clock: bool = False
    refuses: bool = False
    receipts: bool = False


@dataclass
class World:
    """A scenario under way."""

    scenario: Scenario
    graph: Graph
    plan: Plan
    log: FaultyKafka
    counts: dict[str, int]
    faults: Faults = field(default_factory=Faults)
    is_over: bool = False
    waves: int = 0
    endings: list[str] = field(default_factory=list[str])


_compiled: dict[str, tuple[Graph, Plan, dict[str, int], dict[str, int]]] = {}


def _prepared(scenario: Scenario) -> tuple[Graph, Plan, dict[str, int], dict[str, int]]:
    if scenario.name not in _compiled:
        graph = resolve(scenario.app().loaded())
        own = {repartition.topic for repartition in graph.repartitions}
        sources = {s.topic for part in graph.sub_topologies for s in part.sources} - own
        sizes = dict.fromkeys(sorted(sources), scenario.partitions)
        topics = own_topics(graph, sizes)
        sizes |= {topic.name: topic.partitions or 1 for topic in topics.values()}
        counts = task_counts(graph, sizes)
        for part in graph.sub_topologies:
            for sink in part.sink_topics:
                sizes.setdefault(sink, scenario.partitions)
        for topic in graph.changelog_topics:
            sizes.setdefault(topic, scenario.partitions)
        own_id, timed = TransactionalId.worker(graph.application, "one"), timed_topics(graph)
        context = CompileContext(
            receipts=scenario.receipts, own_topics=graph.repartition_topics, timed_topics=timed
        )
        plan = Plan(
            graph.application,
            {part.name: compile_part(part, context) for part in graph.sub_topologies},
            partial(TransactionalId.make, graph.application),
            receipts=scenario.receipts,
            own_topics=frozenset(own),
            downstream=downstream_of(timed, sizes),
            own_id=own_id if scenario.has_own_id else None,
        )
        _compiled[scenario.name] = graph, plan, counts, sizes
    return _compiled[scenario.name]


def play(scenario: Scenario, faults: Faults, choices: Choices) -> World:
    """Run a scenario to its end.

    Raises:
        Wrong: says what is wrong with what is committed, or that it does not end.
    """
    graph, plan, counts, sizes = _prepared(scenario)
    world = World(scenario, graph, plan, FaultyKafka(sizes), counts, faults)
    world.log.has_one_fence = choices.one_fence
    machine = Machine(faults)
    CURRENT[0] = faults
    faults.pass_time = partial(_pass, world.log)
    sleeping = SimpleNamespace(sleep=lambda seconds: _pass(world.log, seconds))
    worker_module.time, kept = sleeping, worker_module.time  # type: ignore[assignment]
    try:
        for wave in scenario.waves:
            wave(world.log)
            world.waves += 1
            while not _is_done(world):
                _work(world, machine, faults, choices)
                _judge(world, machine)
                if len(world.endings) > len(faults.plan):
                    raise Wrong(f"workers end again and again: {world.endings}")
                if choices.lose_stores:
                    machine.lose()
    finally:
        worker_module.time = kept
        CURRENT[0] = Faults()
    world.is_over = True
    _judge(world, machine)
    return world


def _pass(log: FaultyKafka, seconds: float) -> None:
    log.now += seconds


def _work(world: World, machine: Machine, faults: Faults, choices: Choices) -> None:
    """Run one worker until it ends, or all is done."""
    faults.killed = False
    machine.faults = faults
    log = world.log
    waits_for_clock = world.scenario.by_clock
    worker = _worker(world, machine, faults, choices)
    try:
        worker.run(until_caught_up=choices.until_caught_up and not waits_for_clock)
    except Killed:
        world.endings.append("killed")
    except Endless as error:
        raise Wrong(f"a worker is not through after {ROUNDS} turns") from error
    except BaseException as error:
        if log.misuses:
            raise Wrong(f"misused: {log.misuses}") from error
        if not faults.explains(error):
            raise Wrong(f"a worker ended with {type(error).__name__}: {error}") from error
        if len(world.endings) >= len(faults.fired):
            raise Wrong(f"a worker ended without a reason: {error!r}") from error
        world.endings.append(f"{type(error).__name__}: {error}")
    else:
        if not _is_done(world):
            raise Wrong("a worker ended without an error before all was done")


def _worker(
    world: World, machine: Machine, faults: Faults, choices: Choices, rounds: int = ROUNDS
) -> Worker:
    log, graph = world.log, world.graph
    left = [rounds]

    def on_round(_: Any) -> None:
        left[0] -= 1
        if left[0] <= 0:
            if rounds == ROUNDS:
                raise Endless
            if not choices.rival_stops:
                faults.killed = True
                raise Killed
            worker.stop()
        if _is_done(world):
            worker.stop()

    def overtake() -> None:
        nobody, elsewhere = Faults(), Machine(Faults())
        nobody.rejected = world.faults.rejected  # by the brokers, whoever asks
        rival = _worker(world, elsewhere, nobody, choices, OVERTAKEN_ROUNDS)
        with suppress(Killed, EosError, KeyboardInterrupt):  # Functions fail there as well.
            rival.run()

    stores = {
        part.name: [StoreIdentity(store.name, store.changelog, LAYOUT) for store in part.stores]
        for part in graph.sub_topologies
    }
    restoring = Restoration(
        faulty_changelogs(log, faults), float("inf"), clock=lambda: log.now, now=lambda: log.now
    )
    state = LocalState(machine, stores, world.counts, restoring)
    options = WorkerOptions(
        commit_interval_seconds=choices.interval_seconds,
        transaction_timeout_seconds=30.0,
        heartbeat_interval_seconds=0.5,
        takeover_deadline_seconds=5.0,
        batch_records=choices.batch_records,
        leave_on_stop=True,
        stop_deadline_seconds=20.0,
    )
    worker = Worker(
        world.plan,
        faulty_input(log, faults, overtake),
        FaultyOutputs(log, faults, overtake),
        faulty_start_positions(log, faults),
        options,
        state=state,
        clock=lambda: log.now,
        now=lambda: log.now,
        on_round=on_round,
    )
    return worker


def _is_done(world: World) -> bool:
    """Tell whether everything that came is committed, and what the scenario waits for."""
    log = world.log
    for partition, part in log.logs.items():
        if partition.topic in world.plan.topics and part.messages:
            position = log.positions.get(partition)
            if position is None or (position.offset or 0) <= part.messages[-1].offset():
                return False
    return world.scenario.is_done(log, world.waves)


def _judge(world: World, machine: Machine) -> None:
    if world.log.misuses:
        raise Wrong(f"misused: {world.log.misuses}")
    _judge_stores(world, machine)
    world.scenario.judge(world)


def _judge_stores(world: World, machine: Machine) -> None:
    """What is in stores is what their changelogs say up to their positions."""
    for part in world.graph.sub_topologies:
        for number in range(world.counts[part.name]):
            kept = machine.opened.get(f"{part.name}-{number}")
            if kept is None:
                continue
            for store in part.stores:
                position = kept.position(store.name) or 0
                log = world.log.logs[(store.changelog, number)]  # type: ignore[index]
                if position > log.end:
                    raise Wrong(f"store {store.name}[{number}] is ahead of its changelog")
                told = compacted(world.log, store.changelog, number, position)
                found = dict(kept.store(store.name).scan())
                if told != found:
                    raise Wrong(
                        f"store {store.name}[{number}] at {position}: {found}, changelog {told}"
                    )


def compacted(
    log: FaultyKafka, topic: str, number: int, until: int | None = None
) -> dict[bytes, bytes]:
    """Return what a changelog says, the last value of each key."""
    entries: dict[bytes, bytes] = {}
    for message in log.logs[(topic, number)].messages:  # type: ignore[index]
        if until is not None and message.offset() >= until:
            break
        key, value = message.key() or b"", message.value()
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
    return entries
