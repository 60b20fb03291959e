"""Exactly-once stream processing over real Apache Kafka."""

from eosframework.errors import (
    EosError,
    InstanceFenced,
    RunError,
    TransactionError,
    UserError,
)
from eosframework.records import Record
from eosframework.serdes import Serde, serde_of
from eosframework.topology.builder import Stream, Topology, dead_letter

__all__ = [
    "EosError",
    "InstanceFenced",
    "Record",
    "RunError",
    "Serde",
    "Stream",
    "Topology",
    "TransactionError",
    "UserError",
    "dead_letter",
    "serde_of",
]
