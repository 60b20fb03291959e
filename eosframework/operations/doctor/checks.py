"""The table of checks, in the order of the report and of docs/howto/doctor.md."""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.operations.doctor import broker_checks as brokers
from eosframework.operations.doctor import client_checks as clients
from eosframework.operations.doctor import identity_checks as identity
from eosframework.operations.doctor import permission_checks as permissions
from eosframework.operations.doctor import replica_checks as replicas
from eosframework.operations.doctor import topic_checks as topics
from eosframework.operations.doctor import transaction_checks as transactions
from eosframework.operations.doctor.findings import Check, Observation, Severity
from eosframework.operations.doctor.snapshot import Snapshot


def _nothing(snapshot: Snapshot) -> Iterator[Observation]:
    yield from ()


NOT_CHECKED = Check(
    "not-checked",
    Severity.WARNING,
    "access to all that a check reads",
    "The check could not run, so its result is unknown.",
    "see the reason",
    _nothing,
)
"""Finding for a check that could not run."""

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
