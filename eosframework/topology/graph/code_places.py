"""The functions of a node, with the places of their definitions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eosframework.topology.graph.graph import (
    Aggregate,
    ForeignJoin,
    Function,
    JoinSide,
    Lookup,
    Processor,
    Sink,
    Source,
    Step,
    StreamJoin,
    Subscribe,
    TableGroup,
    TableJoin,
)
from eosframework.topology.graph.node_kinds import tagged
from eosframework.topology.graph.walk import AnyNode


@dataclass(frozen=True, slots=True)
class Code:
    """A function of the user.

    Args:
        name: as the topology names it.
        file: its source file; None: not known, as for built-in functions.
        line: of its definition.
    """

    name: str
    file: str | None = None
    line: int | None = None


def functions_of(node: AnyNode) -> Iterator[Function]:
    """Return the user's functions that a node calls."""
    match node:
        case Source():
            found: Iterable[Function | None] = (node.timestamp,)
        case Sink():
            found = (node.topic if isinstance(node.topic, Function) else None,)
        case Step():
            found = (node.function, *(predicate for predicate, _ in node.branches))
        case Aggregate():
            found = node.functions.values()
        case Processor():
            found = node.functions.values()
        case Lookup():
            found = (node.of, node.function)
        case Subscribe():
            found = (node.of,)
        case JoinSide(join=TableJoin() | StreamJoin() | ForeignJoin() as join):
            found = (join.function,)
        case TableGroup():
            found = (node.function,)
        case _:
            found = ()
    return (one for one in found if one is not None and _unwrapped(one.call) is not tagged)


def codes_of(node: AnyNode) -> tuple[Code, ...]:
    """Return the functions of a node with their places, each once."""
    return tuple(dict.fromkeys(_code(function) for function in functions_of(node)))


def _code(function: Function) -> Code:
    """Return a function with the place of its definition."""
    file, line = place_of(function.call)
    return Code(function.name, file, line)


def breakpoints_of(nodes: Iterable[AnyNode]) -> Iterator[tuple[str, int, str]]:
    """Yield file, first line and name of each function with source code, for a debugger."""
    for node in nodes:
        for function in functions_of(node):
            code = getattr(_unwrapped(function.call), "__code__", None)
            if code is not None and not code.co_filename.startswith("<"):
                yield code.co_filename, code.co_firstlineno, code.co_name


def _unwrapped(call: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(call, functools.partial):
        call = call.func
    return inspect.unwrap(call)


def place_of(call: Callable[..., Any]) -> tuple[str | None, int | None]:
    """Return the file, relative to the working directory, and the line of a function or class."""
    found = _unwrapped(call)
    code = getattr(found, "__code__", None)
    try:
        file = inspect.getsourcefile(found) if code is None else code.co_filename
        line = inspect.getsourcelines(found)[1] if code is None else code.co_firstlineno
    except (OSError, TypeError):  # made without source, or built in
        return None, None
    if file is None or file.startswith("<"):
        return None, None
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path), line
