"""Spark structured streaming into its Kafka sink, with a checkpoint."""

from __future__ import annotations

import os

from pyspark.sql import functions

from benchmarks.faults.programs import stamp
from eosframework.spark.backfill import spark_session


def main() -> None:
    checkpoint = f"{stamp.DIRECTORY}/checkpoint"
    spark = spark_session(None, {"spark.ui.enabled": "false"})
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", stamp.BOOTSTRAP_SERVERS)
        .option("subscribe", stamp.INPUT)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    made = functions.concat(
        functions.lit(f'{{"by": "{os.getpid()}-0", '),
        functions.substring(functions.col("value").cast("string"), 2, 1_000_000),
    )
    topics = functions.array(*(functions.lit(topic) for topic in stamp.OUTPUTS))
    (
        records.select("key", made.alias("value"), functions.explode(topics).alias("topic"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", stamp.BOOTSTRAP_SERVERS)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{stamp.COMMIT_SECONDS} seconds")
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main()
