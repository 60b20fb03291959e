"""Everything that runs on Spark: sinks of any pipeline, backfills of a topology, live workers.

Owns sessions (`session/`), jobs and their progress (`job/`), tasks on executors (`executor/`),
`backfill/`, `sinks/`, the `data_source/` over them, and `workers/`. The only importer of pyspark.

Public: the names in `__all__`, and those of `backfill/`; the modules are internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eosframework.spark.data_source.driver_server import register
    from eosframework.spark.sinks.sink_api import both, kafka_sink, table_sink
    from eosframework.spark.sinks.sink_runner import SinkProgress

__all__ = ["SinkProgress", "both", "kafka_sink", "register", "table_sink"]

_HOMES = {
    "SinkProgress": "sinks.sink_runner",
    "both": "sinks.sink_api",
    "kafka_sink": "sinks.sink_api",
    "register": "data_source.driver_server",
    "table_sink": "sinks.sink_api",
}
"""Modules of the names, which are imported at the first use: the processes that Spark starts for
each batch of the data source need none of them."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "annotations"})
