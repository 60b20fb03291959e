"""Pickles graphs for processes without the user's modules: their functions are sent by value."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any, cast

from eosframework.errors import TopologyError
from eosframework.topology.graph.graph import Graph

_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")


def pack(graph: Graph) -> bytes:
    """Return a graph as bytes that any process with the framework can unpack.

    Modules outside installed packages, such as the topology's file, are included.

    Raises:
        TopologyError: a function refers to an object that cannot be pickled, such as a connection.
    """
    return pack_value(graph, f"application {graph.application!r}")


def unpack(packed: bytes) -> Graph:
    """Return a packed graph."""
    return unpack_value(packed)


def pack_value(value: Any, what: str) -> bytes:
    """Return a value as bytes that any process with the framework can unpack; see `pack`.

    Args:
        value: may contain user functions.
        what: description, for messages.

    Raises:
        TopologyError: a part of it cannot be pickled.
    """
    cloudpickle = _cloudpickle()
    with ExitStack() as stack:
        for module in user_modules():
            cloudpickle.register_pickle_by_value(module)
            stack.callback(cloudpickle.unregister_pickle_by_value, module)
        try:
            return cast(bytes, cloudpickle.dumps(value))
        except Exception as error:
            raise TopologyError(
                f"{what} cannot be sent to executors: {error}; expected functions that hold only "
                f"plain values. Open connections, files and locks inside the function, at its "
                f"first call"
            ) from error


def unpack_value(packed: bytes) -> Any:
    """Return a packed value."""
    return _cloudpickle().loads(packed)


def user_modules() -> Iterator[ModuleType]:
    """Yield the imported modules that other machines may lack."""
    installed = _installed()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name == "__main__" or name.partition(".")[0] == "eosframework":
            continue
        # Resolving a path takes longer than all else, so it is the second choice.
        if not file.startswith(installed) and not os.path.realpath(file).startswith(installed):
            yield module


def _installed() -> tuple[str, ...]:
    """Return the path prefixes of installed modules."""
    given = [sysconfig.get_path(name) for name in _INSTALLED]
    return tuple(
        {os.path.join(path, "") for each in given for path in (each, os.path.realpath(each))}
    )


def _cloudpickle() -> Any:
    """Return pyspark's own cloudpickle, which every executor has."""
    return importlib.import_module("pyspark.cloudpickle")
