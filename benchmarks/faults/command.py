"""`python -m benchmarks faults`: the same faults for every contestant, and one judge."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.faults import page as results_page
from benchmarks.faults.judge import Verdict
from benchmarks.faults.kinds import Kind
from benchmarks.faults.own_loop import OwnLoop, UnknownContestant, chosen
from benchmarks.faults.peers import PEERS, Framework, Peer
from benchmarks.faults.suite import Plan, Results, play, prepared
from benchmarks.report import Report
from eosframework.errors import EosError

NAMES = ", ".join(Kind)


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often each fault strikes each.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the moments at which faults strike.")] = 1,
    only: Annotated[list[str] | None, typer.Option(help=f"Only these faults: {NAMES}.")] = None,
    contestant: Annotated[
        list[str] | None,
        typer.Option(help="Only these: a name of the table, or the path of a script of yours."),
    ] = None,
    lanes: Annotated[int, typer.Option(min=1, help="Trials at a time, each on own brokers.")] = 1,
    start_seconds: Annotated[
        float, typer.Option(help="Within which a contestant must write its first record.")
    ] = 120.0,
    data: Annotated[
        Path | None,
        typer.Option(help="Keep every trial in this file of JSON, alongside earlier ones."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write the tables of --data into this page.")
    ] = None,
    logs: Annotated[
        Path | None, typer.Option(help="Keep the contestants' logs in this directory.")
    ] = None,
) -> None:
    """Strike every contestant with the same faults, and judge what readers then get.

    Exits with 1 if a fault did not fire, or if eosframework or a script of yours was not clean.
    """
    kinds = _kinds(only)
    if page is not None and data is None:
        raise typer.BadParameter("--page writes what --data keeps; give both")
    try:
        peers: list[Peer] = [chosen(name) for name in contestant] if contestant else list(PEERS)
    except UnknownContestant as error:
        raise typer.BadParameter(str(error)) from error
    # A shell starts background jobs with SIGINT ignored; both signals unwind and end the children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report()
    present, versions, absent = prepared(peers)
    for name, reason in absent.items():
        report.progress(f"{name} is left out: {reason}")
    plan = Plan(present, kinds, rounds, seed, lanes, start_seconds)
    earlier = results_page.load(data) if data is not None else {}
    results = Results()

    def keep() -> dict[str, Any]:
        """Write what there is, so that a run that is interrupted has not been for nothing."""
        found = results_page.data_of(plan, results, versions, peers, absent)
        kept = results_page.merged(earlier, found)
        if data is not None:
            results_page.save(data, kept)
        if page is not None:
            results_page.write(page, kept)
        return found

    _strike(plan, results, logs, report, keep)
    found = keep()
    report.add("faults", results_page.table(found), found)
    _exit(results, present)


def _strike(
    plan: Plan,
    results: Results,
    logs: Path | None,
    report: Report,
    keep: Callable[[], object],
) -> None:
    try:
        with _directory(logs) as directory:
            play(plan, results, directory, report.progress, keep)
    except EosError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error


def _exit(results: Results, peers: Collection[Peer]) -> None:
    """End with 1 if a fault did not fire, or if what must be clean was not."""
    for failure in results.failures:
        print(f"error: {failure}", file=sys.stderr)
    ours = {peer.name for peer in peers if isinstance(peer, Framework | OwnLoop)}
    broken = [p for p in results.played if p.peer in ours and p.outcome.verdict != Verdict()]
    if results.failures or broken:
        raise typer.Exit(1)


@contextmanager
def _directory(logs: Path | None) -> Iterator[Path]:
    """Yield a directory for brokers and contestants, and keep the logs of contestants in `logs`."""
    with tempfile.TemporaryDirectory(prefix="eosframework-faults-") as made:
        directory = Path(made)
        try:
            yield directory
        finally:
            if logs is not None:
                for log in directory.glob("lane*/*/instance*.log"):
                    kept = logs / log.relative_to(directory)
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(log, kept)


def _kinds(only: Collection[str] | None) -> list[Kind]:
    if unknown := [name for name in only or () if name not in list(Kind)]:
        raise typer.BadParameter(f"{', '.join(unknown)}; there are {NAMES}")
    return [Kind(name) for name in only] if only else list(Kind)
