"""`python -m benchmarks [NAME …]`, and `python -m benchmarks faults`, with options of its own."""

from __future__ import annotations

import signal
import sys
from collections.abc import Collection, Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.disciplines import DISCIPLINES
from benchmarks.faults.command import main as faults
from benchmarks.floors import FloorMissed
from benchmarks.options import Options
from benchmarks.processes import ProcessFailed
from benchmarks.published import publish
from benchmarks.report import Report
from benchmarks.session import open_session
from eosframework.errors import EosError

BENCHMARKS = {
    "json": "contest",
    "eos-vs-alo": "guarantees",
    "memory": "memory",
    "recovery": "recovery",
    "stages": "stages",
    "hops": "hops",
    "operators": "operators",
    "batch": "batch",
    "group-protocols": "group_protocols",
    "protection": "protection",
    "protection-cpu": "protection_cpu",
    "table-writer": "table_writer",
    "outbox": "outbox",
    "stores": "stores",
    "restore": "restore",
    "count": "counting",
    "count-memory": "counting_memory",
    "works": "works",
    "tables": "tables",
    "watermarks": "watermarks",
    "at-least-once": "at_least_once",
    "ceilings": "ceilings",
    "latency": "latency",
    "curves": "curves",
    "scale": "scale",
    "check": "check",
    "backfill": "backfill",
    "spark-sink": "spark_sink",
    "effects": "effects",
}
"""Modules of this package by the name that a user gives."""

ALWAYS = (
    *("json", "memory", "recovery", "eos-vs-alo", "protection-cpu"),
    *("works", "at-least-once", "ceilings", "latency", "curves", "scale"),
)
"""The benchmarks that run if no name is given; they take an hour."""


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Some of: {', '.join(BENCHMARKS)}.")
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(min=20_000, help="Size of inputs; below 200,000 speeds mean little."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Repetitions.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Length of timed runs.")] = None,
    work: Annotated[
        list[str] | None,
        typer.Option(help=f"Of works only these: {', '.join(d.name for d in DISCIPLINES)}."),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the figures there.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Also keep tables, figures and charts in this directory, beside others."),
    ] = None,
) -> None:
    """Measure speed and memory on a Kafka of our own, as ratios within one run."""
    chosen = names or list(ALWAYS)
    _require_known(chosen, BENCHMARKS)
    _require_known(work or (), [discipline.name for discipline in DISCIPLINES])
    # A shell starts background jobs with SIGINT ignored; both signals unwind and end the children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report()
    options = Options(records, rounds, seconds, tuple(work or ()))
    try:
        with open_session() as session:
            for name in chosen:
                module = import_module(f"benchmarks.{BENCHMARKS[name]}")
                module.run(session, options, report)
    except (EosError, ProcessFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    except FloorMissed as missed:
        print(f"error: {missed}", file=sys.stderr)
        raise typer.Exit(1) from missed
    finally:
        if json is not None:
            report.save(json)
        if out is not None:
            publish(report, out)


def _require_known(names: Iterable[str], there_are: Collection[str]) -> None:
    if unknown := [name for name in names if name not in there_are]:
        raise typer.BadParameter(f"{', '.join(unknown)}; there are {', '.join(there_are)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["faults"]:
        del sys.argv[1]
        typer.run(faults)
    else:
        typer.run(main)
