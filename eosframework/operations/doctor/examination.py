"""The table of checks, and the report: all checks over a snapshot.

A check without its data becomes a finding too. The table is in the order of the report and of
docs/reference/doctor.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from eosframework.operations.doctor import broker_checks, client_checks, topic_checks
from eosframework.operations.doctor.findings import (
    Check,
    Finding,
    NotSeen,
    Observation,
    Severity,
    Unseen,
)
from eosframework.operations.doctor.snapshot import Snapshot
from eosframework.serialization.yaml_text import read_table


@dataclass(frozen=True, slots=True)
class Report:
    """The findings, errors first, in the order of the table."""

    application: str
    findings: tuple[Finding, ...]

    def count(self, severity: Severity) -> int:
        """Return how many findings are of a severity."""
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def healthy(self) -> bool:
        """True without findings of severity error."""
        return self.count(Severity.ERROR) == 0

    def as_data(self) -> dict[str, Any]:
        """Return the report as plain data, for JSON."""
        return {
            "application": self.application,
            "healthy": self.healthy,
            **{f"{severity}s": self.count(severity) for severity in Severity},
            "checks": [check.id for check in CHECKS],
            "findings": [asdict(finding) for finding in self.findings],
        }


def examine(snapshot: Snapshot) -> Report:
    """Apply every check; a pure function of the snapshot."""
    findings: list[Finding] = []
    unseen: dict[Unseen, list[str]] = {
        seen.found: [] for seen in snapshot.topics.values() if isinstance(seen.found, Unseen)
    }
    for check in CHECKS:
        try:
            # One by one: findings before an unseen part are kept.
            for observation in check.judge(snapshot):
                findings.append(_finding(check, observation))
        except NotSeen as missing:
            unseen.setdefault(missing.unseen, []).append(check.id)
    findings += [_not_checked(part, checks) for part, checks in unseen.items()]
    order = list(Severity)
    findings = _together(findings)
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Report(snapshot.graph.application, tuple(findings))


def _together(findings: Sequence[Finding]) -> list[Finding]:
    """Merge findings that differ only in their object, such as brokers."""
    abouts: dict[Finding, list[str]] = {}
    for finding in findings:
        abouts.setdefault(replace(finding, about=""), []).append(finding.about)
    return [replace(finding, about=", ".join(about)) for finding, about in abouts.items()]


def _finding(check: Check, observation: Observation) -> Finding:
    return Finding(
        check=check.id,
        severity=observation.severity or check.severity,
        about=observation.about,
        found=observation.found,
        expected=observation.expected or check.expected,
        why=observation.why or check.why,
        fix=observation.fix or check.fix,
    )


def _not_checked(part: Unseen, checks: Sequence[str]) -> Finding:
    names = ", ".join(checks) or "all that look at it"
    return _finding(
        NOT_CHECKED,
        Observation(
            part.what,
            f"not seen, so not checked: {names}",
            fix=part.reason,
            severity=part.severity,
        ),
    )


def _nothing(snapshot: Snapshot) -> Iterator[Observation]:
    yield from ()


_JUDGES = {
    **broker_checks.CHECKS,
    **topic_checks.CHECKS,
    **client_checks.CHECKS,
    "not-checked": _nothing,
}

_TEXTS = read_table("eosframework.operations.doctor", "checks.yaml", dict[str, Any])

CHECKS = tuple(
    TypeAdapter(Check).validate_python({"id": name, "judge": _JUDGES[name], **texts})
    for name, texts in _TEXTS.items()
)
"""All checks, in the order of the documentation; their texts are in `checks.yaml`."""

NOT_CHECKED = next(check for check in CHECKS if check.id == "not-checked")
"""Finding for a check that could not run."""
