"""Carries a graph to processes that lack the user's modules: their functions travel by value."""

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

    Modules that are not installed packages, such as the file of the topology, go with it.

    Raises:
        TopologyError: a function holds something that cannot travel, such as a connection.
    """
    return pack_value(graph, f"application {graph.application!r}")


def unpack(packed: bytes) -> Graph:
    """Return the graph that was packed."""
    return unpack_value(packed)


def pack_value(value: Any, what: str) -> bytes:
    """Return anything as bytes that any process with the framework can unpack; see `pack`.

    Args:
        value: may hold functions of the user's.
        what: it is, for messages.

    Raises:
        TopologyError: something in it cannot travel.
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
    """Return what was packed."""
    return _cloudpickle().loads(packed)


def user_modules() -> Iterator[ModuleType]:
    """Give the imported modules that other machines cannot be expected to have."""
    installed = _installed()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name == "__main__" or name.partition(".")[0] == "eosframework":
            continue
        # Paths are resolved only where they have to be: that takes longer than all else.
        if not file.startswith(installed) and not os.path.realpath(file).startswith(installed):
            yield module


def _installed() -> tuple[str, ...]:
    """Return how paths of installed modules begin."""
    given = [sysconfig.get_path(name) for name in _INSTALLED]
    return tuple(
        {os.path.join(path, "") for each in given for path in (each, os.path.realpath(each))}
    )


def _cloudpickle() -> Any:
    """Return the cloudpickle that executors have in any case: pyspark's own."""
    return importlib.import_module("pyspark.cloudpickle")
