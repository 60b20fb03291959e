"""Clusters with one thing amiss each, by what the doctor judges them with."""

from __future__ import annotations

from eosframework.operations.doctor import Severity
from eosframework.operations.doctor.findings import Seen, Unseen
from tests.unit.operations.doctor.case import Case
from tests.unit.operations.doctor.cases import (
    brokers,
    clients,
    identity,
    permissions,
    replicas,
    topics,
    transactions,
)
from tests.unit.operations.doctor.made_up import snapshot

CASES = [
    *brokers.CASES,
    *replicas.CASES,
    *topics.CASES,
    *clients.CASES,
    *identity.CASES,
    *transactions.CASES,
    *permissions.CASES,
    Case(
        "not-checked",
        Severity.WARNING,
        lambda: snapshot(clock=Seen(Unseen("the clock", "no quorum"))),
        "not seen, so not checked: clock",
        "no quorum",
    ),
]
