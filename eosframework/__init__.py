"""Exactly-once stream processing over real Apache Kafka.

Public: the names in `__all__`, and those of the packages whose docstring says so.
"""

from __future__ import annotations

TYPE_CHECKING = False
"""Not `typing`'s: a Ctrl-C gives a traceback until this module, the first of each command, is
imported (`process/interrupts`), so it imports nothing."""

if TYPE_CHECKING:
    from typing import Any

    from eosframework.application.composition.embedding import RunningWorker, run, start
    from eosframework.application.composition.worker_run import WorkerStatus
    from eosframework.engine.operators.handlers import Context, KeyedStore
    from eosframework.errors import (
        EosError,
        InstanceFenced,
        KeyElsewhere,
        RunError,
        StoreNotReady,
        TransactionError,
        UserError,
    )
    from eosframework.records import Effect, Record, WindowResult
    from eosframework.serialization.schemas import avro, json_schema, protobuf
    from eosframework.serialization.serdes import Serde, serde_of
    from eosframework.topology.dsl.builder import Topology
    from eosframework.topology.dsl.declarations import (
        dead_letter,
        hopping,
        session,
        sliding,
        tumbling,
    )
    from eosframework.topology.dsl.streams import GlobalTable, KeyedStream, Stream, WindowedStream

__all__ = [
    "Context",
    "Effect",
    "EosError",
    "GlobalTable",
    "InstanceFenced",
    "KeyElsewhere",
    "KeyedStore",
    "KeyedStream",
    "Record",
    "RunError",
    "RunningWorker",
    "Serde",
    "StoreNotReady",
    "Stream",
    "Topology",
    "TransactionError",
    "UserError",
    "WindowResult",
    "WindowedStream",
    "WorkerStatus",
    "avro",
    "dead_letter",
    "hopping",
    "json_schema",
    "protobuf",
    "run",
    "serde_of",
    "session",
    "sliding",
    "start",
    "tumbling",
]

_HOMES = {
    "Context": "engine.operators.handlers",
    "Effect": "records",
    "GlobalTable": "topology.dsl.streams",
    "KeyedStore": "engine.operators.handlers",
    "KeyedStream": "topology.dsl.streams",
    "Record": "records",
    "RunningWorker": "application.composition.embedding",
    "Serde": "serialization.serdes",
    "Stream": "topology.dsl.streams",
    "Topology": "topology.dsl.builder",
    "WindowResult": "records",
    "WindowedStream": "topology.dsl.streams",
    "WorkerStatus": "application.composition.worker_run",
    "avro": "serialization.schemas",
    "dead_letter": "topology.dsl.declarations",
    "hopping": "topology.dsl.declarations",
    "json_schema": "serialization.schemas",
    "protobuf": "serialization.schemas",
    "run": "application.composition.embedding",
    "serde_of": "serialization.serdes",
    "session": "topology.dsl.declarations",
    "sliding": "topology.dsl.declarations",
    "start": "application.composition.embedding",
    "tumbling": "topology.dsl.declarations",
}
"""Modules of the names that do not come from `errors`.

They are imported at the first use, so that the command line and a worker that is restarted do not
wait for what they do not need.
"""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING", "annotations"})
