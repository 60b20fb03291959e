"""The demo from its first line to its verdict.

1. start a real broker in a directory of its own, and create the topics
2. start the witness: a `read_committed` reader that runs until the end
3. start two workers under their supervisor
4. feed the flights, and meanwhile kill workers at random moments
5. wait until the last flight is committed, and stop the workers
6. compare what the witness saw with what is there, and audit
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console

from eosframework.demo.data import Flights
from eosframework.demo.files import example_file
from eosframework.demo.kills import kill_points
from eosframework.demo.stage import PARTITIONS, Stage, open_stage
from eosframework.demo.story import Bars, Story
from eosframework.demo.witness import Witness
from eosframework.demo.workers import Workers
from eosframework.errors import RunError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.plain_writes import feed
from eosframework.operations.audit import Verdict, audit_application
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve

PROCESSES = 2
LOOK_SECONDS = 0.5
CATCH_UP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What the demo is to do.

    Args:
        kills: how many workers to kill.
        records_per_second: how fast to feed.
        seed: decides which records are broken, who is killed, and when.
        flights: how many of them. None: all.
        keep: leave the broker up.
    """

    kills: int
    records_per_second: int
    seed: int
    flights: int | None = None
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended."""

    verdict: Verdict
    planned_kills: int
    kills: int
    deaths_seen: int
    differences: tuple[str, ...]
    seconds: float

    @property
    def good(self) -> bool:
        """Whether nothing was lost, doubled, reordered or torn, for anybody, at any time."""
        return (
            self.verdict.clean
            and not self.differences
            and self.planned_kills == self.kills == self.deaths_seen
        )

    def as_data(self) -> dict[str, int | float]:
        """Return the last line of the demo."""
        return {
            **self.verdict.counts(),
            "kills": self.kills,
            "seconds": round(self.seconds, 1),
        }


def run_demo(plan: Plan, console: Console) -> Outcome:
    """Run the demo and tell it on `console`; nothing is left running, however it ends.

    Raises:
        ComponentFailed: the broker or the workers ended by themselves.
        RunError: the workers did not get through the input.
        KeyboardInterrupt: SIGINT or SIGTERM came; everything has been stopped.
    """
    story = Story(console)
    title = "Real flights through real Kafka, while the workers are killed"
    with open_stage(story, title, keep=plan.keep) as stage:
        return _Demo(plan, stage).run()


class _Demo:
    def __init__(self, plan: Plan, stage: Stage) -> None:
        self._plan = plan
        self._stage = stage
        self._story = stage.story
        self._stopping = stage.stopping
        self._log_file = stage.directory / "workers.log"
        self._settings = stage.settings
        self._admin = ClusterAdmin(self._settings)
        self._topology = example_file("flights", "topology.yaml")
        self._graph: Graph = resolve(load_app(str(self._topology)))
        part = self._graph.sub_topologies[0]
        self._source = part.sources[0].topic
        self._inputs = [TopicPartition(self._source, n) for n in range(PARTITIONS)]
        self._outputs = [
            TopicPartition(topic, n) for topic in part.sink_topics for n in range(PARTITIONS)
        ]
        self._flights = Flights(plan.flights, plan.seed)
        self._chance = random.Random(plan.seed)
        self._kill_points = kill_points(len(self._flights), plan.kills, self._chance)
        self._kills = 0
        self._processed = 0
        self._due = 0.0

    def run(self) -> Outcome:
        topics = {topic for topic, _ in (*self._inputs, *self._outputs)}
        self._stage.create_topics(sorted(topics))
        witness = Witness(self._settings, self._outputs)
        with ExitStack() as cleanup:
            witness.start()
            cleanup.callback(witness.stop)
            self._story.say("a read_committed reader watches every output from now on")
            workers = Workers(
                self._topology, self._settings.bootstrap_servers, PROCESSES, self._log_file
            )
            cleanup.callback(workers.end)
            self._story.say(
                f"{PROCESSES} workers start; {self._plan.kills} kills are planned "
                f"(--seed {self._plan.seed})"
            )
            with self._story.bars(len(self._flights), "fed", "committed", "visible") as bars:
                self._feed(workers, witness, bars)
                self._catch_up(workers, witness, bars)
            self._stop(workers)
            return self._judge(workers, witness)

    def _feed(self, workers: Workers, witness: Witness, bars: Bars) -> None:
        flights = self._flights
        self._story.say(
            f"{flights.flights:,} flights and {flights.broken} broken records go in, "
            f"{self._plan.records_per_second:,} a second"
        )

        def on_turn(fed: int) -> None:
            self._stopping.check()
            if self._kills < self._plan.kills and fed >= self._kill_points[self._kills]:
                self._kill(workers)
            self._look(workers, witness, bars, fed)

        feed(
            self._settings,
            self._source,
            flights,
            records_per_second=self._plan.records_per_second,
            on_turn=on_turn,
        )

    def _kill(self, workers: Workers) -> None:
        """Kill one worker, or none as long as each of them is still taking over."""
        if (kill := workers.kill_one(self._chance)) is not None:
            self._kills += 1
            self._story.say(f"kill {self._kills} of {self._plan.kills}: {kill}", style="red")

    def _look(self, workers: Workers, witness: Witness, bars: Bars, fed: int) -> None:
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + LOOK_SECONDS
        workers.require_running()
        positions = self._admin.committed(self._graph.application, self._inputs, stable=False)
        self._processed = sum(position.offset or 0 for position in positions)
        bars.show(fed, self._processed, witness.records)

    def _catch_up(self, workers: Workers, witness: Witness, bars: Bars) -> None:
        """Wait until the position behind the last record of every partition is committed."""
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while self._processed < len(self._flights):
            if time.monotonic() > deadline:
                raise RunError(
                    f"{self._processed:,} of {len(self._flights):,} records were committed "
                    f"{CATCH_UP_SECONDS:g} s after the last was fed; see {self._log_file} "
                    f"(--keep leaves it there)"
                )
            time.sleep(0.1)
            self._stopping.check()
            if self._kills < self._plan.kills:
                self._kill(workers)
            self._look(workers, witness, bars, len(self._flights))

    def _stop(self, workers: Workers) -> None:
        workers.stop()
        self._story.say("every record is committed; the workers were asked to stop, and did")

    def _judge(self, workers: Workers, witness: Witness) -> Outcome:
        self._stopping.check()
        differences = witness.differences(self._admin.log_bounds(self._outputs))
        if differences:
            self._story.say("the reader that watched all the time saw something else:")
            for line in differences:
                self._story.plain(f"          {line}")
        else:
            self._story.say(
                f"the reader that watched all the time saw the {witness.records:,} records "
                f"that are there now, and no others"
            )
            for topic, count in sorted(witness.records_by_topic().items()):
                self._story.plain(f"          {topic:<18}{count:>9,}")
        verdict = audit_application(
            self._graph, self._settings, lambda what, done: self._stopping.check()
        )
        outcome = Outcome(
            verdict,
            self._plan.kills,
            self._kills,
            workers.deaths_seen(),
            tuple(differences),
            self._story.seconds,
        )
        self._say_verdict(outcome)
        return outcome

    def _say_verdict(self, outcome: Outcome) -> None:
        self._story.say(
            "audit: the functions ran again over the input, and the outputs were compared"
        )
        if not outcome.planned_kills == outcome.kills == outcome.deaths_seen:
            self._story.say(
                f"{outcome.planned_kills} kills were planned, {outcome.kills} done, and the "
                f"supervisor saw {outcome.deaths_seen}: this run proves too little"
            )
        for name, count in outcome.verdict.counts().items():
            self._story.plain(f"          {name:<11}{count:>9,}")
        for detail in outcome.verdict.details[:20]:
            self._story.plain(f"          {detail.kind}: {detail.text}")
        if outcome.good:
            self._story.say(
                f"{outcome.kills} workers killed, and each record took effect exactly once",
                style="green",
            )
        elif not outcome.verdict.clean or outcome.differences:
            self._story.say("NOT exactly once", style="bold red")
