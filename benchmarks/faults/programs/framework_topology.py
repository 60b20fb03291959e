"""The contestants' work as a topology of eosframework."""

from __future__ import annotations

from typing import Any

from benchmarks.faults.programs.stamp import GROUP, INPUT, OUTPUTS, counted
from eosframework import Topology


def count(record: Any, context: Any) -> list[tuple[bytes, dict[str, Any]]]:
    """Stamp a record with its place among those of its key."""
    counts = context.store("counts")
    value = counted(record.value, counts.get(record.key) or 0)
    counts.put(record.key, value["count"])
    return [(record.key, value)]


app = Topology(GROUP)
app.stream(INPUT, key=bytes, value=dict, name="numbers").process(
    count, stores={"counts": "json"}
).to(*OUTPUTS)
