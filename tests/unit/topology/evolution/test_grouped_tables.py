"""A grouped table is another owner of its store than a stream, and its functions are its own."""

from __future__ import annotations

from eosframework.topology.evolution import Verdict
from tests.unit.topology.evolution.test_changes import F, changes

STREAM = f"""
application: a
sources:
  numbers: {{topic: in, key: string, value: json}}
streams:
  totals:
    from: numbers
    steps:
      - group_by: {{by: "{F}:tens", key: string, value: json}}
      - count: {{store: sums}}
    to: totals
"""
TABLE = STREAM.replace("value: json}\nstreams", "value: json, table: true}\nstreams")
FOLDED = TABLE.replace(
    "count: {store: sums}",
    f'aggregate: {{initial: "{F}:no_total", add: "{F}:times", subtract: "{F}:times", store: sums}}',
)


def refused(new: str, before: str) -> list[str]:
    return [one.subject for one in changes(new, before) if one.verdict is not Verdict.ROLLING]


def test_a_stream_that_becomes_a_table_is_refused() -> None:
    assert "store sums" in refused(TABLE, STREAM)
    assert "topic a-totals-repartition" in refused(TABLE, STREAM)
    assert "store sums" in refused(STREAM, TABLE)


def test_a_table_that_stays_is_not() -> None:
    assert changes(TABLE, TABLE) == []
    assert changes(FOLDED, FOLDED) == []


def test_another_function_of_group_or_subtract_is_refused() -> None:
    other_group = FOLDED.replace(f"{F}:tens", f"{F}:by_parity")
    other_subtract = FOLDED.replace(f'subtract: "{F}:times', f'subtract: "{F}:add_to_total')
    assert "store sums" in refused(other_group, FOLDED)
    assert "store sums" in refused(other_subtract, FOLDED)
