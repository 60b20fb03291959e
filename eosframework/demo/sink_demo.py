"""The demo of Spark's sinks from its first line to its verdict.

1. start a broker, a database and a Spark cluster with two executors
2. feed the weather and the flights, in the order in which they became known
3. run the pipeline; kill a Python worker, an executor and the driver, each in the middle of a
   shard, and start the driver again
4. compare the topic and the table with pandas

The demo of sinks for Spark: a pipeline whose processes are killed, compared with pandas.
It runs examples/spark-pipeline as it is.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
import psutil
from pydantic import SecretStr
from rich.console import Console

from eosframework.application.journal import KafkaJournal
from eosframework.config import DatabaseSettings, KafkaSettings
from eosframework.demo.feeds import MONTHS, FedRecord, example_file, landed, weather
from eosframework.demo.services import Kill, Program
from eosframework.demo.stage import PARTITIONS, Demo, Outcome, Plan, Stage, open_stage
from eosframework.embedded import PostgresServer
from eosframework.embedded.data_directory import free_ports
from eosframework.embedded.jars import find_spark_java
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.plain_writes import feed
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.postgres.database import Database, translating
from eosframework.records import partitions_of
from eosframework.spark.sinks.sink_entry import ShardProgress, shards_prefix

Hour = tuple[str, int]
"""Airport, and seconds since the epoch."""

Figures = tuple[int, int, int, float | None, float | None]
"""Flights, departed ones, minutes of delay, temperature, wind speed."""

_FIGURES = ("flights", "departed", "delay_minutes", "temperature", "wind_speed")

_ROWS = b"""
SELECT origin, extract(epoch FROM time_hour)::bigint,
       flights, departed, delay_minutes, temperature, wind_speed
