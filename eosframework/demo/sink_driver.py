"""The driver of the pipeline.

    python -m eosframework.demo.sink_driver MASTER FILE CHECKPOINT BATCH

MASTER is Spark's, FILE the example's, BATCH the number of flights in a batch.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from eosframework.spark.backfill import spark_session

_SPARK = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "700m",
    "spark.executor.memory": "600m",
    "spark.sql.shuffle.partitions": "2",
}


def main() -> None:
    """Run the pipeline over all flights."""
    master, file, checkpoint, largest_batch = sys.argv[1:]
    spark = spark_session(master, _SPARK)
    _loaded(file).start(spark, checkpoint, int(largest_batch)).awaitTermination()
    spark.stop()


def _loaded(file: str) -> Any:
    spec = spec_from_file_location("pipeline", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
