"""The part of `eosframework errors` that is about PostgreSQL; it needs no driver of its."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

States = Mapping[str, Mapping[str, str]]
"""Rows of the table by SQLSTATE, or by its first two characters for a whole class."""

_HEAD = """
## Errors of the database

Generated from `eosframework/postgres/failures.yaml`. Two characters stand for all codes that begin
with them and have no row of their own (PostgreSQL 18, appendix A).

| category | raised as | whoever fills tables |
| --- | --- | --- |
"""

_NOTES = """
A COMMIT that the server answers with an error is undone. One that it does not answer, or answers
while it ends the connection (FATAL), may be done: it is *away*, and only a new claim tells.
"""


def find(code: str | None) -> States:
    """Return the row of a SQLSTATE, that of its class where it has none; None: all rows."""
    states: States = _table()["states"]
    if code is None:
        return states
    wanted = code.upper()
    if len(wanted) not in (2, 5):
        return {}
    known = [state for state in (wanted, wanted[:2]) if state in states]
    return {state: states[state] for state in known[:1]}


def texts(states: States) -> list[str]:
    """Return rows for people."""
    categories = _table()["categories"]
    found: list[str] = []
    for state, row in states.items():
        category = row["category"]
        lines = [f"SQLSTATE {_shown(state)}", f"  {row['meaning']}"]
        lines.append(f"  {category}: whoever fills tables {categories[category]['task']}")
        if mend := row.get("mend"):
            lines.append(f"  to mend it: {mend}")
        found.append("\n".join(lines))
    return found


def as_data(states: States) -> dict[str, Any]:
    """Return rows for programs."""
    rows = [{"mend": None, **row, "state": state} for state, row in states.items()]
    return {"database": {"categories": _table()["categories"], "states": rows}}


def markdown() -> str:
    """Return the part of docs/errors.md."""
    table = _table()
    lines = [
        f"| **{name}** | {row['raises']} | {row['task']} |"
        for name, row in table["categories"].items()
    ]
    lines += ["", "| SQLSTATE | category | meaning |", "| --- | --- | --- |"]
    for state, row in table["states"].items():
        mend = f". To mend it: {row['mend']}" if "mend" in row else ""
        lines.append(f"| `{_shown(state)}` | **{row['category']}** | {row['meaning']}{mend} |")
    for name, row in table["others"].items():
        lines.append(f"| any other, {name} | **{row['category']}** | {row['meaning']} |")
    return _HEAD + "\n".join(lines) + "\n" + _NOTES


@cache
def _table() -> dict[str, Any]:
    from importlib.resources import files

    import yaml

    file = files("eosframework").joinpath("postgres", "failures.yaml")
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _shown(state: str) -> str:
    return f"{state}xxx" if len(state) == 2 else state