FROM delays_by_hour
"""


def _expected(flights: Iterable[FedRecord], weather: Iterable[FedRecord]) -> dict[Hour, Figures]:
    """Return the hours that pandas computes from the fed records."""
    from importlib import import_module

    pandas: Any = import_module("pandas")
    keys = ["origin", "time_hour"]
    known = pandas.DataFrame([orjson.loads(value) for _, value, _ in flights])
    observed = pandas.DataFrame([orjson.loads(value) for _, value, _ in weather])
    hours = known.groupby(keys, as_index=False).agg(
        flights=("dest", "size"),
        departed=("dep_delay", "count"),
        delay_minutes=("dep_delay", "sum"),
    )
    most = observed.groupby(keys, as_index=False).agg(
        temperature=("temp", "max"), wind_speed=("wind_speed", "max")
    )
    joined: list[dict[str, Any]] = hours.merge(most, "left", keys).to_dict("records")
    return {(row["origin"], _seconds(row["time_hour"])): _figures(row) for row in joined}


@dataclass(frozen=True, slots=True)
class Updates:
    """The topic as a `read_committed` reader sees it.

    Args:
        last: the last record of each hour.
        records: number of records.
        repeated: records of an hour that count no more flights than the one before.
    """

    last: Mapping[Hour, Figures]
    records: int
    repeated: int


def _read_updates(settings: KafkaSettings, topic: str) -> Updates:
    """Read the topic; the count of an hour grows with each record, unless one is repeated."""
    last: dict[Hour, Figures] = {}
    records = repeated = 0
    bounds = ClusterAdmin(settings).log_bounds(partitions_of({topic: PARTITIONS}))
    for _, messages in read_ranges(settings, bounds):
        for message in messages:
            row = orjson.loads(message.value() or b"")
            hour = row["origin"], _seconds(row["time_hour"])
            figures = _figures(row)
            records += 1
            repeated += hour in last and figures[0] <= last[hour][0]
            last[hour] = figures
    return Updates(last, records, repeated)


def _read_table(dsn: str) -> dict[Hour, Figures]:
    """Return the rows of the table."""
    database = Database(
        DatabaseSettings(dsn=SecretStr(dsn)), application_name="eosframework demo spark"
    )
    with (
        translating("read table delays_by_hour"),
        closing(database.connect(autocommit=True)) as connection,
    ):
        rows: Sequence[Any] = connection.execute(_ROWS).fetchall()
    return {
        (origin, int(hour)): _figures(dict(zip(_FIGURES, figures, strict=True)))
        for origin, hour, *figures in rows
    }


def _differing(found: Mapping[Hour, Figures], wanted: Mapping[Hour, Figures]) -> tuple[int, int]:
    """Return how many hours are missing or wrong, and how many there should not be."""
    ours, theirs = Counter(found.items()), Counter(wanted.items())
    return (theirs - ours).total(), (ours - theirs).total()


def _figures(row: Mapping[str, Any]) -> Figures:
    """Return the figures of an hour; pandas has NaN for unknown ones, JSON null."""
    flights, departed, delay_minutes, *weather = (row[name] for name in _FIGURES)
    temperature, wind = (None if one is None or one != one else float(one) for one in weather)
    return int(flights), int(departed), int(delay_minutes), temperature, wind


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp())


_HOSTS = ("127.0.0.2", "127.0.0.3")
"""Addresses of this machine, so that Spark takes the workers for two machines."""

_START_SECONDS = 120.0
_CLUSTER_LOOK_SECONDS = 0.2


class _SparkCluster:
    """A standalone cluster; its processes end with this one in any case.

    Args:
        stage: of the demo.
        directory: of logs and files.

    Attributes:
        master: address for drivers.
        environment: variables for a driver.
    """

    def __init__(self, stage: Stage, directory: Path) -> None:
        directory.mkdir()
        found = find_spec("pyspark")
        assert found is not None, "its presence was checked"
        assert found.origin is not None, "pyspark is a package with files"
        self._home = Path(found.origin).parent
        self._stage = stage
        self._directory = directory
        [port] = free_ports(1)
        self.master = f"spark://127.0.0.1:{port}"
        self.environment: Mapping[str, str] = {
            "JAVA_HOME": str(find_spark_java().parent.parent),
            "SPARK_DAEMON_MEMORY": "200m",
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "TMPDIR": str(directory),
        }
        self._start("master.Master", "127.0.0.1", "--port", str(port))
        for host in _HOSTS:
            place = ("--work-dir", str(directory / host))
            self._start(
                "worker.Worker", host, "--cores", "1", "--memory", "1g", *place, self.master
            )
        stage.wait(
            lambda: self._log("127.0.0.1").read_text().count("Registering worker") == len(_HOSTS),
            lambda: None,
            seconds=_START_SECONDS,
            pause_seconds=_CLUSTER_LOOK_SECONDS,
            late=lambda: f"Spark's workers did not start; see {self._log('127.0.0.1')}",
        )

    def _start(self, name: str, host: str, *arguments: str) -> None:
        command = [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        command += ["--host", host, "--webui-port", "0", *arguments]
        environment = {**self.environment, "SPARK_LOCAL_IP": host}
        program = Program(f"Spark's {name}", command, self._log(host), environment, self._directory)
        self._stage.cleanup.callback(program.end)

    def _log(self, host: str) -> Path:
        return self._directory / f"{host}.log"


_EXAMPLE = "spark-pipeline"
_APPLICATION = "report"
_SINK = "delays_hourly"
_OUTPUT = "delays.hourly"

_BATCHES = 4
"""Each begins with seconds of Spark, and shards are long enough for kills in their middle."""

_CHUNK_RECORDS = 5
"""Rows of a transaction: few, so that processes are in the middle of a shard for long."""

_STALL_SECONDS = 3
_KILLS = ("worker", "executor", "driver")
_RUN_SECONDS = 1800.0
_LOOK_SECONDS = 0.05
_GONE_SECONDS = 60.0
_EXECUTOR = "CoarseGrainedExecutorBackend"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlan(Plan):
    """The parameters of the demo.

    Args:
        flights: number of flights, from the first; None: all.
    """

    flights: int | None


def run_sink_demo(plan: SinkPlan, console: Console) -> Outcome:
    """Run the demo, report on `console`, and leave no process running, whatever the outcome.

    Raises:
        ComponentFailed: a server or the pipeline ended by itself.
        RunError: the pipeline did not end in time.
        KeyboardInterrupt: SIGINT or SIGTERM came; everything has been stopped.
    """
    title = "Flights through Spark into a topic and a table, while Spark is killed"
    with open_stage(console, title, planned_kills=len(_KILLS), keep=plan.keep) as stage:
        return _SinkDemo(plan, stage).run()


class _SinkDemo(Demo[SinkPlan]):
    def __init__(self, plan: SinkPlan, stage: Stage) -> None:
        super().__init__(plan, stage)
        self._seen = 0
        self._killed: tuple[str, str] | None = None
        self._drivers: list[Program] = []
        self._log_file = stage.directory / "pipeline.log"

    def run(self) -> Outcome:
        stage = self._stage
        cluster = stage.start_kafka("kafka")
        server = stage.start_postgres("database")
        self._settings = stage.create_topics(cluster, ["weather", "flights.landed", _OUTPUT])
        self._environment = {
            "EOS_KAFKA__BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "EOS_DATABASE__DSN": server.dsn,
            "EOS_BACKFILL__CHUNK_RECORDS": str(_CHUNK_RECORDS),
            "EOS_BACKFILL__COMMIT_INTERVAL_SECONDS": "0.5",
            "EOS_BACKFILL__STALL_SECONDS": str(_STALL_SECONDS),
        }
        _create_table(server)
        observed, flights = weather(MONTHS), landed()[: self._plan.flights]
        self._feed("weather", observed)
        self._feed("flights.landed", flights)
        self._spark = _SparkCluster(stage, stage.directory / "spark")
        self._story.say(f"Spark is up at {self._spark.master}, with two executors")
        self._batch = -(-len(flights) // _BATCHES)
        self._journal = KafkaJournal(_APPLICATION, self._settings, ClusterAdmin(self._settings))
        self._process()
        return self._judge(server, flights, observed)

    def _feed(self, topic: str, records: Iterable[FedRecord]) -> None:
        fed = feed(self._settings, topic, records, on_turn=lambda _: self._stage.check())
        self._story.say(f"{fed:,} records are in {topic}")

    # --- the pipeline ---------------------------------------------------------------------------

    def _process(self) -> None:
        """Run the pipeline to its end, and kill what it consists of meanwhile."""
        self._start()
        try:
            self._stage.wait(
                lambda: not self._drivers[-1].is_running,
                self._look,
                seconds=_RUN_SECONDS,
                pause_seconds=_LOOK_SECONDS,
                late=lambda: f"the pipeline had not ended; see {self._log_file}",
            )
            self._drivers[-1].finish(_GONE_SECONDS, self._stage.check)
        finally:
            for driver in self._drivers:
                driver.end()
        self._look()
        self._story.say("the pipeline has processed all flights")

    def _start(self) -> None:
        program = ["-m", "eosframework.demo.sink_driver", self._spark.master]
        file = example_file(_EXAMPLE, "pipeline.py")
        checkpoint = self._stage.directory / "checkpoint"
        command = [sys.executable, *program, str(file), str(checkpoint), str(self._batch)]
        environment = {
            **self._spark.environment,
            **self._environment,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._drivers.append(
            Program("the pipeline", command, self._log_file, environment, self._stage.directory)
        )

    def _look(self) -> None:
        """Kill the next process that is in the middle of a shard, once the last kill had effect."""
        shards = self._shards()
        if self._killed is not None:
            shard, attempt = self._killed
            if shards[shard].attempt == attempt:
                return
            self._killed = None
            self._seen += 1
            self._story.say(f"{shard} is resumed by another attempt, at the committed row")
        if self._stage.kills == len(_KILLS):
            return
        working = sorted(name for name, one in shards.items() if _is_in_the_middle(one))
        if working:
            shard = self._chance.choice(working)
            self._kill(_KILLS[self._stage.kills], shard, shards[shard].attempt)

    def _kill(self, kind: str, shard: str, attempt: str) -> None:
        """Kill the process of an attempt, or what it belongs to, unless it has just ended.

        The attempt is suspended first, so that it stays in the middle of its shard.
        """
        with suppress(psutil.Error):
            worker = psutil.Process(int(attempt.split("/")[1]))
            executor = next(one for one in worker.parents() if _EXECUTOR in " ".join(one.cmdline()))
            worker.suspend()
            now = self._shards()[shard]
            if now.attempt != attempt or not _is_in_the_middle(now):
                worker.resume()
                return
            victim, name = worker.pid, "a Python worker of Spark"
            if kind == "worker":
                worker.kill()
            elif kind == "executor":
                victim, name = executor.pid, "an executor with its Python worker"
                executor.kill()
                worker.kill()
            else:
                victim, name = self._drivers[-1].pid, "the driver"
                self._drivers[-1].kill()
                worker.resume()
                self._start()
            self._killed = shard, attempt
            self._stage.record_kill(Kill(victim, name, (shard,)))

    def _shards(self) -> dict[str, ShardProgress]:
        prefix = shards_prefix(_SINK)
        entries = self._journal.decided_under(prefix)
        return {
            f"shard {key.removeprefix(prefix)}": ShardProgress.from_entry(entry)
            for key, entry in entries.items()
        }

    # --- the verdict ----------------------------------------------------------------------------

    def _judge(
        self, server: PostgresServer, flights: list[FedRecord], observed: list[FedRecord]
    ) -> Outcome:
        wanted = _expected(flights, observed)
        updates = _read_updates(self._settings, _OUTPUT)
        in_topic = _differing(updates.last, wanted)
        in_table = _differing(_read_table(server.dsn), wanted)
        self._story.say("each hour is compared with pandas, in the topic and in the table")
        for name, (missing, extra) in ((_OUTPUT, in_topic), ("delays_by_hour", in_table)):
            verdict = f"{missing:,} missing, {extra:,} extra" if missing or extra else "the same"
            self._story.plain(f"          {name:<20}{len(wanted):>9,}  {verdict}")
        self._story.plain(
            f"          {updates.records:,} changes of hours, {updates.repeated:,} repeated"
        )
        return self._stage.conclude(
            {
                "flights": len(flights),
                "hours": len(wanted),
                "changes": updates.records,
                "missing": in_topic[0] + in_table[0],
                "extra": in_topic[1] + in_table[1],
                "repeated": updates.repeated,
            },
            is_right=not any((*in_topic, *in_table, updates.repeated)),
            deaths_seen=self._seen,
            good=f"{len(flights):,} flights made the hours that pandas computes, each change once, "
            f"{self._stage.kills} kills or not",
            bad="NOT what pandas computes",
        )


def _is_in_the_middle(progress: ShardProgress) -> bool:
    return progress.rows > 0 and not progress.complete and not progress.ended


def _create_table(server: PostgresServer) -> None:
    settings = DatabaseSettings(dsn=SecretStr(server.dsn))
    database = Database(settings, application_name="eosframework demo spark")
    statement = example_file(_EXAMPLE, "delays.sql").read_bytes()
    with (
        translating("create table delays_by_hour"),
        closing(database.connect(autocommit=True)) as connection,
    ):
        connection.execute(statement)
