"""Counts of late records: by step and topic, and only of committed transactions."""

from __future__ import annotations

import gzip
from collections import Counter
from types import SimpleNamespace
from typing import Any

from structlog.testing import capture_logs

from eosframework.engine.failures.failure_handler import (
    LatePlace,
    LateRecords,
    Site,
)
from eosframework.engine.failures.failure_headers import HEADER_FORM
from eosframework.engine.failures.refused_outputs import OutputLimits
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.engine.worker.worker_views import NOTICE_SECONDS, LateNotice, PauseNotice
from eosframework.topology.graph.graph import OnError, Policy
from tests.unit.engine.messages import Sent

HOURLY, DAILY = LatePlace("clicks.hourly", "clicks"), LatePlace("clicks.daily", "clicks")
SITE = Site("clicks.hourly", OnError(Policy.SKIP))
RECORD: Any = SimpleNamespace(topic=lambda: "clicks", partition=lambda: 0, offset=lambda: 0)


def late(count: int, records: LateRecords) -> LateRecords:
    for _ in range(count):
        records(SITE, RECORD, 100, [])
    return records


def test_a_dropped_transaction_counts_no_late_record() -> None:
    records = late(3, LateRecords())
    assert (records.count, records.committed) == (3, {})
    records.drop()
    assert records.count == 0
    late(2, records).settle()
    late(1, records).drop()
    assert (records.count, records.committed) == (2, {HOURLY: 2})


def test_a_late_record_that_does_not_fit_its_topic_is_sent_in_another_form() -> None:
    site, out = Site("clicks.hourly", OnError(Policy.DEAD_LETTER, "late")), list[Any]()
    record: Any = Sent(b"x" * 3_000_000)
    LateRecords({"late": OutputLimits(1_000_000)})(site, record, 100, out)
    LateRecords()(site, record, 100, out)
    forms = [dict(output[7]).get(HEADER_FORM) for output in out]
    assert forms == [b"gzip", None]
    assert gzip.decompress(out[0][1]) == out[1][1] == record.value()


def test_warnings_name_step_topic_and_number_once_a_minute() -> None:
    now = 100.0
    notice = LateNotice(lambda: now)
    with capture_logs() as events:
        notice.turn(Counter({HOURLY: 4}))
        notice.turn(Counter({HOURLY: 9}))
        now += NOTICE_SECONDS
        notice.turn(Counter({HOURLY: 9, DAILY: 1}))
        now += NOTICE_SECONDS
        notice.turn(Counter({HOURLY: 9, DAILY: 1}))
        notice.warn(Counter({HOURLY: 1241, DAILY: 1}))
    assert [warned(event) for event in events] == [
        ("clicks.hourly", 4, 4),
        ("clicks.daily", 1, 1),
        ("clicks.hourly", 5, 9),
        ("clicks.hourly", 1232, 1241),
    ]


def test_a_count_that_grows_in_place_is_warned_of_again() -> None:
    notice, late = LateNotice(lambda: 0.0), Counter({HOURLY: 4})
    with capture_logs() as events:
        notice.warn(late)
        late += Counter({HOURLY: 3})
        notice.warn(late)
    assert [warned(event) for event in events] == [
        ("clicks.hourly", 4, 4),
        ("clicks.hourly", 3, 7),
    ]


def test_the_sum_at_the_end_names_every_number() -> None:
    notice, late = LateNotice(lambda: 0.0), Counter({HOURLY: 4, DAILY: 1})
    notice.warn(late)
    late += Counter({HOURLY: 2})
    with capture_logs() as events:
        notice.sum_up(late)
    assert [warned(event) for event in events] == [
        ("clicks.daily", 0, 1),
        ("clicks.hourly", 2, 6),
    ]


def warned(event: Any) -> tuple[str, int, int]:
    assert (event["event"], event["topic"]) == ("late_records", "clicks")
    return event["step"], event["new"], event["all"]


def test_pauses_that_decide_results_are_warned_of_at_once_and_when_they_grow() -> None:
    now = 100.0
    notice, counts = PauseNotice(lambda: now), WorkerCounts()
    with capture_logs() as events:
        notice.turn(counts)
        counts.passed_over = 2
        notice.turn(counts)
        counts.passed_over = 3
        notice.turn(counts)
        now += NOTICE_SECONDS
        notice.turn(counts)
        counts.closed_by_clock = 1
        notice.warn(counts)
        notice.warn(counts)
    assert {event["event"] for event in events} == {"results_depend_on_pauses"}
    found = [(event["passed_over"], event["closed_by_clock"]) for event in events]
    assert found == [(2, 0), (3, 0), (3, 1)]
