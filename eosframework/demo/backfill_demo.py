"""The backfill demo from its first line to its verdict.

1. start two brokers and two databases, and fill the tables for lookups
2. write the archive: files with the flights known at the cutover
3. backfill the archive with Spark; kill a Python worker, then the driver, and start it again
4. cut over, start live workers, feed the later flights, kill one worker
5. in the other world, feed all flights and let live workers process them
6. compare all topics and the table of both worlds

The backfill demo: an archive by Spark and the rest live, compared with live processing of all.
Owns the archive, the two worlds to compare, and the kills. It knows nothing of how a backfill
works: it runs a user's commands, and reads their results.

The flights in two parts: files with those known before the cutover, and live ones.
A file has the flights that became known in a month, in that order. A backfill reads files by event
time, path and row, so the live world must get the archived flights in this order.
"""

from __future__ import annotations

import csv
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import psutil
from pydantic import SecretStr
from rich.console import Console

from eosframework.application.journal import KafkaJournal
from eosframework.config import DatabaseSettings, KafkaSettings
from eosframework.demo.feeds import (
    FEEDS,
    MONTHS,
    FedRecord,
    Row,
    example_file,
    known_at,
    landed,
    typed,
)
from eosframework.demo.services import Kill, Service, Workers
from eosframework.demo.stage import PARTITIONS, Bars, Demo, Outcome, Plan, Stage, open_stage
from eosframework.embedded import KafkaCluster, PostgresServer
from eosframework.errors import ConfigurationError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.client.plain_writes import feed
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.operations.audit.output_comparison import digest_of
from eosframework.postgres.database import Database, translating
from eosframework.records import Record, partitions_of
from eosframework.spark.job.job_entry import JobState, decided_job, settled_job
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve

_PROCESSES = 2
_INPUT = "flights.landed"
_TABLE = "hourly_delays"

Content = Counter[bytes]
"""Number of occurrences of each record or row, by digest or text."""

_ROWS = b"SELECT row_to_json(hourly_delays)::text FROM hourly_delays"


