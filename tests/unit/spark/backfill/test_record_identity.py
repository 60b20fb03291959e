"""By what the records of a topic are compared: told from what the topology writes there."""

from __future__ import annotations

import json

import pytest

from eosframework.errors import ConfigurationError
from eosframework.records import WindowResult
from eosframework.serialization.serdes import JSON, WINDOW
from eosframework.spark.backfill.topic_diff import CompareBy, Comparison, comparisons
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.keyed_spec import WindowKind

SOURCES = """\
application: a
sources:
  events: {topic: events, key: string, value: json}
  planes: {topic: planes, key: string, value: json, table: true}
  models: {topic: models, key: string, value: json, table: true}
streams:
"""
CALL = "'builtins:max'"
WINDOW_EACH = "count: {window: {tumbling: 1h, grace: 5m, late: too_late}}"
WINDOW_CLOSE = "count: {window: {tumbling: 1h}, emit: close}"
SESSION = "count: {window: {session: 10m, grace: 1m}}"


def compared(streams: str, topic: str = "out", **given: CompareBy | None) -> Comparison:
    app = read_yaml(SOURCES + streams, "app.yaml")
    resolve(app)  # it has no errors
    return comparisons(app.spec, {}, **given)[topic]


def of(source: str, *steps: str, to: str = "out") -> str:
    return f"  x: {{from: {source}, steps: [{', '.join(f'{{{s}}}' for s in steps)}], to: {to}}}\n"


LAST = {
    "count": of("events", "count: {}"),
    "count at commits": of("events", "count: {emit: commit}"),
    "table": of("planes", f"map_values: {CALL}"),
    "shaped count": of("events", "count: {}", f"map_values: {CALL}", f"filter: {CALL}"),
    "join of tables": of("planes", f"join: {{with: models, by: {CALL}}}"),
}
RECORDS = {
    "plain": of("events", f"map_values: {CALL}"),
    "new key": of("planes", f"select_key: {CALL}"),
    "several of each": of("planes", f"flat_map_values: {CALL}"),
    "own records": of("planes", f"flat_map: {CALL}"),
    "first ones": of("events", "deduplicate: 1h"),
    "mixture": of("[events, planes]", f"map_values: {CALL}"),
    "two streams": of("planes", f"peek: {CALL}") + "  y: {from: events, to: out}\n",
    "closed and shaped": of("events", WINDOW_CLOSE, f"map_values: {CALL}"),
}


@pytest.mark.parametrize("streams", LAST.values(), ids=LAST)
def test_of_what_goes_on_with_each_change_the_last_of_each_key_counts(streams: str) -> None:
    assert compared(streams) == Comparison(CompareBy.LAST)


@pytest.mark.parametrize("streams", RECORDS.values(), ids=RECORDS)
def test_all_else_is_compared_record_by_record(streams: str) -> None:
    assert compared(streams) == Comparison()


def test_windows_are_compared_by_key_and_window() -> None:
    each = compared(of("events", WINDOW_EACH, f"filter: {CALL}"))
    assert (each.by, each.label) == (CompareBy.LAST, "last value of each key and window")
    assert each.window is not None
    assert (each.window.kind, each.closes_after_ms, each.reach_ms) == (
        WindowKind.TUMBLING,
        300_000,
        0,
    )
    session = compared(of("events", SESSION))
    assert (session.by, session.closes_after_ms, session.reach_ms) == (
        CompareBy.LAST,
        660_000,
        600_000,
    )
    assert compared(of("events", WINDOW_EACH), "too_late") == Comparison()


def test_windows_that_go_on_once_are_compared_record_by_record_with_what_cuts_them() -> None:
    closed = compared(of("events", WINDOW_CLOSE))
    assert closed.by is CompareBy.RECORDS
    assert closed.window is not None
    moved = compared(of("events", WINDOW_EACH, f"select_key: {CALL}"))
    assert moved.by is CompareBy.RECORDS
    assert moved.window is not None


def test_windows_of_records_are_compared_record_by_record_and_no_time_cuts_them() -> None:
    assert compared(of("events", "count: {window: {records: 5, step: 2}}")) == Comparison()


@pytest.mark.parametrize("to", ["out", "{topic: out, value: json}"])
def test_a_window_is_read_from_the_value_however_it_is_written(to: str) -> None:
    assert compared(of("events", WINDOW_EACH, to=to)).window is not None
    for serde in (WINDOW, JSON):
        assert serde.encode is not None
        written = json.loads(serde.encode(WindowResult(100, 200, None)))
        assert written == {"start": 100, "end": 200, "value": None}


def test_updates_of_windows_that_cannot_be_told_apart_are_not_reduced_to_the_last_one() -> None:
    shaped = compared(of("events", WINDOW_EACH, f"map_values: {CALL}"))
    assert (shaped.by, shaped.window) == (CompareBy.RECORDS, None)
    assert shaped.note is not None
    assert "do not identify their window" in shaped.note
    assert "--compare out=last" in shaped.note


def test_what_is_asked_for_holds() -> None:
    windows = of("events", WINDOW_EACH)
    app = read_yaml(SOURCES + windows, "app.yaml")
    chosen = comparisons(app.spec, {"out": CompareBy.RECORDS}, CompareBy.LAST)
    assert (chosen["out"].by, chosen["too_late"].by) == (CompareBy.RECORDS, CompareBy.LAST)
    assert compared(windows, by=CompareBy.LAST).window is not None
    with pytest.raises(ConfigurationError, match=r"'ouT' is not a topic that .* did you mean"):
        comparisons(app.spec, {"ouT": CompareBy.LAST})
