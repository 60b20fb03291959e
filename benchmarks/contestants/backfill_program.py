"""Backfills and Spark's own copies of a topic, one after the other in one Spark session.

Arguments are steps, each WHAT,APPLICATION,OUTPUT,RECORDS with WHAT one of `backfill` and `sink`; of
each step a line tells how many seconds it took, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.contestants.framework_topology import double
from benchmarks.inputs import PARTITIONS
from eosframework import Topology
from eosframework.config import load_settings
from eosframework.spark.backfill import Backfill, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVERS = os.environ["BENCH_BOOTSTRAP_SERVERS"]
INPUT = os.environ["BENCH_INPUT"]


def main() -> None:
    spark = spark_session(None, {})
    try:
        for step in sys.argv[1:]:
            what, application, output, records = step.split(",")
            ends = {n: len(range(n, int(records), PARTITIONS)) for n in range(PARTITIONS)}
            began = time.monotonic()
            if what == "backfill":
                backfill(spark, application, output, ends)
            else:
                sink(spark, output, ends)
            print(json.dumps({"what": what, "seconds": time.monotonic() - began}), flush=True)
    finally:
        spark.stop()


def backfill(spark: SparkSession, application: str, output: str, ends: dict[int, int]) -> None:
    """Decode, double and encode every record, exactly once."""
    app = Topology(application)
    orders = app.stream(INPUT, key=bytes, value=dict, name="orders")
    orders.map_values(double).named("doubled").to(output)
    settings = load_settings(None, [f"kafka.bootstrap_servers={SERVERS}"])
    to = [f"{INPUT}[{number}]={end}" for number, end in ends.items()]
    Backfill(app, job="bench", end=to, settings=settings).run(spark)


def sink(spark: SparkSession, output: str, ends: dict[int, int]) -> None:
    """Copy every record as Spark does it by itself: at least once, and no function sees it."""
    rows = spark.read.format("kafka").options(
        **{
            "kafka.bootstrap.servers": SERVERS,
            "subscribe": INPUT,
            "startingOffsets": "earliest",
            "endingOffsets": json.dumps({INPUT: ends}),
        }
    )
    copied = rows.load().select("key", "value")
    copied.write.format("kafka").options(
        **{"kafka.bootstrap.servers": SERVERS, "topic": output}
    ).save()


if __name__ == "__main__":
    main()