class _World:
    """The example `delays` on its own servers.

    Args:
        name: of the directory and in messages.
        directory: of the demo.
        cluster: its broker.
        server: its database.
    """

    def __init__(
        self, name: str, directory: Path, cluster: KafkaCluster, server: PostgresServer
    ) -> None:
        self.name = name
        self.server = server
        self.settings = KafkaSettings(bootstrap_servers=cluster.bootstrap_servers)
        self.admin = ClusterAdmin(self.settings)
        self.topology = example_file("flights", "delays.yaml")
        self.graph: Graph = resolve(load_app(str(self.topology)))
        self.log_file = directory / f"{name}.log"
        self._directory = directory
        self._bootstrap_servers = cluster.bootstrap_servers
        self._environment = {
            "EOS_KAFKA__BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "EOS_DATABASE__DSN": server.dsn,
            "EOS_STATE__DIRECTORY": str(directory / f"{name}.stores"),
            "SPARK_LOCAL_DIRS": str(directory / f"{name}.spark"),
            "TMPDIR": str(directory),
        }

    def fill_tables(self) -> dict[str, int]:
        """Create the input topics, feed the tables, and return their sizes by topic."""
        self.admin.create_topics([TopicToCreate(topic, PARTITIONS) for topic in FEEDS])
        tables = {topic: records for topic, records in FEEDS.items() if topic != _INPUT}
        return {topic: feed(self.settings, topic, of(MONTHS)) for topic, of in tables.items()}

    def feed(self, flights: Iterable[FedRecord], on_turn: Callable[[int], None]) -> int:
        """Feed flights as fast as the broker takes them."""
        return feed(self.settings, _INPUT, flights, on_turn=on_turn)

    def start(self, command: str, *arguments: str) -> Service:
        """Start a command of eosframework on the topology."""
        words = [*command.split(), str(self.topology), *arguments]
        name = f"`eosframework {command}`"
        return Service(name, words, self.log_file, self._environment, self._directory)

    def workers(self) -> Workers:
        """Start workers under their supervisor."""
        return Workers(
            self.topology, self._bootstrap_servers, _PROCESSES, self.log_file, self._environment
        )

    def lag(self) -> int:
        """Return the number of offsets that workers have yet to commit, with control records."""
        partitions = partitions_of(dict.fromkeys(sorted(self.read), PARTITIONS))
        bounds = self.admin.log_bounds(partitions)
        committed = self.admin.committed(self.graph.application, partitions, stable=False)
        return sum(bounds[p.topic_partition][1] - (p.offset or 0) for p in committed)

    @property
    def read(self) -> set[str]:
        """Topics that tasks read, internal topics included."""
        return set(self.graph.source_topics)

    @property
    def outputs(self) -> list[str]:
        """Output topics that the application does not read itself."""
        written = set(self.graph.sink_topics)
        return sorted(written - self.read - set(self.graph.table_sink_topics))

    def records(self, topic: str) -> Content:
        """Return the records of a topic that a `read_committed` reader sees.

        Headers are ignored: those of dead letters contain offsets, which differ between a topic and
        files.
        """
        found: Content = Counter()
        partitions = partitions_of({topic: PARTITIONS})
        for (_, number), messages in read_ranges(self.settings, self.admin.log_bounds(partitions)):
            found.update(
                digest_of(str(number), m.key(), m.value(), m.timestamp()[1], None) for m in messages
            )
        return found

    def rows(self) -> Content:
        """Return the rows of the application's table."""
        settings = DatabaseSettings(dsn=SecretStr(self.server.dsn))
        database = Database(settings, application_name="eosframework demo backfill")
        with (
            translating(f"read table {_TABLE} of {self.name}"),
            closing(database.connect(autocommit=True)) as connection,
        ):
            return Counter(text.encode() for (text,) in connection.execute(_ROWS))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One topic or table in both worlds.

    Args:
        expected: number of records or rows in the live world.
        missing: those missing in the backfilled world.
        extra: those only in the backfilled world.
    """

    name: str
    expected: int
    missing: int
    extra: int

    @property
    def equal(self) -> bool:
        """True if both worlds have the same records or rows, equally often."""
        return not self.missing and not self.extra


def compare(backfilled: Mapping[str, Content], live: Mapping[str, Content]) -> list[Comparison]:
    """Return the comparison of each topic and table, by name."""
    return [
        Comparison(
            name,
            live[name].total(),
            (live[name] - backfilled[name]).total(),
            (backfilled[name] - live[name]).total(),
        )
        for name in sorted({*backfilled, *live})
    ]


def counts(comparisons: Sequence[Comparison]) -> dict[str, int]:
    """Return the totals over all topics and tables."""
    return {
        "compared": sum(one.expected for one in comparisons),
        "missing": sum(one.missing for one in comparisons),
        "extra": sum(one.extra for one in comparisons),
    }


_MINUTE = 60_000
"""In milliseconds."""


@dataclass(frozen=True, slots=True)
class Span:
    """The period of flights: its bounds, and the cutover from archive to live."""

    since: datetime
    cutover: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Flights:
    """The flights of a span, by the time they became known.

    Args:
        archived: before the cutover, in the order in which a backfill reads the files.
        live: later, in the order in which they became known.
        files: the archived ones by file name, in file order.
    """

    archived: Sequence[FedRecord]
    live: Sequence[FedRecord]
    files: Mapping[str, Sequence[FedRecord]]

    @property
    def whole(self) -> list[FedRecord]:
        """All flights, as fed to a topic without a backfill."""
        return [*self.archived, *self.live]

    def write(self, directory: Path) -> list[Path]:
        """Write the archive, a file for each month, and return the files."""
        directory.mkdir()
        for name, records in self.files.items():
            _write_rows(directory / name, records)
        return [directory / name for name in self.files]


def flights_of(span: Span) -> Flights:
    """Return the flights of a span, in their two parts."""
    since, cutover, until = (
        int(moment.timestamp() * 1000) for moment in (span.since, span.cutover, span.until)
    )
    files: defaultdict[str, list[FedRecord]] = defaultdict(list)
    live: list[FedRecord] = []
    for record in landed():
        known = record[2]
        if since <= known < cutover:
            files[f"flights-{datetime.fromtimestamp(known / 1000, UTC):%Y-%m}.csv"].append(record)
        elif cutover <= known < until:
            live.append(record)
    return Flights(_as_read(files), live, dict(files))


def flight(row: dict[str, Any]) -> Record:
    """Return a row of the archive as the record fed live: the same bytes and time."""
    known = typed("flights", row)
    return Record(known["carrier"], known, known_at(known))


def _as_read(files: Mapping[str, Sequence[FedRecord]]) -> list[FedRecord]:
    placed = [
        (_departure(orjson.loads(record[1])), name, number, record)
        for name, records in files.items()
        for number, record in enumerate(records)
    ]
    placed.sort(key=lambda place: place[:3])
    return [record for *_, record in placed]


def _departure(row: Row) -> int:
    hour = datetime.fromisoformat(row["time_hour"])
    return int(hour.timestamp()) * 1000 + row["minute"] * _MINUTE


def _write_rows(path: Path, records: Sequence[FedRecord]) -> None:
    rows: list[Row] = [orjson.loads(value) for _, value, _ in records]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)


_JOB = "archive"
_SETTINGS = ("backfill.commit_interval_seconds=0.5", "backfill.stall_seconds=3")
"""Transactions are open at each kill, and a retry waits only briefly for the killed attempt."""

_KILL_LOOK_SECONDS = 0.2
_DECIDED_SECONDS = 0.1
"""Time after which transactions that were open at a look are decided."""

_RUN_SECONDS = 900.0
_GONE_SECONDS = 10.0
_KILLS = (("worker", 0.1), ("driver", 0.45))
"""Victims, and the processed share at which each is killed."""


@dataclass(slots=True)
class _KilledBackfill:
    """Runs the job until it is complete.

    Args:
        world: target of the job.
        archive: directory with the files.
        expected: approximate number of records that the tasks of all sub-topologies process.
        stage: of the demo.
        chance: chooses victims.

    Attributes:
        seen: kills with an observed effect: a retry of Spark, an ended driver.
    """

    world: _World
    archive: Path
    expected: int
    stage: Stage
    chance: random.Random
    seen: int = 0
    _drivers: list[Service] = field(default_factory=list[Service])

    def run(self) -> JobState:
        """Return the complete job.

        Raises:
            ComponentFailed: a driver failed without a kill.
            RunError: the job did not end in time.
        """
        world = self.world
        journal = KafkaJournal(world.graph.application, world.settings, world.admin)
        try:
            self._start()
            with self.stage.story.bars(self.expected, "processed") as bars:
                self.stage.wait(
                    lambda: not self._drivers[-1].is_running,
                    lambda: self._look(journal, bars),
                    seconds=_RUN_SECONDS,
                    pause_seconds=_KILL_LOOK_SECONDS,
                    late=lambda: (
                        f"job {_JOB!r} was not complete after {_RUN_SECONDS:g} s; see "
                        f"{self.world.log_file}"
                    ),
                )
            self._drivers[-1].finish(_GONE_SECONDS, self.stage.check)
        finally:
            for driver in self._drivers:
                driver.end()
        state = settled_job(journal, _JOB)
        assert state is not None, "its driver has ended well"
        return state

    def _start(self) -> None:
        source = f"{_INPUT}=csv:{self.archive};record={flight.__module__}:{flight.__name__}"
        arguments = ["--job", _JOB, "--source", f"{source};option.header=true"]
        arguments += [f"--set={setting}" for setting in _SETTINGS]
        temporary = f"-Djava.io.tmpdir={self.archive.parent}"
        arguments += ["--spark", f"spark.driver.extraJavaOptions={temporary}"]
        self._drivers.append(self.world.start("backfill run", *arguments))

    def _look(self, journal: KafkaJournal, bars: Bars) -> None:
        self._read_events()
        if (state := decided_job(journal, _JOB)) is None:
            return
        processed = sum(progress.records for progress in state.tasks.values())
        bars.show(processed)
        if self.stage.kills > self.seen or self.stage.kills == len(_KILLS):
            return
        what, share = _KILLS[self.stage.kills]
        if processed >= share * self.expected and (tasks := _running(state)):
            is_worker = what == "worker"
            kill = self._kill_worker(journal, tasks) if is_worker else self._kill_driver(tasks)
            self.stage.record_kill(kill)

    def _kill_worker(self, journal: KafkaJournal, tasks: Mapping[str, str]) -> Kill | None:
        """SIGKILL a Python process in the middle of a task; None: the task is already complete."""
        task = self.chance.choice(sorted(tasks))
        pid = int(tasks[task].split("/")[1])
        try:
            victim = psutil.Process(pid)
            victim.suspend()
        except psutil.NoSuchProcess:
            return None
        time.sleep(_DECIDED_SECONDS)
        state = decided_job(journal, _JOB)
        if state is None or _running(state).get(task) != tasks[task]:
            victim.resume()
            return None
        victim.kill()
        return Kill(pid, "a Python worker of Spark", (task,))

    def _kill_driver(self, tasks: Mapping[str, str]) -> Kill:
        """SIGKILL the command alone, not its children, and run the same command again."""
        driver = self._drivers[-1]
        driver.kill()
        self.seen += 1
        self._start()
        return Kill(driver.pid, "the driver", tuple(sorted(tasks)))

    def _read_events(self) -> None:
        for event in self._drivers[-1].new_events():
            if event.get("event") == "attempt_watches":
                self.seen += 1
                self.stage.story.say(
                    "Spark retries its task, which resumes at the committed position"
                )


def _running(state: JobState) -> dict[str, str]:
    """Return the attempt of each running task, by the task's name."""
    return {
        f"{sub_topology}[{number}]": progress.attempt
        for (sub_topology, number), progress in state.tasks.items()
        if not progress.complete and not progress.ended
    }


