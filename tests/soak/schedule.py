"""What is broken when: drawn from a seed, so that a run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from tests.support.faults.proxy import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)

REQUESTS = {
    "Produce": PRODUCE,
    "InitProducerId": INIT_PRODUCER_ID,
    "AddPartitionsToTxn": ADD_PARTITIONS,
    "AddOffsetsToTxn": ADD_OFFSETS,
    "EndTxn": END_TXN,
    "TxnOffsetCommit": TXN_OFFSET_COMMIT,
}
WORKERS = 3
"""That faults are aimed at."""

SUPERVISOR = WORKERS - 1
"""Number of the worker that is a supervisor with two children."""

SPARED = WORKERS
"""Number of the worker that no fault is aimed at: it lives long enough to show what leaks."""

FIRST_FAULT_SECONDS = 2.0

STOPPED, ASLEEP = "are stopped", "sleep"
"""How workers are away while an operator's commands run."""

PRODUCERS = ("worker.ids=worker", "worker.ids=partition")
"""A producer for each worker, or for each partition."""


class Way(StrEnum):
    """What is done."""

    KILL = "kill worker"
    KILL_CHILD = "kill a supervised worker"
    STOP = "stop worker"
    LEAVE = "ask worker to leave"
    TWIN = "start a second worker of the same name as"
    HOLD = "hold and deliver late"
    SWALLOW = "swallow the response to"
    BREAK = "break connections through proxy"
    DAMAGE = "damage a store of killed worker"
    HANG = "let a transaction hang in the changelog, and kill worker"
    LATE = "start the application that starts at the end, or"
    OFFLINE = "set the positions where they are, while all workers"
    KILL_BROKER = "kill broker"
    STOP_BROKER = "stop broker"


@dataclass(frozen=True)
class Fault:
    """One thing to break.

    Args:
        at_seconds: after the start of the schedule.
        target: number of the worker or broker, the name of a request, or the rest of the way.
        for_seconds: until it is fixed: restarted, continued, delivered.
    """

    at_seconds: float
    way: Way
    target: int | str
    for_seconds: float = 0.0

    def __str__(self) -> str:
        fixed = f", for {self.for_seconds:g} s" if self.for_seconds else ""
        return f"{self.way} {self.target}{fixed}"


_Draw = Callable[[random.Random, int], tuple[int | str, float]]


def _some_worker(*durations: float) -> _Draw:
    return lambda rng, nodes: (rng.randrange(WORKERS), rng.choice(durations))


def _single_worker(*durations: float) -> _Draw:
    return lambda rng, nodes: (rng.randrange(WORKERS - 1), rng.choice(durations))


def _some_request(*durations: float) -> _Draw:
    return lambda rng, nodes: (rng.choice(sorted(REQUESTS)), rng.choice(durations))


def _some_broker(*durations: float) -> _Draw:
    return lambda rng, nodes: (rng.randrange(nodes) + 1, rng.choice(durations))


_LATE = (0.0, 0.03, 0.06, 0.1, 0.15, 0.3, 1.0, 4.0)
"""Most arrive within the next transaction or two."""

_DRAWS: dict[Way, _Draw] = {
    Way.KILL: _some_worker(0.0, 0.5, 3.0, 9.0),
    Way.KILL_CHILD: lambda rng, nodes: (rng.randrange(2), 0.0),
    Way.STOP: _some_worker(0.3, 2.0, 5.0, 8.0, 12.0),
    Way.LEAVE: _some_worker(0.0, 1.0, 6.0),
    Way.TWIN: _single_worker(0.0),
    Way.HOLD: _some_request(*_LATE),
    Way.SWALLOW: _some_request(0.0),
    Way.BREAK: _some_broker(0.0),
    Way.DAMAGE: _single_worker(0.0, 1.0, 9.0),
    Way.HANG: _single_worker(1.0, 5.0, 16.0),
    Way.LATE: lambda rng, nodes: (rng.choice(("kill", "kill", "leave", "replay", "reset")), 0.0),
    Way.OFFLINE: lambda rng, nodes: (rng.choice((STOPPED, ASLEEP)), 0.0),
    Way.KILL_BROKER: _some_broker(0.0, 1.0, 5.0),
    Way.STOP_BROKER: _some_broker(0.5, 3.0, 6.0, 11.0),
}

