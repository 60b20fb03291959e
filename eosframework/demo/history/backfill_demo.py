"""The backfill demo from its first line to its verdict.

1. start two brokers and two databases, and fill the tables for lookups
2. write the archive: files with the flights known at the cutover
3. backfill the archive with Spark; kill a Python worker, then the driver, and start it again
4. cut over, start live workers, feed the later flights, kill one worker
5. in the other world, feed all flights and let live workers process them
6. compare all topics and the table of both worlds
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console

from eosframework.demo.history.archive import Flights, Span, flights_of
from eosframework.demo.history.killed_backfill import JOB, KILLS, KilledBackfill
from eosframework.demo.history.world import TABLE, Content, World, compare, counts
from eosframework.demo.stage import Demo, Outcome, Plan, Stage, open_stage
from eosframework.demo.workers import Workers
from eosframework.errors import ConfigurationError

COMMAND_SECONDS = 120.0
CATCH_UP_SECONDS = 900.0
LOOK_SECONDS = 0.5
NEARLY = 100
"""Offsets: a few control records without a commit follow the last records of partitions."""

LIVE_KILLS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlan(Plan):
    """The parameters of the demo.

    Args:
        span: period of the flights, and end of the archive.
    """

    span: Span


def run_backfill_demo(plan: BackfillPlan, console: Console) -> Outcome:
    """Run the demo, report on `console`, and leave no process running, whatever the outcome.

    Raises:
        ConfigurationError: there are no flights before the cutover, or none after it.
        ComponentFailed: a server or a command ended by itself.
        RunError: the backfill did not end in time.
        KeyboardInterrupt: SIGINT or SIGTERM came; everything has been stopped.
    """
    flights = flights_of(plan.span)
    if not flights.archived or not flights.live:
        raise ConfigurationError(
            f"{len(flights.archived):,} flights are before the cutover and {len(flights.live):,} "
            f"after it; choose dates of the year 2013 that leave some on both sides"
        )
    title = "History by Spark and the rest live, compared with a world where all was live"
    planned_kills = len(KILLS) + LIVE_KILLS
    with open_stage(console, title, planned_kills=planned_kills, keep=plan.keep) as stage:
        return _BackfillDemo(plan, stage, flights).run()


class _BackfillDemo(Demo[BackfillPlan]):
    def __init__(self, plan: BackfillPlan, stage: Stage, flights: Flights) -> None:
        super().__init__(plan, stage)
        self._check = stage.check
        self._flights = flights
        self._kills_seen = 0

    def run(self) -> Outcome:
        backfilled = self._world("backfilled", "kafka")
        live = self._world("live", "live.kafka")
        looked_up = self._prepare(backfilled)
        self._prepare(live)
        self._backfill(backfilled, looked_up)
        self._cut_over(backfilled)
        self._process_later(backfilled)
        self._process_live(live)
        return self._judge(backfilled, live)

    def _world(self, name: str, broker: str) -> World:
        cluster = self._stage.start_kafka(broker)
        server = self._stage.start_postgres(f"{name}.database")
        return World(name, self._stage.directory, cluster, server)

    def _prepare(self, world: World) -> int:
        """Fill the tables, create the rest, and return the number of rows that tasks will read."""
        filled = world.fill_tables()
        world.start("apply").finish(COMMAND_SECONDS, self._check)
        listed = ", ".join(f"{count:,} {topic}" for topic, count in filled.items())
        self._story.say(f"the {world.name} world has its topics, a database, and {listed}")
        return sum(count for topic, count in filled.items() if topic in world.read)

    def _backfill(self, world: World, looked_up: int) -> None:
        archive = self._stage.directory / "archive"
        files, flights = self._flights.write(archive), len(self._flights.archived)
        self._story.say(
            f"{flights:,} flights that were known before {_day(self._plan.span.cutover)} are an "
            f"archive of {len(files)} CSV files; Spark starts on this machine"
        )
        expected = flights * len(world.graph.sub_topologies) + looked_up
        backfill = KilledBackfill(world, archive, expected, self._stage, self._chance)
        state = backfill.run()
        self._kills_seen += backfill.seen
        self._story.say(
            f"the backfill is complete: {len(state.tasks)} tasks have processed "
            f"{sum(progress.records for progress in state.tasks.values()):,} records, joins and "
            f"their tables included"
        )

    def _cut_over(self, world: World) -> None:
        world.start("backfill cutover", "--job", JOB).finish(COMMAND_SECONDS, self._check)
        self._story.say("cut over: live workers resume with its state, at the next record")

    def _process_later(self, world: World) -> None:
        """Feed the later flights to running workers, and kill one of them."""
        with self._workers(world) as workers:
            fed = world.feed(self._flights.live, lambda _: self._look(workers))
            self._story.say(f"{fed:,} flights came later and are fed to live workers")
            while (kill := workers.kill_one(self._chance)) is None:
                self._look(workers)
            self._stage.record_kill(kill)
            self._process(world, workers)
            self._kills_seen += workers.deaths_seen()

    def _process_live(self, world: World) -> None:
        fed = world.feed(self._flights.whole, lambda _: self._check())
        self._story.say(f"in the live world all {fed:,} flights are fed to live workers")
        with self._workers(world) as workers:
            self._process(world, workers)

    @contextmanager
    def _workers(self, world: World) -> Generator[Workers]:
        workers = world.workers()
        try:
            yield workers
        finally:
            workers.end()

    def _look(self, workers: Workers) -> None:
        self._check()
        workers.require_running()

    def _process(self, world: World, workers: Workers) -> None:
        """Let the workers process nearly everything, and two more runs the rest.

        The second run finds no input, so it sends what waits for stream time.
        """
        lag = left = world.lag()
        with self._story.bars(lag, "processed") as bars:

            def is_nearly_done() -> bool:
                nonlocal lag, left
                left = world.lag()
                lag = max(lag, left)
                bars.show(lag - left)
                return left <= NEARLY

            self._stage.wait(
                is_nearly_done,
                lambda: self._look(workers),
                seconds=CATCH_UP_SECONDS,
                pause_seconds=LOOK_SECONDS,
                late=lambda: (
                    f"{left:,} records of the {world.name} world were not processed after "
                    f"{CATCH_UP_SECONDS:g} s; see {world.log_file}"
                ),
            )
        workers.stop()
        for _ in range(2):
            last = world.start("run-worker", "--until-caught-up")
            try:
                last.finish(CATCH_UP_SECONDS, self._check)
            finally:
                last.end()
        self._story.say("they are processed")

    def _judge(self, backfilled: World, live: World) -> Outcome:
        topics = live.outputs
        comparisons = compare(*(self._contents(world, topics) for world in (backfilled, live)))
        self._story.say(
            "both worlds are compared: partition, key, value and time of each record, and each row"
        )
        for one in comparisons:
            verdict = "the same" if one.equal else f"{one.missing:,} missing, {one.extra:,} extra"
            self._story.plain(f"          {one.name:<20}{one.expected:>9,}  {verdict}")
        archived, later = len(self._flights.archived), len(self._flights.live)
        return self._stage.conclude(
            {"backfilled": archived, "live": later, **counts(comparisons)},
            is_right=all(one.equal and one.expected for one in comparisons),
            deaths_seen=self._kills_seen,
            good=f"{archived:,} flights by Spark and {later:,} live made what all "
            f"{archived + later:,} made live, {self._stage.kills} kills or not",
            bad="NOT the same",
        )

    def _contents(self, world: World, topics: list[str]) -> dict[str, Content]:
        self._check()
        found = {topic: world.records(topic) for topic in topics}
        return {**found, f"table {TABLE}": world.rows()}


def _day(moment: datetime) -> str:
    return f"{moment:%-d %B %Y}"
