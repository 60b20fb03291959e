"""The suite: every fault for every contestant, round by round, on clusters of its own."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

from benchmarks.contestants.work import Unavailable
from benchmarks.faults.failures import FaultFailed, NothingProduced
from benchmarks.faults.faults import FAULTS, Fault
from benchmarks.faults.kinds import Kind
from benchmarks.faults.peers import Peer
from benchmarks.faults.trial import Outcome, Trial
from tests.support.faults.proxied import ProxiedCluster, proxied_kafka
from tests.support.servers import three_brokers

PROPERTIES = {
    **three_brokers.PROPERTIES,
    "broker.session.timeout.ms": "30000",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass(frozen=True)
class Played:
    """A trial that took place.

    Args:
        number: of the round, from 1.
    """

    kind: Kind
    peer: str
    number: int
    outcome: Outcome


@dataclass
class Results:
    """All trials of a run.

    Args:
        failures: faults that did not fire, and contestants that wrote nothing.
    """

    played: list[Played] = field(default_factory=list[Played])
    failures: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Plan:
    """The trials to play.

    Args:
        lanes: trials at a time, each on brokers of its own.
        start_seconds: within which a contestant must write a first record.
    """

    peers: Sequence[Peer]
    kinds: Sequence[Kind]
    rounds: int
    seed: int
    lanes: int
    start_seconds: float


class Lane:
    """Clusters for one trial at a time, started when a trial needs them."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._clusters: dict[int, tuple[ProxiedCluster, ExitStack]] = {}
        self._numbers = itertools.count(1)

    def play(
        self, fault: Fault, peer: Peer, chance: random.Random, start_seconds: float
    ) -> Outcome:
        """Play one trial; the cluster of one that failed may lack a broker, and is not used again.

        Raises:
            FaultFailed: the fault did not fire.
            NothingProduced: the contestant wrote nothing.
        """
        name = f"trial-{next(self._numbers)}"
        trial = Trial(
            cluster=self._cluster(fault.nodes),
            peer=peer,
            application=name,
            directory=self._directory / name,
            chance=chance,
            session_seconds=fault.session_seconds,
            transaction_seconds=fault.transaction_seconds,
            start_seconds=start_seconds,
        )
        try:
            return trial.run(fault.act)
        except NothingProduced:
            self._discard(fault.nodes)
            raise
        # The test support asserts that what it does has happened.
        except (AssertionError, FaultFailed) as error:
            self._discard(fault.nodes)
            tail = trial.instances[0].log_tail() if trial.instances else ""
            what = f"{fault.kind} did not fire on {peer.name}: {error}"
            raise FaultFailed(f"{what}\n{tail}") from error

    def _cluster(self, nodes: int) -> ProxiedCluster:
        if nodes not in self._clusters:
            directory = self._directory / f"kafka{nodes}-{next(self._numbers)}"
            stack = self._stack.enter_context(ExitStack())
            cluster = proxied_kafka(directory, nodes=nodes, properties=PROPERTIES)
            self._clusters[nodes] = stack.enter_context(cluster), stack
        return self._clusters[nodes][0]

    def _discard(self, nodes: int) -> None:
        _, stack = self._clusters.pop(nodes)
        stack.close()


def prepared(peers: Sequence[Peer]) -> tuple[list[Peer], dict[str, str], dict[str, str]]:
    """Return those that can take part, their versions, and why others cannot."""
    present: list[Peer] = []
    versions: dict[str, str] = {}
    absent: dict[str, str] = {}
    for peer in peers:
        try:
            versions[peer.name] = peer.prepare()
        except Unavailable as reason:
            absent[peer.name] = str(reason)
        else:
            present.append(peer)
    return present, versions, absent


def play(
    plan: Plan,
    results: Results,
    directory: Path,
    progress: Callable[[str], None],
    keep: Callable[[], object],
) -> None:
    """Play all trials; one that fails ends no other.

    Args:
        results: are added to.
        directory: for brokers and contestants.
        progress: is told each trial in a line.
        keep: called after each trial that took place, by one thread at a time.
    """
    keeping = threading.Lock()
    waiting = Queue[tuple[int, Kind, Peer]]()
    for number in range(1, plan.rounds + 1):
        for kind in plan.kinds:
            for peer in plan.peers:
                if kind not in peer.not_struck:
                    waiting.put((number, kind, peer))

    def run(lane: Lane) -> None:
        with suppress(Empty):
            while True:
                number, kind, peer = waiting.get_nowait()
                # The same moments for every contestant, as far as its own pace allows.
                chance = random.Random(f"{plan.seed} {kind} {number}")
                title = f"round {number}, {kind}, {peer.name}"
                try:
                    outcome = lane.play(FAULTS[kind], peer, chance, plan.start_seconds)
                except (FaultFailed, NothingProduced) as error:
                    results.failures.append(str(error))
                    progress(f"{title}: {error}")
                    continue
                with keeping:
                    results.played.append(Played(kind, peer.name, number, outcome))
                    keep()
                progress(
                    f"{title}: {outcome.verdict} ({outcome.records} records, "
                    f"{outcome.restarts} restarts, {outcome.seconds:.0f} s)"
                )

    with ExitStack() as stack, ThreadPoolExecutor(plan.lanes) as pool:
        lanes = [Lane(directory / f"lane{n}", stack) for n in range(1, plan.lanes + 1)]
        try:
            for done in [pool.submit(run, lane) for lane in lanes]:
                done.result()
        finally:
            # Whatever ended this, Ctrl-C too: the trials that run come to their end, and no other.
            with suppress(Empty):
                while True:
                    waiting.get_nowait()
