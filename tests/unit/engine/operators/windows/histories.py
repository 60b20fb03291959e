"""Records with what happens between them: commits, transactions taken back, crashes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.unit.engine.operators.windows.bench import Bench

Record = tuple[str, Any, int]


def histories(latest: int = 80) -> st.SearchStrategy[list[Any]]:
    """Records whose times go up by and large, and events between them."""
    records = st.tuples(st.sampled_from("abc"), st.integers(1, latest))
    events = st.sampled_from(["run", "commit", "commit", "drop", "crash"])
    return st.lists(records | events, max_size=40).map(_in_order_by_and_large)


def _in_order_by_and_large(history: list[Any]) -> list[Any]:
    """Sort neighbours, so that much is only a little out of order."""
    times = sorted(item[1] for item in history if not isinstance(item, str))
    drawn = iter(time if i % 3 else min(times[-1], time + 7) for i, time in enumerate(times))
    return [
        item if isinstance(item, str) else (item[0], next(drawn) if item[1] % 4 else item[1])
        for item in history
    ]


def play(bench: Bench, history: list[Any]) -> list[Record]:
    """Run a history to its end and commit it; return its records with the values they got."""
    records: list[Record] = []
    for item in history:
        match item:
            case "run":
                bench.run()
            case "commit":
                bench.run()
                bench.commit()
            case "drop":
                bench.run()
                bench.drop()
            case "crash":
                bench.run()
                bench.crash()
            case _:
                key, time = item
                records.append((key, len(records), time))
                bench.send(records[-1])
    bench.run()
    bench.commit()
    return records
