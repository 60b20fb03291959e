"""The results as data and as the tables of docs/compared.md.

A data file keeps the newest trials of each fault and contestant, so that some can be run again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from benchmarks.faults.judge import Verdict
from benchmarks.faults.kinds import TITLES, Kind
from benchmarks.faults.peers import EXACTLY_ONCE, Peer
from benchmarks.faults.suite import Plan, Results
from benchmarks.machine import describe_machine
from benchmarks.report import Table

BEGIN = "<!-- Written by `python -m benchmarks faults --page`; do not edit up to the end. -->"
END = "<!-- The end of what is written. -->"
NOT_RUN = "not run"
NOT_SENT = "not sent"


class NoPlaceForTables(Exception):
    """A page has no lines between which the tables go."""


def data_of(
    plan: Plan,
    results: Results,
    versions: Mapping[str, str],
    peers: Sequence[Peer],
    absent: Mapping[str, str],
) -> dict[str, Any]:
    """Return everything that a run found, with what it belongs to."""
    trials: dict[str, dict[str, Any]] = {}
    for played in results.played:
        cell = trials.setdefault(played.peer, {}).setdefault(
            played.kind.value,
            {
                "measured": datetime.now(UTC).date().isoformat(),
                "version": versions[played.peer],
                "rounds": [],
            },
        )
        outcome = played.outcome
        cell["rounds"].append(
            {
                "seed": plan.seed,
                "round": played.number,
                "records": outcome.records,
                "restarts": outcome.restarts,
                "seconds": round(outcome.seconds),
                "verdict": asdict(outcome.verdict),
            }
        )
    return {
        "machine": describe_machine(),
        "lanes": plan.lanes,
        "load": [round(load, 1) for load in os.getloadavg()],
        "contestants": {
            peer.name: {
                "version": versions.get(peer.name, ""),
                "absent": absent.get(peer.name, ""),
                "promise": peer.promise,
                "settings": peer.settings,
                "not_struck": {kind.value: why for kind, why in peer.not_struck.items()},
            }
            for peer in peers
        },
        "trials": trials,
    }


def merged(kept: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kept data with the rounds of a new run.

    A round takes the place of an earlier one of its seed and number; those of another version of
    the contestant are dropped.
    """
    trials = {name: dict(cells) for name, cells in kept.get("trials", {}).items()}
    for name, cells in new["trials"].items():
        for kind, cell in cells.items():
            earlier = trials.setdefault(name, {}).get(kind)
            rounds = {
                (trial["seed"], trial["round"]): trial
                for found in (earlier, cell)
                if found and found["version"] == cell["version"]
                for trial in found["rounds"]
            }
            trials[name][kind] = {**cell, "rounds": [rounds[place] for place in sorted(rounds)]}
    contestants = {**kept.get("contestants", {}), **new["contestants"]}
    return {**new, "contestants": contestants, "trials": trials}


def table(data: Mapping[str, Any]) -> Table:
    """Return the table: a row for each fault, a column for each contestant that took part."""
    names = [name for name, about in data["contestants"].items() if not about["absent"]]
    kinds = [kind for kind in Kind if any(kind in data["trials"].get(n, {}) for n in names)]
    rows = [(TITLES[kind], *(_cell(data, name, kind) for name in names)) for kind in kinds]
    return Table("The same faults for everyone", ("fault", *names), rows)


def tables(data: Mapping[str, Any]) -> str:
    """Return the tables of the page, in Markdown."""
    machine = data["machine"]
    about = [
        (
            name,
            (found["absent"] and f"left out: {found['absent']}") or found["version"],
            found["promise"],
            found["settings"],
        )
        for name, found in data["contestants"].items()
    ]
    cells = [cell for found in data["trials"].values() for cell in found.values()]
    dates = sorted({cell["measured"] for cell in cells})
    rounds = sorted({len(cell["rounds"]) for cell in cells})
    played = [trial for cell in cells for trial in cell["rounds"]]
    seeds = sorted({trial["seed"] for trial in played})
    records = [trial["records"] for trial in played]
    told = (
        f"{' and '.join(dates)}; rounds: {' or '.join(map(str, rounds))}; "
        f"seed: {', '.join(map(str, seeds))}; {min(records):,} to {max(records):,} input records "
        f"in each trial; {data['lanes']} trials at a time; {machine['cores']} cores, shared with "
        f"other work (load {data['load'][-1]:g}); Kafka {machine['kafka']}, "
        f"librdkafka {machine['librdkafka']} of ours, Java {machine['java']}, "
        f"Python {machine['python']}."
    )
    found = table(data)
    return "\n\n".join(
        (
            _markdown(found.columns, found.rows),
            told,
            _markdown(("contestant", "version", "promises", "set up"), about),
            _markdown(("not sent by", "faults", "because"), _reasons(data)),
        )
    )


def write(page: Path, data: Mapping[str, Any]) -> None:
    """Put the tables into a page, in place of those that it has.

    Raises:
        NoPlaceForTables: the page has no place for them.
    """
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise NoPlaceForTables(f"{page} has no lines {BEGIN} and {END}; add them")
    page.write_text(f"{before}{BEGIN}\n\n{tables(data)}\n\n{END}{after}", encoding="utf-8")


def load(file: Path) -> dict[str, Any]:
    """Return the data of a file; nothing, if there is none."""
    return orjson.loads(file.read_bytes()) if file.exists() else {}


def save(file: Path, data: Mapping[str, Any]) -> None:
    file.write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2) + b"\n")


def _cell(data: Mapping[str, Any], name: str, kind: Kind) -> str:
    about = data["contestants"][name]
    if kind in about["not_struck"]:
        return NOT_SENT
    cell = data["trials"].get(name, {}).get(kind)
    if cell is None:
        return NOT_RUN
    verdicts = [Verdict(**trial["verdict"]) for trial in cell["rounds"]]
    total = sum(verdicts, Verdict())
    if total == Verdict():
        return "clean"
    bad = sum(verdict != Verdict() for verdict in verdicts)
    rounds = f" ({bad} of {len(verdicts)})" if len(verdicts) > 1 else ""
    allowed = "" if about["promise"] == EXACTLY_ONCE else ", not promised"
    return f"{total}{rounds}{allowed}"


def _reasons(data: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return a row for each contestant and reason."""
    rows: list[tuple[str, str, str]] = []
    for name, about in data["contestants"].items():
        reasons = about["not_struck"]
        for why in dict.fromkeys(reasons.values()):
            kinds = ", ".join(kind for kind, found in reasons.items() if found == why)
            rows.append((name, kinds, why))
    return rows


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
