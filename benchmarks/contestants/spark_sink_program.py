"""Sinks of Spark, ours and those that users have without it, in one Spark session.

Arguments are steps, each WHAT,APPLICATION,OUTPUT,RECORDS, with WHAT a name of `STEPS`. Each step
prints a line of JSON: its name, its seconds, the processor time of Spark and its Python workers in
seconds, and the seconds of each micro-batch. OUTPUT is a topic, or a table in the database
BENCH_DSN.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
from psycopg import sql

from benchmarks.inputs import PARTITIONS
from eosframework.config import Settings, load_settings
from eosframework.spark import kafka_sink, register, table_sink
from eosframework.spark.backfill import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SERVERS = os.environ["BENCH_BOOTSTRAP_SERVERS"]
INPUT = os.environ["BENCH_INPUT"]
DSN = os.environ["BENCH_DSN"]
SHARDS = 8
MICRO_BATCH_RECORDS = 1000
LARGE_BATCH_RECORDS = 100_000
ORDER = "order bigint, customer string, product string, amount bigint, price double"


def main() -> None:
    spark = spark_session(None, {})
    try:
        for step in sys.argv[1:]:
            what, application, output, records = step.split(",")
            used, began = _cpu_seconds(), time.monotonic()
            batches = STEPS[what](spark, application, output, int(records))
            seconds = time.monotonic() - began
            used = _cpu_seconds() - used
            line = {"what": what, "seconds": seconds, "cpu_seconds": used, "batches": batches}
            print(json.dumps(line), flush=True)
    finally:
        spark.stop()


def own_topic(spark: SparkSession, application: str, output: str, records: int) -> list[float]:
    """Copy a topic, exactly once."""
    with tempfile.TemporaryDirectory() as directory:
        sink = kafka_sink(
            output,
            application=application,
            key="key",
            value="value",
            shards=SHARDS,
            settings=_settings(),
        )
        sink.write(_copied(spark, records), "bench", directory)
    return []


def plain_topic(spark: SparkSession, _: str, output: str, records: int) -> list[float]:
    """Copy a topic by Spark's own sink, at least once."""
    _copied(spark, records).write.format("kafka").options(**_to(output)).save()
    return []


def own_table(spark: SparkSession, application: str, output: str, records: int) -> list[float]:
    """Copy a topic's records into a table, exactly once."""
    with tempfile.TemporaryDirectory() as directory:
        sink = table_sink(
            output, application=application, dsn=DSN, shards=SHARDS, settings=_settings()
        )
        sink.write(_orders(spark, records), "bench", directory)
    return []


def plain_table(spark: SparkSession, _: str, output: str, records: int) -> list[float]:
    """Copy them by a hand-written function for each Spark partition, at least once."""
    columns = [name.split()[0] for name in ORDER.split(", ")]
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(output), sql.SQL(", ").join(map(sql.Identifier, columns))
    )

    def write(rows: Iterable[Any]) -> None:
        with psycopg.connect(DSN) as connection, connection.cursor().copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    _orders(spark, records).foreachPartition(write)
    return []


def own_micro(spark: SparkSession, application: str, output: str, records: int) -> list[float]:
    """Copy a topic in micro-batches, exactly once."""
    return _streamed(spark, records, _into_sink(application, output))


def plain_micro(spark: SparkSession, _: str, output: str, records: int) -> list[float]:
    """Copy a topic in micro-batches by Spark's own sink, at least once."""
    return _streamed(spark, records, lambda writer: writer.format("kafka").options(**_to(output)))


def own_format(spark: SparkSession, application: str, output: str, records: int) -> list[float]:
    """Copy a topic in large batches by the format, exactly once."""
    register(spark)
    given = {"application": application, "shards": str(SHARDS), **_to(output)}

    def into(writer: Any) -> Any:
        return writer.format("eos_kafka").options(**given)

    return _streamed(spark, records, into, LARGE_BATCH_RECORDS)


def plain_format(spark: SparkSession, application: str, output: str, records: int) -> list[float]:
    """Copy a topic in large batches by `kafka_sink`, exactly once."""
    return _streamed(spark, records, _into_sink(application, output), LARGE_BATCH_RECORDS)


STEPS = {
    "own topic": own_topic,
    "plain topic": plain_topic,
    "own table": own_table,
    "plain table": plain_table,
    "own micro": own_micro,
    "plain micro": plain_micro,
    "own format": own_format,
    "plain format": plain_format,
}


def _cpu_seconds() -> float:
    """Return the processor time of this process and all below it, ended ones included."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _copied(spark: SparkSession, records: int) -> DataFrame:
    ends = {n: len(range(n, records, PARTITIONS)) for n in range(PARTITIONS)}
    rows = spark.read.format("kafka").options(
        **{
            "kafka.bootstrap.servers": SERVERS,
            "subscribe": INPUT,
            "startingOffsets": "earliest",
            "endingOffsets": json.dumps({INPUT: ends}),
        }
    )
    return rows.load().select("key", "value")


def _orders(spark: SparkSession, records: int) -> DataFrame:
    rows = _copied(spark, records)
    return rows.selectExpr(f"from_json(string(value), '{ORDER}') AS row").select("row.*")


def _into_sink(application: str, output: str) -> Callable[[Any], Any]:
    sink = kafka_sink(
        output,
        application=application,
        key="key",
        value="value",
        shards=SHARDS,
        settings=_settings(),
    )
    return lambda writer: writer.foreachBatch(sink)


def _streamed(
    spark: SparkSession,
    records: int,
    to: Callable[[Any], Any],
    batch_records: int = MICRO_BATCH_RECORDS,
) -> list[float]:
    """Run a query over some records, and return the seconds of its micro-batches."""
    rows = spark.readStream.format("kafka").options(
        **{
            "kafka.bootstrap.servers": SERVERS,
            "subscribe": INPUT,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(batch_records),
        }
    )
    batches = -(-records // batch_records)
    with tempfile.TemporaryDirectory() as directory:
        writer = rows.load().select("key", "value").writeStream
        query = to(writer).option("checkpointLocation", directory).start()
        try:
            while query.lastProgress is None or query.lastProgress["batchId"] + 1 < batches:
                if (error := query.exception()) is not None:
                    raise error
                time.sleep(0.1)
            return [one["durationMs"]["triggerExecution"] / 1000 for one in query.recentProgress]
        finally:
            query.stop()


def _to(topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": SERVERS, "topic": topic}


def _settings() -> Settings:
    servers = f"kafka.bootstrap_servers={SERVERS}"
    return load_settings(None, [servers, "kafka.request_timeout_seconds=60"])


if __name__ == "__main__":
    main()
