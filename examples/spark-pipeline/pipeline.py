"""Delays by airport and hour: from a Kafka topic through Spark into a topic and a table.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 pipeline.py CHECKPOINT

EOS_KAFKA__BOOTSTRAP_SERVERS and EOS_DATABASE__DSN name the cluster and the database.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from eosframework.spark import both, kafka_sink, table_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FLIGHT = "origin string, time_hour timestamp, dep_delay double"
OBSERVATION = "origin string, time_hour timestamp, temp double, wind_speed double"

LATEST = "7 days"
"""A flight that becomes known later than this is not counted."""

LARGEST_BATCH = 50_000
"""Flights."""


def hourly_delays(spark: SparkSession, largest_batch: int = LARGEST_BATCH) -> DataFrame:
    """Return the hours that changed, each with all its flights so far and the weather."""
    from pyspark.sql import functions as f

    servers = {"kafka.bootstrap.servers": os.environ["EOS_KAFKA__BOOTSTRAP_SERVERS"]}
    earliest = {**servers, "startingOffsets": "earliest"}
    flights = (
        spark.readStream.format("kafka")
        .options(**earliest, subscribe="flights.landed", maxOffsetsPerTrigger=str(largest_batch))
        .load()
        .select(f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight"))
        .select("flight.*")
        .withWatermark("time_hour", LATEST)
    )
    observed = (
        spark.read.format("kafka")
        .options(**earliest, subscribe="weather")
        .load()
        .select(f.from_json(f.col("value").cast("string"), OBSERVATION).alias("observation"))
        .select("observation.*")
        .groupBy("origin", "time_hour")
        .agg(f.max("temp").alias("temperature"), f.max("wind_speed").alias("wind_speed"))
    )
    delays = flights.groupBy("origin", "time_hour").agg(
        f.count("*").alias("flights"),
        f.count("dep_delay").alias("departed"),
        f.coalesce(f.sum(f.col("dep_delay").cast("bigint")), f.lit(0)).alias("delay_minutes"),
    )
    return delays.join(observed, ["origin", "time_hour"], "left")


def start(
    spark: SparkSession, checkpoint: str, largest_batch: int = LARGEST_BATCH
) -> StreamingQuery:
    """Write each change of an hour to the topic once, and the hours to the table."""
    topic = kafka_sink(
        "delays.hourly", application="report", key="origin", timestamp="time_hour", shards=4
    )
    table = table_sink(
        "delays_by_hour",
        application="report",
        mode="upsert",
        keys=["origin", "time_hour"],
        shards=4,
    )
    return (
        hourly_delays(spark, largest_batch)
        .writeStream.outputMode("update")
        .foreachBatch(both(topic, table))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)  # without it the query waits for more flights
        .start()
    )


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    start(SparkSession.builder.getOrCreate(), sys.argv[1]).awaitTermination()
