"""`works`: all disciplines by all contestants, and the ratios side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.contest import compete, everybody, warm_up
from benchmarks.disciplines import DISCIPLINES
from benchmarks.options import Options
from benchmarks.report import Report, Table
from benchmarks.session import Session
from benchmarks.standings import Field

DEFAULT_RECORDS = 300_000
DEFAULT_ROUNDS = 2


def run(session: Session, options: Options, report: Report) -> None:
    """Go through the disciplines, or those that were asked for."""
    chosen = [d for d in DISCIPLINES if not options.disciplines or d.name in options.disciplines]
    sized = replace(
        options,
        records=options.records or DEFAULT_RECORDS,
        rounds=options.rounds or DEFAULT_ROUNDS,
    )
    rows: list[tuple[str, ...]] = []
    data: dict[str, Any] = {}
    names = [contestant.name for contestant in everybody()]
    warm_up(session, sized.records or DEFAULT_RECORDS, chosen[0])
    for discipline in chosen:
        field = compete(session, sized, report, discipline)
        data[discipline.name] = field.data()
        rows.append((f"{discipline.name}: {discipline.title}", *_cells(field, names)))
    report.add(
        "works",
        Table(
            f"Works of {sized.records:,} records (Quix Streams a fifth), rounds: {sized.rounds}; "
            "records/s, and in brackets eosframework's speed beside it",
            ("work", *names),
            rows,
        ),
        data,
    )


def _cells(field: Field, names: list[str]) -> list[str]:
    """Return a cell for each contestant; absent ones have an empty one."""
    first = field.standings[0]
    found = {
        standing.contestant.name: f"{standing.median:,.0f}"
        + ("" if standing is first else f" ({standing.times_slower_than(first):.2f})")
        for standing in field.standings
    }
    return [found.get(name, "") for name in names]
