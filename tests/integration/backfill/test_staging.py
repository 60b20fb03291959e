"""What has no order of its own is written down once, and is then read in one order for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eosframework.errors import ConfigurationError
from eosframework.serialization.serdes import BYTES, JSON
from eosframework.spark.backfill.file_lists import stage
from eosframework.spark.backfill.file_rows import file_rows
from eosframework.spark.job.job_entry import Files
from eosframework.topology.graph.graph import Function, OnError, Source
from tests.support.processes.programs import run_command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def time_in(value: dict[str, Any]) -> int:
    return value["at"]


SOURCE = Source("s", "staged", BYTES, JSON, Function("time_in", time_in), OnError())


def shuffled(spark: SparkSession) -> DataFrame:
    """Rows that come in another order each time."""
    rows = spark.range(0, 100, 1, 3).selectExpr("id", "id % 4 AS at", "rand() AS place")
    return rows.orderBy("place").drop("place")


def test_staged_rows_have_places_that_stay(spark: SparkSession, tmp_path: Path) -> None:
    directory = str(tmp_path / "staged")

    first = stage(spark, shuffled(spark), directory)
    again = stage(spark, shuffled(spark), directory)

    assert again == first
    files = Files(
        format="parquet", partitions=2, partitioner="murmur2", split_bytes=1 << 26, files=first
    )
    read = [file_rows(spark, "staged", files, SOURCE).collect() for _ in range(2)]
    assert read[0] == read[1]
    assert len({(row["writer"], row["offset"]) for row in read[0]}) == 100
    assert sorted(json.loads(bytes(row["value"]))["id"] for row in read[0]) == list(range(100))


def test_an_unfinished_or_foreign_directory_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "part-00000.parquet").write_bytes(b"PAR1")

    with pytest.raises(ConfigurationError, match=r"is not empty.*_SUCCESS is missing"):
        stage(spark, shuffled(spark), str(tmp_path))


@pytest.mark.exhaustive
def test_the_command_stages_a_data_source_once(tmp_path: Path) -> None:
    rows = "id;name\n" + "".join(f"{n};n{n}\n" for n in range(50))
    (tmp_path / "rows.csv").write_text(rows, encoding="utf-8")
    (tmp_path / "csv.properties").write_text("header=true\nsep=,\n", encoding="utf-8")
    directory = str(tmp_path / "staged")
    given = ["--option", f"path={tmp_path / 'rows.csv'}", "--option", "sep=;"]
    given += ["--options-file", str(tmp_path / "csv.properties"), "--master", "local[1]"]

    first = run_command("backfill", "stage", "csv", directory, *given, "--json")
    assert first.exit_code == 0, first.err
    assert (first.json["rows"], first.json["directory"]) == (50, directory)
    (tmp_path / "rows.csv").write_text("id;name\n1;another\n", encoding="utf-8")
    again = run_command("backfill", "stage", "csv", directory, *given)
    assert "has 50 rows in" in again.out
    assert f"--source 'TOPIC=parquet:{directory};key=COLUMN'" in again.out

    unknown = run_command("backfill", "stage", "xls", str(tmp_path / "other"), *given)
    assert unknown.exit_code == 2
    assert "data source 'xls' cannot be staged in" in unknown.error


def test_wrong_options_are_refused_before_spark_starts(tmp_path: Path) -> None:
    no_pair = run_command("backfill", "stage", "jdbc", str(tmp_path), "--option", "dbtable")
    assert (no_pair.exit_code, no_pair.error) == (
        2,
        "--option 'dbtable' is not NAME=VALUE, for example dbtable=orders",
    )
    no_file = run_command("backfill", "stage", "jdbc", "x", "--options-file", str(tmp_path / "no"))
    assert no_file.exit_code == 2
    assert "--options-file" in no_file.error
    assert "cannot be read" in no_file.error
