"""What `backfill diff` prints, for people and as JSON."""

from __future__ import annotations

import pytest

from eosframework.cli.backfill_diff import _lines, _report, _topics_by, _within
from eosframework.errors import ConfigurationError
from eosframework.postgres.database.tables.table_comparison import ComparedTables
from eosframework.spark.backfill.job_diff import Diff
from eosframework.spark.backfill.topic_diff import (
    CompareBy,
    ComparedTopics,
    Comparison,
    Place,
    TimeRange,
    TopicDifference,
)
from eosframework.spark.job.job_entry import Job
from eosframework.topology.spec.keyed_spec import Window, WindowKind

JOB = Job(application="flights_v2", name="january", fingerprint={}, suffix="v2", created_at=0)
EQUAL = ComparedTopics((10, 10), (0, 0), ())
DIFFERENT = ComparedTopics(
    (10, 11),
    (0, 1),
    (
        TopicDifference(b"UA", (1, 2), Place(0, 5, 1000, b"x" * 300), Place(1, 7, 1000, b"\xff")),
        TopicDifference(None, (0, 1), None, Place(1, 8, 2000, None)),
    ),
)
TABLES = ComparedTables(["n"], ["id"], (3, 2), (1, 0), ([{"n": 14}], []))


def diff(topic: ComparedTopics, tables: dict[str, ComparedTables]) -> Diff:
    return Diff(JOB, TimeRange(1000, None), {"flights.late": topic}, tables, ["a note"])


def test_differences_are_listed_with_their_coordinates() -> None:
    lines = list(_lines(diff(DIFFERENT, {"late": TABLES})))
    assert lines == [
        "job january with suffix v2, records with event times from 1970-01-01T00:00:01.000Z to any",
        "topic flights.late, record by record: 10 live, 11 backfilled; 0 only live, "
        "1 only backfilled",
        "  key UA: 1 live, 2 backfilled",
        f"    live [0]@5 at 1970-01-01T00:00:01.000Z: {'x' * 200}…",
        "    backfilled [1]@7 at 1970-01-01T00:00:01.000Z: \\xff",
        "  without key: 0 live, 1 backfilled",
        "    backfilled [1]@8 at 1970-01-01T00:00:02.000Z: null",
        "table late, n: 3 live, 2 backfilled; 1 only live, 0 only backfilled",
        '  only live: {"n":14}',
        "  not compared: id",
        "note: a note",
        "DIFFERENT",
    ]


def test_equal_sides_are_said_to_be_equal() -> None:
    found = diff(EQUAL, {})
    assert list(_lines(found))[-1] == "equal"
    assert _report(found)["equal"] is True
    assert not diff(EQUAL, {"late": TABLES}).is_equal


def test_the_report_has_everything_as_data() -> None:
    report = _report(diff(DIFFERENT, {"late": TABLES}))
    topic = report["topics"]["flights.late"]
    assert (topic["live"], topic["backfilled"]) == (10, 11)
    assert (topic["only_live"], topic["only_backfilled"]) == (0, 1)
    assert topic["differences"][1] == {
        "key": None,
        "count_live": 0,
        "count_backfilled": 1,
        "live": None,
        "backfilled": {"partition": 1, "offset": 8, "timestamp": 2000, "value": None},
    }
    assert report["tables"]["late"]["rows_only_live"] == [{"n": 14}]


def test_windows_that_the_range_cuts_are_told_and_no_difference() -> None:
    comparison = Comparison(CompareBy.LAST, Window(WindowKind.TUMBLING, 100))
    found = diff(ComparedTopics((78, 77), (0, 0), (), comparison, 1), {})
    assert found.is_equal
    assert list(_lines(found))[1] == (
        "topic flights.late, last value of each key and window: 78 live, 77 backfilled, equal; 1 "
        "windows are cut by the range and not compared"
    )
    topic = _report(found)["topics"]["flights.late"]
    assert (topic["compared"], topic["cut"]) == ("last value of each key and window", 1)


def test_a_comparison_of_nothing_says_so() -> None:
    found = diff(ComparedTopics((0, 0), (0, 0), ()), {})
    assert list(_lines(found))[-2:] == ["note: there was nothing to compare", "equal"]


def test_how_topics_are_compared_is_read_or_refused() -> None:
    assert _topics_by(["a.b=last", "c=records"]) == {"a.b": CompareBy.LAST, "c": CompareBy.RECORDS}
    for text in ("a", "=last", "a=first"):
        with pytest.raises(ConfigurationError, match="is not TOPIC=HOW with records or last"):
            _topics_by([text])


def test_times_include_the_first_and_exclude_the_second() -> None:
    assert _within("1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z") == TimeRange(1000, 1999, True)
    assert _within(None, "1970-01-01T00:00:02Z") == TimeRange(None, 1999)
    assert _within(None, None) == TimeRange()
    with pytest.raises(ConfigurationError, match="--to 'soon' is not a time; expected one such as"):
        _within(None, "soon")


@pytest.mark.parametrize(
    ("processed", "within", "times"),
    [
        (TimeRange(5, 9), TimeRange(), TimeRange(5, 9)),
        (TimeRange(5, 9, is_cut=True), TimeRange(3, 7, is_cut=True), TimeRange(5, 7, is_cut=True)),
        (TimeRange(5, 9), TimeRange(3, 12, is_cut=True), TimeRange(5, 9)),
        (TimeRange(5, 9), TimeRange(6, None, is_cut=True), TimeRange(6, 9, is_cut=True)),
        (TimeRange(), TimeRange(6, None, is_cut=True), TimeRange(6, None, is_cut=True)),
    ],
)
def test_times_are_narrowed_to_those_of_both_ranges(
    processed: TimeRange, within: TimeRange, times: TimeRange
) -> None:
    assert processed.narrowed(within) == times
