"""Import of pyarrow, an optional dependency without type stubs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from eosframework.errors import TopologyError


def _required(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise TopologyError(
            "map_batch and filter_batch need pyarrow, which cannot be imported "
            f"({error}); install it: pip install 'eosframework[arrow]'"
        ) from error


arrow: Any = _required("pyarrow")
compute: Any = _required("pyarrow.compute")

RecordBatch = Any
"""A `pyarrow.RecordBatch`."""
