"""The table of changes: what each asks for, and why. It is data (`rules.yaml`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import yaml


class Verdict(StrEnum):
    """What a change asks for, the easiest first."""

    ROLLING = "rolling"
    """Nothing: workers may be replaced one after the other."""
    APPLY = "apply"
    """`eosframework apply` first; then as ROLLING."""
    STOP = "stop"
    """No worker of the old topology may run when one of the new topology starts."""
    DRAIN = "drain"
    """The same, and the old topology has to read what it has sent itself to its end first."""
    OTHER_STORE = "other_store"
    """Another name for the store, or nothing of it: the one that there is does not fit."""
    OTHER_APPLICATION = "other_application"
    """Another name for the application, which a backfill fills."""

    @property
    def is_refused(self) -> bool:
        """Whether workers do not start on it, whoever runs."""
        return self in (Verdict.OTHER_STORE, Verdict.OTHER_APPLICATION)

    @property
    def stops_all(self) -> bool:
        """Whether workers do not start on it while others run."""
        return self in (Verdict.STOP, Verdict.DRAIN)


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of change.

    Args:
        name: of the rule.
        change: what is changed, for the documentation.
        why: what would happen otherwise, or why nothing does.
        next: what to do.
        seen: a worker's start compares; else why it does not.
    """

    name: str
    change: str
    verdict: Verdict
    why: str
    next: str
    seen: str | None = None


@cache
def rules() -> dict[str, Rule]:
    """Return the table as it is shipped, by name."""
    shipped = files("eosframework.topology.evolution").joinpath("rules.yaml")
    text = shipped.read_text(encoding="utf-8")
    content: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return {
        name: Rule(name=name, **{**row, "verdict": Verdict(row["verdict"])})
        for name, row in content.items()
    }


def as_markdown() -> str:
    """Return the table for docs/howto/upgrades.md."""
    lines = ["| change | asks for | why | what to do |", "| --- | --- | --- | --- |"]
    for rule in sorted(rules().values(), key=lambda rule: list(Verdict).index(rule.verdict)):
        why = rule.why if rule.seen is None else f"{rule.why} ({rule.seen})"
        lines.append(f"| {rule.change} | **{rule.verdict}** | {why} | {rule.next} |")
    return "\n".join(lines) + "\n"
