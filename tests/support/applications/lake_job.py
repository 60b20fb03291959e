"""A backfill of a Delta or Iceberg table, on a Spark of its own, that fails and is started again.

python -m tests.support.applications.lake_job FORMAT JARS SERVERS TOPOLOGY SOURCE DIRECTORY

Between the starts the table gets other rows. The rows of the job's version are printed at the end.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from eosframework.config import load_settings
from eosframework.errors import ConfigurationError, RunError
from eosframework.spark.backfill.api import Backfill
from eosframework.spark.backfill.file_lists import check_version
from eosframework.spark.session.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLAG = "LAKE_JOB_FLAG"
"""Names a file; while it is missing, a record in the middle fails."""

_SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    },
    "iceberg": {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}


def moment(value: dict[str, Any]) -> int:
    """Return the event time, of which several rows have the same."""
    return value["n"] // 10


def failing_once(value: dict[str, Any]) -> dict[str, Any]:
    """Return a value as it is; fail in the middle at first."""
    if value["n"] == 180 and not Path(os.environ[FLAG]).exists():
        raise ValueError("the first start fails here")
    return value


class _Lake:
    """A table of one format."""

    def __init__(self, spark: SparkSession, format: str, directory: Path) -> None:
        self.spark, self.format = spark, format
        self.path = directory / "db" / "table"
        self.name = str(self.path) if format == "delta" else "lake.db.table"

    def write(self, first: int, end: int, mode: str) -> None:
        """Write rows of a range as a version of their own."""
        rows = self.spark.range(first, end, 1, 2)
        rows = rows.selectExpr("id AS n", "CAST('2026-01-01' AS DATE) + CAST(id % 3 AS INT) AS day")
        if self.format == "delta":
            rows.write.format("delta").partitionBy("day").mode(mode).save(self.name)
        elif mode == "append":
            rows.writeTo(self.name).append()
        else:
            rows.writeTo(self.name).partitionedBy(cast(Any, rows.day)).createOrReplace()


def main() -> None:
    """Run the job until it is complete."""
    format, jars, servers, topology, source, directory = sys.argv[1:]
    chosen = {"spark.jars": jars, "spark.driver.memory": "900m", **_SETTINGS[format]}
    chosen["spark.sql.warehouse.dir"] = f"{directory}/warehouse"
    chosen |= {"spark.sql.catalog.lake.warehouse": directory} if format == "iceberg" else {}
    lake = _Lake(spark_session("local[2,1]", chosen), format, Path(directory))
    lake.write(0, 100, "overwrite")
    lake.write(100, 200, "overwrite")  # the files of the first rows stay
    lake.write(200, 250, "append")
    settings = load_settings(
        None, [f"kafka.bootstrap_servers={servers}", "backfill.chunk_records=20"]
    )

    def run(given: str) -> Any:
        job = Backfill(
            topology, job="lake", source=[f"{source}={given};key=day"], settings=settings
        )
        return job.run(lake.spark)

    said: dict[str, str] = {}
    try:
        run(f"parquet:{lake.path}")
    except ConfigurationError as error:
        said["plain"] = str(error)
    try:
        run(f"{format}:{lake.name}")
    except RunError as error:
        said["failed"] = str(error)
    lake.write(250, 300, "append")
    lake.write(300, 400, "overwrite")
    Path(os.environ[FLAG]).touch()
    state = run(f"{format}:{lake.name}")
    table = state.job.files[source].table
    for name, other in {
        "gone": {"version": table.version + 99},
        "other": {"committed_at": 1},
    }.items():
        try:
            check_version(lake.spark, format, table.model_copy(update=other))
        except ConfigurationError as error:
            said[name] = str(error)
    print(json.dumps(said))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
