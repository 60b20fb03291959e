"""The rows of a store on the console's page: windows of time and windows of records."""

from __future__ import annotations

from eosframework import sliding, tumbling
from eosframework.operations.console.pages import _shown_rows, _timeline_of
from eosframework.operations.console.site import _period
from eosframework.records import WindowResult
from eosframework.topology.spec.keyed_spec import WindowSpec


def shown(declared: WindowSpec, start: int, end: int) -> tuple[str, bool]:
    """Return the period of a row, and whether the key has a timeline."""
    row = {"key": "a", "value": WindowResult(start, end, 3), "timestamp": 5, "partition": 0}
    rows = _shown_rows({"found": [row]}, declared.window())
    assert [(row["key"], row["value"]) for row in rows] == [("a", "3")]
    return _period(rows[0]["window"]), _timeline_of(rows) is not None


def test_bounds_of_windows_of_records_are_shown_as_numbers_and_not_as_times() -> None:
    assert shown(sliding(records=5, step=2), 3, 7) == ("records 3 to 6", False)
    hour = 3_600_000
    assert shown(tumbling("1h"), hour, 2 * hour) == ("1970-01-01 01:00:00 to 02:00:00", True)
