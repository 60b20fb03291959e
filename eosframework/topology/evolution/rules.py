"""The rules for changes of a topology: the verdict on each kind and its reason (`rules.yaml`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from eosframework.serialization.package_data import named_rows, read_table


class Verdict(StrEnum):
    """The procedure that a change needs, the easiest first."""

    ROLLING = "rolling"
    """Workers may be replaced one after the other."""
    APPLY = "apply"
    """`eosframework apply` first; then as ROLLING."""
    CONFIRM = "confirm"
    """`eosframework apply` first, which records that the change is meant; then as ROLLING."""
    STOP = "stop"
    """All workers of the old topology must stop before one of the new topology starts."""
    DRAIN = "drain"
    """As STOP, and the old topology must first read its own repartition topics to the end."""
    ACCEPT = "accept"
    """As STOP, and the state that would be dropped must be accepted with `apply --accept`."""
    OTHER_STORE = "other_store"
    """The store needs another name, or must be deleted: its content does not fit."""
    OTHER_APPLICATION = "other_application"
    """The application needs another name and a backfill."""

    @property
    def is_refused(self) -> bool:
        """True if workers never start with the change."""
        return self in (Verdict.OTHER_STORE, Verdict.OTHER_APPLICATION)

    @property
    def stops_all(self) -> bool:
        """True if workers do not start with the change while others run."""
        return self in (Verdict.STOP, Verdict.DRAIN, Verdict.ACCEPT)


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of change.

    Args:
        name: of the rule.
        change: the changed thing, for the documentation.
        why: the reason for the verdict.
        next: the steps to take.
        next_of: other steps where the store belongs to a `table` source, which has no `store:`, or
            to a `join` of streams, which has no `upgrade:`.
        seen: the reason why a worker's start does not detect it; None: it does.
    """

    name: str
    change: str
    verdict: Verdict
    why: str
    next: str
    next_of: Mapping[str, str] = field(default_factory=dict[str, str])
    seen: str | None = None


@cache
def rules() -> dict[str, Rule]:
    """Return the shipped rules, by name."""
    package = "eosframework.topology.evolution"
    return named_rows(read_table(package, "rules.yaml", dict[str, Any]), Rule)


def as_markdown() -> str:
    """Return the table for docs/howto/upgrades.md."""
    lines = ["| change | asks for | why | what to do |", "| --- | --- | --- | --- |"]
    for rule in sorted(rules().values(), key=lambda rule: list(Verdict).index(rule.verdict)):
        why = rule.why if rule.seen is None else f"{rule.why} ({rule.seen})"
        other = "".join(f"; for a {holder}: {text}" for holder, text in rule.next_of.items())
        lines.append(f"| {rule.change} | **{rule.verdict}** | {why} | {rule.next}{other} |")
    return "\n".join(lines) + "\n"
