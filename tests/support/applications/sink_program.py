"""A driver that a test may kill: the query of a `SinkWorld`, on a Spark of its own.

python -m tests.support.applications.sink_program SERVERS NAME DIRECTORY
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from eosframework.spark.session.spark_session import spark_session
from tests.support.applications.spark_sinks import SinkWorld

STANDING_STILL = {"spark.network.timeout": "1200s", "spark.executor.heartbeatInterval": "600s"}
"""Spark gives an executor up that was silent for two minutes, and then the job of its tasks: a test
that suspends this program for longer would see Spark's end of it, not ours."""


def main() -> None:
    """Run the query over all batches that there are."""
    servers, name, directory = sys.argv[1:]
    spark = spark_session("local[2,4]", {"spark.driver.memory": "600m", **STANDING_STILL})
    world = SinkWorld(spark, servers, name, Path(directory), create=False)
    world.run(world.sink(shards=2, chunk_records=20))
    world.stop()
    spark.stop()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