_COMMAND_SECONDS = 120.0
_CATCH_UP_SECONDS = 900.0
_LOOK_SECONDS = 0.5
_NEARLY = 100
"""Offsets: a few control records without a commit follow the last records of partitions."""

_LIVE_KILLS = 1


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
    planned_kills = len(_KILLS) + _LIVE_KILLS
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

    def _world(self, name: str, broker: str) -> _World:
        cluster = self._stage.start_kafka(broker)
        server = self._stage.start_postgres(f"{name}.database")
        return _World(name, self._stage.directory, cluster, server)

    def _prepare(self, world: _World) -> int:
        """Fill the tables, create the rest, and return the number of rows that tasks will read."""
        filled = world.fill_tables()
        world.start("apply").finish(_COMMAND_SECONDS, self._check)
        listed = ", ".join(f"{count:,} {topic}" for topic, count in filled.items())
        self._story.say(f"the {world.name} world has its topics, a database, and {listed}")
        return sum(count for topic, count in filled.items() if topic in world.read)

    def _backfill(self, world: _World, looked_up: int) -> None:
        archive = self._stage.directory / "archive"
        files, flights = self._flights.write(archive), len(self._flights.archived)
        self._story.say(
            f"{flights:,} flights that were known before {_day(self._plan.span.cutover)} are an "
            f"archive of {len(files)} CSV files; Spark starts on this machine"
        )
        expected = flights * len(world.graph.sub_topologies) + looked_up
        backfill = _KilledBackfill(world, archive, expected, self._stage, self._chance)
        state = backfill.run()
        self._kills_seen += backfill.seen
        self._story.say(
            f"the backfill is complete: {len(state.tasks)} tasks have processed "
            f"{sum(progress.records for progress in state.tasks.values()):,} records, joins and "
            f"their tables included"
        )

    def _cut_over(self, world: _World) -> None:
        world.start("backfill cutover", "--job", _JOB).finish(_COMMAND_SECONDS, self._check)
        self._story.say("cut over: live workers resume with its state, at the next record")

    def _process_later(self, world: _World) -> None:
        """Feed the later flights to running workers, and kill one of them."""
        with self._workers(world) as workers:
            fed = world.feed(self._flights.live, lambda _: self._look(workers))
            self._story.say(f"{fed:,} flights came later and are fed to live workers")
            while (kill := workers.kill_one(self._chance)) is None:
                self._look(workers)
            self._stage.record_kill(kill)
            self._process(world, workers)
            self._kills_seen += workers.deaths_seen()

    def _process_live(self, world: _World) -> None:
        fed = world.feed(self._flights.whole, lambda _: self._check())
        self._story.say(f"in the live world all {fed:,} flights are fed to live workers")
        with self._workers(world) as workers:
            self._process(world, workers)

    @contextmanager
    def _workers(self, world: _World) -> Generator[Workers]:
        workers = world.workers()
        try:
            yield workers
        finally:
            workers.end()

    def _look(self, workers: Workers) -> None:
        self._check()
        workers.require_running()

    def _process(self, world: _World, workers: Workers) -> None:
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
                return left <= _NEARLY

            self._stage.wait(
                is_nearly_done,
                lambda: self._look(workers),
                seconds=_CATCH_UP_SECONDS,
                pause_seconds=_LOOK_SECONDS,
                late=lambda: (
                    f"{left:,} records of the {world.name} world were not processed after "
                    f"{_CATCH_UP_SECONDS:g} s; see {world.log_file}"
                ),
            )
        workers.stop()
        for _ in range(2):
            last = world.start("run-worker", "--until-caught-up")
            try:
                last.finish(_CATCH_UP_SECONDS, self._check)
            finally:
                last.end()
        self._story.say("they are processed")

    def _judge(self, backfilled: _World, live: _World) -> Outcome:
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

    def _contents(self, world: _World, topics: list[str]) -> dict[str, Content]:
        self._check()
        found = {topic: world.records(topic) for topic in topics}
        return {**found, f"table {_TABLE}": world.rows()}


def _day(moment: datetime) -> str:
    return f"{moment:%-d %B %Y}"