EVERYTHING: Mapping[Way, int] = {
    Way.KILL: 4,
    Way.KILL_CHILD: 2,
    Way.STOP: 5,
    Way.LEAVE: 2,
    Way.TWIN: 1,
    Way.HOLD: 14,
    Way.SWALLOW: 5,
    Way.BREAK: 3,
    Way.DAMAGE: 2,
    Way.HANG: 1,
    Way.LATE: 2,
    Way.KILL_BROKER: 1,
    Way.STOP_BROKER: 2,
}
"""How often each way is drawn, in proportion."""

EACH_MINUTE: Sequence[tuple[Way, float, float]] = (
    (Way.DAMAGE, FIRST_FAULT_SECONDS, 20.0),
    (Way.HANG, FIRST_FAULT_SECONDS, 45.0),
    (Way.LATE, FIRST_FAULT_SECONDS, 20.0),
    (Way.LATE, 25.0, 45.0),
    (Way.OFFLINE, 25.0, 45.0),
)
"""Besides, each minute has one of each of these, between these seconds of it. A first start and the
next thing that is done to that application are two; while no worker runs, no store is damaged."""


def producers(seed: int) -> str:
    """Return the setting of the workers' producers in a seed's run of all faults."""
    return random.Random(f"{seed} producers").choice(PRODUCERS)


def stragglers(*requests: str) -> Callable[[int, float], tuple[Fault, ...]]:
    """Return a schedule of nothing but requests that arrive late, in quick succession."""

    def draw(seed: int, seconds: float) -> tuple[Fault, ...]:
        rng = random.Random(seed)
        faults: list[Fault] = []
        at_seconds = FIRST_FAULT_SECONDS
        while at_seconds < seconds:
            late_seconds = rng.choice(_LATE[:6])
            faults.append(Fault(at_seconds, Way.HOLD, rng.choice(requests), late_seconds))
            at_seconds = round(at_seconds + rng.uniform(0.3, 0.8), 2)
        return tuple(faults)

    return draw


def everything(
    nodes: int = 1, weights: Mapping[Way, int] = EVERYTHING
) -> Callable[[int, float], tuple[Fault, ...]]:
    """Return a schedule of all faults.

    A single broker is not killed: when it comes back its partitions have no leader for a moment,
    and a coordinator that is to end a transaction then leaves out their markers (Kafka 4.3,
    KRaftMetadataCache.getPartitionLeaderEndpoint), which no client can make good.
    """
    if nodes == 1:
        weights = {way: weight for way, weight in weights.items() if way is not Way.KILL_BROKER}

    def draw(seed: int, seconds: float) -> tuple[Fault, ...]:
        rng = random.Random(seed)
        faults: list[Fault] = []
        at_seconds = FIRST_FAULT_SECONDS
        while at_seconds < seconds:
            way = rng.choices(list(weights), list(weights.values()))[0]
            target, for_seconds = _DRAWS[way](rng, nodes)
            faults.append(Fault(at_seconds, way, target, for_seconds))
            at_seconds = round(at_seconds + rng.choice((0.2, 0.5, 1.0, 2.0, 3.0, 5.0)), 2)
        faults += _of_each_minute(seed, seconds, nodes)
        return tuple(sorted(faults, key=lambda fault: fault.at_seconds))

    return draw


def _of_each_minute(seed: int, seconds: float, nodes: int) -> list[Fault]:
    """Return what each minute has whatever else is drawn; an incomplete one has a part of it."""
    faults: list[Fault] = []
    for minute in range(ceil(seconds / 60)):
        rng = random.Random(f"{seed} minute {minute}")
        for way, first, last in EACH_MINUTE:
            at_seconds = round(rng.uniform(first, last), 2)
            faults.append(Fault(60 * minute + at_seconds, way, *_DRAWS[way](rng, nodes)))
    return [fault for fault in faults if fault.at_seconds < seconds]
