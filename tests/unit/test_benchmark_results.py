"""What a benchmark run leaves behind, and when `make bench-check` fails."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import orjson
import pytest

from benchmarks.contestants.quix import LOCK as QUIX_LOCK
from benchmarks.contestants.streams_jars import LOCK as STREAMS_LOCK
from benchmarks.floors import FloorMissed, Limit, judge, require_all
from benchmarks.published import publish
from benchmarks.report import Report, Table
from eosframework.embedded.jars import parse_lock

LIMIT = Limit("count", "the empty loop", 4.0)


def test_a_ratio_that_is_worse_by_more_than_its_noise_fails() -> None:
    with pytest.raises(FloorMissed, match=r"count costs 5.* times the empty loop, allowed are 4"):
        require_all([judge(LIMIT, [4.9, 5.0, 5.0, 5.1, 5.2])])


def test_noise_around_a_limit_fails_nothing() -> None:
    require_all([judge(LIMIT, [3.6, 4.5, 3.9, 4.4, 4.2])])


def test_results_of_benchmarks_that_run_one_by_one_stand_side_by_side(tmp_path: Path) -> None:
    for name in ("first", "second"):
        report = Report()
        table = Table(f"Title of {name}", ("what", "records/s"), [("a|b", "1")])
        report.tables[name], report.results[name] = table, {"speed": 1}
        publish(report, tmp_path)
    kept = orjson.loads((tmp_path / "results.json").read_bytes())
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert set(kept) == {"first", "second"}
    assert kept["first"]["machine"]["kafka"]
    assert "Title of first" in page
    assert "| a/b | 1 |" in page


def test_a_result_names_the_version_of_each_contestant_in_it(tmp_path: Path) -> None:
    report = Report()
    names = ("Kafka Streams, no cache", "Quix Streams", "Spark's Kafka sink")
    report.tables["others"] = Table("Topic to PostgreSQL", ("what",), [(name,) for name in names])
    report.tables["own"] = Table("Memory", ("what",), [("eosframework",)])
    report.results["others"] = report.results["own"] = {}
    publish(report, tmp_path)
    kept = orjson.loads((tmp_path / "results.json").read_bytes())
    (streams,) = {
        name for name in parse_lock(STREAMS_LOCK.read_text("ascii")) if "kafka-streams" in name
    }
    found = kept["others"]["contestants"]
    assert f"kafka-streams-{found['Kafka Streams']}.jar" == streams
    assert f"\nquixstreams=={found['Quix Streams']} " in QUIX_LOCK.read_text("utf-8")
    assert found["Spark"] == version("pyspark")
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    others, own = page.split("## own")
    for name, number in found.items():
        assert f"{name} {number}" in others
        assert name not in own


def test_curves_become_charts_that_do_not_depend_on_the_run(tmp_path: Path) -> None:
    point = {
        "contestant": "worker",
        "commit_seconds": 0.1,
        "partitions": 4,
        "records_per_second": 1000,
        "p50_milliseconds": 60.0,
        "p99_milliseconds": 120.0,
    }
    drawn: list[bytes] = []
    for _ in range(2):
        report = Report()
        report.tables["curves"] = Table("Curves", ("what",), [])
        report.results["curves"] = {"commit_seconds": [point, point], "partitions": [point]}
        publish(report, tmp_path)
        drawn.append((tmp_path / "latency-commit_seconds.svg").read_bytes())
    assert drawn[0] == drawn[1]
    assert b"<script" not in drawn[0]
    assert "![latency-partitions.svg](latency-partitions.svg)" in (
        tmp_path / "results.md"
    ).read_text(encoding="utf-8")
