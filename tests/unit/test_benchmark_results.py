"""What a benchmark run leaves behind, and when `make bench-check` fails."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from benchmarks.floors import FloorMissed, Limit, judge, require_all
from benchmarks.published import publish
from benchmarks.report import Report, Table

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
