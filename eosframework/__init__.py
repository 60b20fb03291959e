"""Exactly-once stream processing over real Apache Kafka."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "Record": "records",
    "Serde": "serdes",
    "Stream": "topology.builder",
    "Topology": "topology.builder",
    "dead_letter": "topology.builder",
    "serde_of": "serdes",
}
"""Modules of the names that do not come from `errors`.

They are imported at the first use, so that the command line and a worker that is restarted do not
wait for what they do not need.
"""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
