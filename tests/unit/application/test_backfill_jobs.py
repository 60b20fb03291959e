"""Unfinished backfill jobs refuse workers."""

from __future__ import annotations

from typing import Any

import pytest

from eosframework.application.backfill_jobs import backfill_jobs, refuse_unfinished_jobs
from eosframework.application.control_topic import interpret
from eosframework.errors import StartRefused
from eosframework.records import Position
from tests.support.applications.graphs import graph_of

GRAPH = graph_of("flights", {"late": (["raw"], ["late"])})
PARTITIONS = {"raw": 2}
JOB = "backfill/history"
NEVER = [Position("raw", 0, None), Position("raw", 1, None)]


def entries(*, complete: int = 2, end: int = 10, **job: Any) -> dict[str, Any]:
    ranges = {"raw": [{"first": 0, "end": 10}, {"first": 0, "end": end}]}
    tasks = {f"{JOB}/task/late/{n}": {"complete": n < complete} for n in range(2)}
    return {JOB: {"suffix": None, "ranges": ranges, "files": {}} | job, **tasks}


def refusal(found: dict[str, Any], committed: list[Position]) -> str:
    jobs = backfill_jobs(GRAPH, interpret(found), PARTITIONS)
    with pytest.raises(StartRefused) as caught:
        refuse_unfinished_jobs(GRAPH, jobs, committed)
    return str(caught.value)


def test_a_job_that_is_not_cut_over_is_named_with_the_ways_to_go_on() -> None:
    told = refusal(entries(), NEVER)
    assert "job 'history' of application 'flights' is complete, not cut over" in told
    assert "raw[0] has no committed offset" in told
    assert "Either finish it: eosframework backfill cutover APP --job history" in told
    assert "eosframework reset APP" in told
    told = refusal(entries(complete=1), NEVER)
    assert "is not complete: 1 of 2 tasks are" in told
    assert "backfill run APP --job history to its end, then eosframework backfill cutover" in told


def test_one_partition_that_would_be_processed_once_more_is_enough() -> None:
    assert "raw[1] has" in refusal(entries(), [Position("raw", 0, 10), Position("raw", 1, None)])
    files = {"raw": {"format": "json"}}
    assert "raw[1] has" in refusal(
        entries(end=0, files=files), [Position("raw", 0, 10), Position("raw", 1, None)]
    )


@pytest.mark.parametrize(
    ("found", "committed"),
    [
        (entries() | {f"{JOB}/cutover": {"at": 1}}, NEVER),
        (entries(suffix="_new"), NEVER),
        (entries(), [Position("raw", 0, 12), Position("raw", 1, 14)]),
        (entries(end=0), [Position("raw", 0, 12), Position("raw", 1, None)]),
        ({}, NEVER),
    ],
    ids=["cut over", "beside", "live goes on by itself", "nothing in that partition", "none"],
)
def test_workers_start_where_nothing_would_be_processed_once_more(
    found: dict[str, Any], committed: list[Position]
) -> None:
    jobs = backfill_jobs(GRAPH, interpret(found), PARTITIONS)
    refuse_unfinished_jobs(GRAPH, jobs, committed)
