"""What a check is tried with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eosframework.operations.doctor import Severity
from eosframework.operations.doctor.snapshot import Snapshot

E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE


@dataclass(frozen=True)
class Case:
    """A cluster with one thing amiss, and what has to be said about it."""

    check: str
    severity: Severity
    cluster: Callable[[], Snapshot]
    found: str
    fix: str
