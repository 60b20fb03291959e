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
    from eosframework.records import Record, WindowResult
    from eosframework.schemas import avro, json_schema, protobuf
    from eosframework.serdes import Serde, serde_of
    from eosframework.topology.builder import Topology
    from eosframework.topology.streams import Stream, dead_letter
    from eosframework.topology.window_making import hopping, session, sliding, tumbling

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
    "WindowResult",
    "avro",
    "dead_letter",
    "hopping",
    "json_schema",
    "protobuf",
    "serde_of",
    "session",
    "sliding",
    "tumbling",
]

_HOMES = {
    "Record": "records",
    "Serde": "serdes",
    "Stream": "topology.streams",
    "Topology": "topology.builder",
    "WindowResult": "records",
    "avro": "schemas",
    "dead_letter": "topology.streams",
    "hopping": "topology.window_making",
    "json_schema": "schemas",
    "protobuf": "schemas",
    "serde_of": "serdes",
    "session": "topology.window_making",
    "sliding": "topology.window_making",
    "tumbling": "topology.window_making",
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
