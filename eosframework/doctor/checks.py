"""The table of checks, in the order of their report and of docs/howto/doctor.md."""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.doctor import (
    brokers,
    clients,
    identity,
    permissions,
    replicas,
    topics,
    transactions,
)
from eosframework.doctor.findings import Check, Observation, Severity
from eosframework.doctor.snapshot import Snapshot


def _nothing(snapshot: Snapshot) -> Iterator[Observation]:
    yield from ()


NOT_CHECKED = Check(
    "not-checked",
    Severity.WARNING,
    "everything that a check needs may be seen",
    "What was not seen is not known to be right.",
    "as the reason says",
    _nothing,
)
"""What becomes of a check that cannot be made."""

CHECKS: tuple[Check, ...] = (
    *brokers.CHECKS,
    *replicas.CHECKS,
    *topics.CHECKS,
    *clients.CHECKS,
    *identity.CHECKS,
    *transactions.CHECKS,
    *permissions.CHECKS,
    NOT_CHECKED,
)
