"""Tables with snapshots are read as their readers read them, and never as plain files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eosframework.embedded.jars import JarSet, fetched
from eosframework.errors import ConfigurationError
from eosframework.spark.backfill.file_rows import pin, pin_table
from tests.conftest import KafkaService
from tests.support.applications.lake_job import FLAG
from tests.support.applications.pipeline import Pipeline
from tests.support.processes.programs import REPOSITORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA = JarSet(
    "Delta Lake 4.4.0",
    "delta-4.4.0",
    "io.delta:delta-spark_4.2_2.13:4.4.0",
    artifacts=frozenset({"delta-spark_4.2_2.13", "delta-storage"}),
    digests={
        "delta-spark_4.2_2.13-4.4.0.jar": "27d4fd8b1f879535c573ed1c718177d6"
        "a27f24d3e626ba02e216369725721ead",
        "delta-storage-4.4.0.jar": "c46735481fa8e326b0957be02b4420cb"
        "cab4b325bb08009b7f2045a95133f1cc",
    },
)

TOPOLOGY = """\
application: NAME
sources:
  rows:
    topic: NAME.in
    key: string
    value: json
    timestamp: "tests.support.applications.lake_job:moment"
    on_error: fail
streams:
  copied:
    from: rows
    steps: [{map_values: "tests.support.applications.lake_job:failing_once"}]
    to: [{topic: NAME.copied, value: json}]
"""


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("_delta_log/00.json", "is a Delta table: .*--source 'TOPIC=delta:{}'"),
        ("metadata/00000-a.metadata.json", "is an Iceberg table: .*'TOPIC=iceberg:{}'"),
        (".hoodie/hoodie.properties", "is a Hudi table: .*stage hudi DIRECTORY --option path={}"),
        ("_spark_metadata/0", "is the output of a streaming query: .*--option path={}"),
    ],
)
def test_a_folder_of_which_not_every_file_counts_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, mark: str, said: str
) -> None:
    table = tmp_path / "deep" / "table"
    for name in (mark, "data/day=2026-01-01/a.json"):
        (table / name).parent.mkdir(parents=True, exist_ok=True)
        (table / name).write_text('{"n": 1}\n')
    below = ["deep", "deep/table", "deep/table/data", "deep/table/data/day=*/*.json", "*/*/*"]
    for path in below:
        with pytest.raises(ConfigurationError, match=said.format(f"file:{table}")):
            pin(spark, "json", [str(tmp_path / path)], {})


def test_a_session_without_the_reader_is_told_the_settings_that_add_it(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"packages=io\.delta:delta-spark_4\.\d_2\.13:"):
        pin_table(spark, "delta", "/archive/orders", {})
    with pytest.raises(ConfigurationError, match=r"iceberg-spark-runtime-4\.\d_2\.13:VERSION"):
        pin_table(spark, "iceberg", "lake.shop.orders", {})


@pytest.mark.exhaustive
def test_a_resumed_job_reads_the_version_of_a_delta_table_that_it_started_with(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    jars = ",".join(map(str, sorted(fetched(DELTA).glob("*.jar"))))
    judge_lake("delta", jars, kafka.bootstrap_servers, unique_name("lake"), tmp_path)


def judge_lake(format: str, jars: str, servers: str, name: str, directory: Path) -> None:
    """Run a job that fails over a table that changes; the topic has the rows at its start once."""
    pipeline = Pipeline(
        servers, name, directory / "pipeline", topology=TOPOLOGY, outputs={"copied": 2}
    )
    pipeline.apply()
    program = [sys.executable, "-m", "tests.support.applications.lake_job", format, jars, servers]
    ran = subprocess.run(
        [*program, str(pipeline.topology_file), pipeline.source, str(directory / "lake")],
        env={**os.environ, FLAG: str(directory / "flag"), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
        cwd=directory,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    said = json.loads(ran.stdout.splitlines()[-1])
    assert f"TOPIC={format}:" in said["plain"]
    for refused in ("gone", "other"):
        assert "which the job reads, is gone, or is that of another table" in said[refused]
    assert "the first start fails here" in said["failed"]
    found = pipeline.read(f"{name}.copied")
    rows = sorted((json.loads(one.value() or b"") for one in found), key=lambda row: row["n"])
    assert [row["n"] for row in rows] == list(range(100, 250))
    assert all(
        (one.key() or b"").decode() == json.loads(one.value() or b"")["day"] for one in found
    )
    pipeline.stop()
