"""The demo of Spark's sinks from its first line to its verdict.

1. start a broker, a database and a Spark cluster with two executors
2. feed the weather and the flights, in the order in which they became known
3. run the pipeline; kill a Python worker, an executor and the driver, each in the middle of a
   shard, and start the driver again
4. compare the topic and the table with pandas
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass

import psutil
from pydantic import SecretStr
from rich.console import Console

from eosframework.application.control_log import ControlLog
from eosframework.config import DatabaseSettings
from eosframework.demo.feeds import MONTHS, FedRecord, landed, weather
from eosframework.demo.files import example_file
from eosframework.demo.kills import Kill
from eosframework.demo.services import Program
from eosframework.demo.stage import Demo, Outcome, Plan, Stage, open_stage
from eosframework.demo.streaming.expected_hours import (
    differing,
    expected,
    read_table,
    read_updates,
)
from eosframework.demo.streaming.spark_cluster import SparkCluster
from eosframework.embedded import PostgresServer
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.plain_writes import feed
from eosframework.postgres import Database, translating
from eosframework.spark.sink_entry import ShardProgress, shards_prefix

EXAMPLE = "spark-pipeline"
APPLICATION = "report"
SINK = "delays_hourly"
OUTPUT = "delays.hourly"

BATCHES = 4
"""Each begins with seconds of Spark, and shards are long enough for kills in their middle."""

CHUNK_RECORDS = 5
"""Rows of a transaction: few, so that processes are in the middle of a shard for long."""

STALL_SECONDS = 3
KILLS = ("worker", "executor", "driver")
RUN_SECONDS = 1800.0
LOOK_SECONDS = 0.05
GONE_SECONDS = 60.0
EXECUTOR = "CoarseGrainedExecutorBackend"


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
    with open_stage(console, title, planned_kills=len(KILLS), keep=plan.keep) as stage:
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
        self._settings = stage.create_topics(cluster, ["weather", "flights.landed", OUTPUT])
        self._environment = {
            "EOS_KAFKA__BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "EOS_DATABASE__DSN": server.dsn,
            "EOS_BACKFILL__CHUNK_RECORDS": str(CHUNK_RECORDS),
            "EOS_BACKFILL__COMMIT_INTERVAL_SECONDS": "0.5",
            "EOS_BACKFILL__STALL_SECONDS": str(STALL_SECONDS),
        }
        _create_table(server)
        observed, flights = weather(MONTHS), landed()[: self._plan.flights]
        self._feed("weather", observed)
        self._feed("flights.landed", flights)
        self._spark = SparkCluster(stage, stage.directory / "spark")
        self._story.say(f"Spark is up at {self._spark.master}, with two executors")
        self._batch = -(-len(flights) // BATCHES)
        self._log = ControlLog(
            APPLICATION, self._settings, ClusterAdmin(self._settings), settle_seconds=GONE_SECONDS
        )
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
                seconds=RUN_SECONDS,
                pause_seconds=LOOK_SECONDS,
                late=lambda: f"the pipeline had not ended; see {self._log_file}",
            )
            self._drivers[-1].finish(GONE_SECONDS, self._stage.check)
        finally:
            for driver in self._drivers:
                driver.end()
        self._look()
        self._story.say("the pipeline has processed all flights")

    def _start(self) -> None:
        program = ["-m", "eosframework.demo.streaming.driver_program", self._spark.master]
        file = example_file(EXAMPLE, "pipeline.py")
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
        if self._stage.kills == len(KILLS):
            return
        working = sorted(name for name, one in shards.items() if _is_in_the_middle(one))
        if working:
            shard = self._chance.choice(working)
            self._kill(KILLS[self._stage.kills], shard, shards[shard].attempt)

    def _kill(self, kind: str, shard: str, attempt: str) -> None:
        """Kill the process of an attempt, or what it belongs to, unless it has just ended.

        The attempt is suspended first, so that it stays in the middle of its shard.
        """
        with suppress(psutil.Error):
            worker = psutil.Process(int(attempt.split("/")[1]))
            executor = next(one for one in worker.parents() if EXECUTOR in " ".join(one.cmdline()))
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
        if not self._log.exists():
            return {}
        prefix = shards_prefix(SINK)
        entries = self._log.decided(prefix)
        return {
            f"shard {key.removeprefix(prefix)}": ShardProgress.from_entry(entry)
            for key, entry in entries.items()
        }

    # --- the verdict ----------------------------------------------------------------------------

    def _judge(
        self, server: PostgresServer, flights: list[FedRecord], observed: list[FedRecord]
    ) -> Outcome:
        wanted = expected(flights, observed)
        updates = read_updates(self._settings, OUTPUT)
        in_topic = differing(updates.last, wanted)
        in_table = differing(read_table(server.dsn), wanted)
        self._story.say("each hour is compared with pandas, in the topic and in the table")
        for name, (missing, extra) in ((OUTPUT, in_topic), ("delays_by_hour", in_table)):
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
    statement = example_file(EXAMPLE, "delays.sql").read_bytes()
    with (
        translating("create table delays_by_hour"),
        closing(database.connect(autocommit=True)) as connection,
    ):
        connection.execute(statement)
