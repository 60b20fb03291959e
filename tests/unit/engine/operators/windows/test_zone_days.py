"""Windows of a time zone's days against days computed by the calendar."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework import Topology, WindowResult, tumbling
from eosframework.engine.operators import time_windows
from eosframework.errors import RunError, TopologyError
from eosframework.testing import TopologyTestDriver
from eosframework.topology.spec.zone_days import ZoneDays, rules_of
from tests.unit.engine.operators.windows.bench import Bench
from tests.unit.engine.operators.windows.functions import append, empty

HOUR = 3_600_000
ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "America/Sao_Paulo",  # changed its clock at midnight, so some days begin at one
    "America/St_Johns",  # put it back a minute after midnight
    "Australia/Lord_Howe",  # changes it by half an hour
    "Pacific/Apia",  # had no 30 December 2011
    "UTC",
]


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def midnights(zone: str, first: date, count: int) -> list[int]:
    """Return the midnights of a number of days."""
    days = (first + timedelta(days=number) for number in range(count))
    return [ms(datetime(d.year, d.month, d.day, tzinfo=ZoneInfo(zone))) for d in days]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def test_a_day_is_the_minutes_with_its_date_on_the_clock(zone: str) -> None:
    first = ms(datetime(2024, 10, 25, tzinfo=ZoneInfo(zone)))
    minutes = range(first, first + 12 * 24 * HOUR, 15 * 60_000)
    dates = {m: datetime.fromtimestamp(m / 1000, ZoneInfo(zone)).date() for m in minutes}
    for minute in minutes:
        start, end = ZoneDays(zone, 1).around(minute)
        assert dates[start] == dates[minute]
        assert end not in dates or dates[end] == dates[minute] + timedelta(days=1)


@pytest.mark.parametrize("zone", ZONES)
@given(at=st.datetimes(datetime(1970, 1, 3), datetime(2090, 1, 1)))
def test_a_time_is_between_two_midnights_that_follow_each_other(zone: str, at: datetime) -> None:
    time = ms(at.replace(tzinfo=UTC))
    start, end = ZoneDays(zone, 1).around(time)
    assert start <= time < end
    local = datetime.fromtimestamp(time / 1000, ZoneInfo(zone)).date()
    near = midnights(zone, local - timedelta(days=3), 7)
    assert start == max(found for found in near if found <= time)
    assert end == min(found for found in near if found > time)
    assert ZoneDays(zone, 1).around(start) == (start, end)
    assert ZoneDays(zone, 1).around(end)[0] == end


@given(at=st.datetimes(datetime(1970, 1, 10), datetime(2090, 1, 1)))
def test_seven_days_are_a_week_from_monday(at: datetime) -> None:
    zone = ZoneInfo("Europe/Berlin")
    start, end = ZoneDays("Europe/Berlin", 7).around(ms(at.replace(tzinfo=UTC)))
    first, last = (datetime.fromtimestamp(bound / 1000, zone) for bound in (start, end))
    assert first.isoweekday() == last.isoweekday() == 1
    assert (last.date() - first.date()).days == 7
    assert (first.hour, last.hour) == (0, 0)


def test_days_of_a_change_of_the_clock_have_23_and_25_hours() -> None:
    berlin = ZoneDays("Europe/Berlin", 1)
    for day, hours in ((31, 23), (30, 24)):
        start, end = berlin.around(ms(datetime(2024, 3, day, 12, tzinfo=UTC)))
        assert end - start == hours * HOUR
    start, end = berlin.around(ms(datetime(2024, 10, 27, 12, tzinfo=UTC)))
    assert end - start == 25 * HOUR


def test_the_first_window_begins_at_the_epoch_and_the_year_9999_is_refused() -> None:
    assert ZoneDays("Europe/Berlin", 1).around(0) == (0, 23 * HOUR)
    assert ZoneDays("America/New_York", 7).around(0)[0] == 0
    with pytest.raises(ValueError, match="microseconds"):
        ZoneDays("UTC", 1).around(253_402_300_799_999)


def by_days(zone: str, days: int = 1, grace: str = "0ms", **options: Any) -> Bench:
    window = tumbling(f"{days}d", zone=zone)
    return Bench(
        lambda keyed: keyed.window(window, grace=grace, late="late").aggregate(
            empty, append, **options
        ),
        value="json",
    )


CHANGES = [date(2024, 3, 29), date(2024, 10, 25), date(2018, 11, 2), date(2011, 12, 28)]
"""Shortly before a clock of one of the zones is changed."""

ARRIVALS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 24 * 6), st.integers(0, 59)), max_size=30
)
"""Key, hour and minute after the first midnight; duplicates and any order."""


def expected(
    records: list[tuple[str, int, int]], bounds: list[int], grace: int
) -> tuple[list[Any], list[int], dict[Any, Any]]:
    """Return the results of closed windows, the late values, and the windows that are open."""
    now, closed, late = 0, list[Any](), list[int]()
    open_: dict[tuple[int, str], tuple[int, list[int], int]] = {}
    for key, value, time in records:
        now = max(now, time)
        start = max(bound for bound in bounds if bound <= time)
        end = min(bound for bound in bounds if bound > time)
        if end + grace <= now:
            late.append(value)
        else:
            _, values, latest = open_.get((start, key), (end, [], 0))
            open_[start, key] = end, [*values, value], max(latest, time)
        for (begun, name), (over, values, latest) in sorted(open_.items()):
            if over + grace <= now:
                closed.append((name, (begun, over, values), latest))
                del open_[begun, name]
    return closed, late, open_


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(ZONES), st.sampled_from(CHANGES), st.sampled_from([0, 5 * HOUR]), ARRIVALS)
def test_days_close_as_the_calendar_says(
    zone: str, first: date, grace: int, arrivals: list[tuple[str, int, int]]
) -> None:
    bounds = midnights(zone, first - timedelta(days=2), 12)
    records = [
        (key, number, bounds[2] + hour * HOUR + minute * 60_000)
        for number, (key, hour, minute) in enumerate(arrivals)
    ]
    bench = by_days(zone, grace=f"{grace}ms", emit="close")
    for number, record in enumerate(records):
        bench.send(record)
        bench.run()
        if number % 5 == 4:
            bench.commit()
            bench.crash()
    bench.commit()
    closed, late, open_ = expected(records, bounds, grace)
    assert bench.results() == closed
    assert [output[1] for output in bench.written("late")] == [str(n).encode() for n in late]
    assert bench.entries() == len(open_)


def test_each_update_and_each_commit_name_both_midnights() -> None:
    start = ms(datetime(2024, 3, 31, tzinfo=ZoneInfo("Europe/Berlin")))
    for emit in ("each", "commit"):
        bench = by_days("Europe/Berlin", emit=emit)
        assert bench.feed(("a", 1, start + 5)) == [
            ("a", (start, start + 23 * HOUR, [1]), start + 5)
        ]


def test_a_store_of_another_zone_is_refused() -> None:
    bench = by_days("Europe/Berlin")
    bench.feed(("a", 1, 25))
    for other, found in (
        (by_days("Asia/Kolkata"), "windows of 1d in Europe/Berlin.*1d in Asia/Kolkata"),
        (by_days("Europe/Berlin", 7), "windows of 1d in Europe/Berlin.*7d in Europe/Berlin"),
    ):
        other.kept = bench.kept
        with pytest.raises(RunError, match=found):
            other.start()


@pytest.mark.parametrize(
    ("size", "zone", "complaint"),
    [
        ("1d", "Europe/Berlinn", "no time zone 'Europe/Berlinn'.*pip install tzdata"),
        ("1d", "../etc/passwd", "no time zone"),
        ("12h", "Europe/Berlin", "windows of 12h are no whole days of zone Europe/Berlin.*1d, 7d"),
        ("25h", "Europe/Berlin", "no whole days"),
    ],
)
def test_what_is_no_zone_or_no_day_is_refused(size: str, zone: str, complaint: str) -> None:
    with pytest.raises(TopologyError, match=rf"test_zone_days.py:\d+.*{complaint}"):
        tumbling(size, zone=zone)


def test_a_machine_with_other_days_of_the_zone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an executor of Spark may be: it gets the windows as the driver loaded them."""
    bench = by_days("Europe/Berlin")
    monkeypatch.setattr(time_windows, "rules_of", lambda zone: rules_of("Asia/Kolkata"))
    with pytest.raises(RunError, match=r"days of Europe/Berlin are others.*release of tzdata"):
        bench.start()
    monkeypatch.setattr(time_windows, "rules_of", lambda zone: rules_of("Europe/Atlantis"))
    with pytest.raises(RunError, match=r"no time zone 'Europe/Atlantis'.*pip install tzdata"):
        bench.start()


def test_the_clock_closes_an_idle_day_of_25_hours() -> None:
    app = Topology("w")
    keyed = app.stream("in", key=str, value=int).group_by_key()
    days = keyed.window(tumbling("1d", zone="Europe/Berlin"), close_when_idle="30s")
    days.count(emit="close").to("out")
    driver = TopologyTestDriver(app)
    start = ms(datetime(2024, 10, 27, tzinfo=ZoneInfo("Europe/Berlin")))
    for at in (start, start + 24 * HOUR + 5):
        driver.send("in", 1, key="a", timestamp=at)
    driver.run()
    driver.advance(timedelta(seconds=40))
    (record,) = driver.read("out")
    assert record.value == WindowResult(start, start + 25 * HOUR, 2)
