"""The fingerprint of a topology, which prevents another one from resuming its job."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from types import CodeType, ModuleType
from typing import Any, cast

import orjson

from eosframework.topology.graph.description import describe
from eosframework.topology.graph.graph import Function, Graph
from eosframework.topology.graph.walk import nodes_of

TOPOLOGY = "topology"
OWN = "eosframework"


def fingerprint(graph: Graph) -> dict[str, str]:
    """Return digests of the topology and of each module with functions of it.

    A whole module counts, including helpers in it; modules that it imports do not.
    """
    declared = orjson.dumps(describe(graph), option=orjson.OPT_SORT_KEYS)
    found = {TOPOLOGY: _digest(declared)}
    for function in functions_of(graph):
        name, content = _origin(function.call)
        if name.partition(".")[0] != OWN or name.startswith(f"{OWN}.demo."):
            found[name] = _digest(content)
    return found


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what differs between two fingerprints, for a message."""
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return ["the topology" if name == TOPOLOGY else f"module {name}" for name in changed]


def functions_of(graph: Graph) -> Iterator[Function]:
    """Yield every user function that a graph calls."""
    for part in graph.sub_topologies:
        for node in nodes_of(part):
            yield from _functions(node)
        yield from (store.upgrade for store in part.stores if store.upgrade is not None)
    for table_sink in graph.table_sinks:
        yield from (table.row for table in table_sink.tables if table.row is not None)


def _functions(node: Any) -> Iterator[Function]:
    """Yield the functions in a node's fields; the nodes after it are visited separately."""
    for field in fields(node):
        if field.name != "children":
            yield from _within(getattr(node, field.name))


def _within(value: Any) -> Iterator[Function]:
    if isinstance(value, Function):
        yield value
        return
    members: Iterable[Any] = ()
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value).values()
    elif isinstance(value, tuple):
        members = cast("tuple[Any, ...]", value)
    for member in members:
        if isinstance(member, Function | Mapping | tuple):
            yield from _within(member)


def _origin(call: Any) -> tuple[str, bytes]:
    """Return a function's module and source, or other identification without a source."""
    function = inspect.unwrap(call)
    module = inspect.getmodule(function)
    if isinstance(module, ModuleType) and getattr(module, "__file__", None):
        try:
            return module.__name__, inspect.getsource(module).encode()
        except (OSError, TypeError):
            pass
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    return f"{getattr(function, '__module__', '')}:{name}", _bytes_of(code)


def _bytes_of(code: CodeType | None) -> bytes:
    """Return the behaviour of a function without a file: its instructions, constants and names."""
    if code is None:
        return b""
    constants = (_bytes_of(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return repr((code.co_code, tuple(constants), code.co_names)).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
