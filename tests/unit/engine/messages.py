"""Messages and graphs for tests of the pure part of the cycle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import CompiledPart, CompiledSource, compile_source
from eosframework.engine.failures.failure_handler import Site
from eosframework.serialization.serdes import serde_of
from eosframework.topology.graph.graph import (
    Function,
    OnError,
    Operator,
    Policy,
    Sink,
    Source,
    Step,
    Store,
    SubTopology,
)
from eosframework.transactions.ports import Output

FAIL = OnError()
SKIP = OnError(Policy.SKIP)
DEAD = OnError(Policy.DEAD_LETTER, "dead")


@dataclass(frozen=True)
class Sent:
    """A message as the log would deliver it."""

    data: bytes | None
    offset_: int = 0
    key_: bytes | None = b"k"
    time: int = 1000
    headers_: Any = None

    def topic(self) -> str:
        return "in"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self.offset_

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.data

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time

    def headers(self) -> Any:
        return self.headers_


@dataclass(frozen=True)
class Written:
    """An output as the topic gives it again."""

    output: Output
    offset_: int = 0

    def topic(self) -> str:
        return self.output[0]

    def partition(self) -> int:
        return self.output[3]

    def offset(self) -> int:
        return self.offset_

    def key(self) -> bytes | None:
        return self.output[2]

    def value(self) -> bytes | None:
        return self.output[1]

    def timestamp(self) -> tuple[int, int]:
        return 1, self.output[6]

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.output[7]


def json_messages(*values: Any) -> list[Sent]:
    return [Sent(orjson.dumps(v), i, time=1000 + i) for i, v in enumerate(values)]


def sink(topic: Any = "out", *, key: Any = bytes, value: Any = "json", on_error: OnError = FAIL):
    chosen = topic if isinstance(topic, str) else Function("choose", topic)
    return Sink(f"to({topic})", chosen, serde_of(key), serde_of(value), on_error)


def step(
    operator: Operator, call: Callable[..., Any], *children: Any, on_error: OnError = FAIL
) -> Step:
    name = getattr(call, "__name__", "call")
    return Step(
        f"{operator}({name})", "s", operator, Function(name, call), on_error, list(children)
    )


def source(
    *children: Any,
    key: Any = bytes,
    value: Any = "json",
    timestamp: Callable[..., Any] | None = None,
    on_error: OnError = FAIL,
) -> Source:
    extractor = Function("when", timestamp) if timestamp else None
    return Source("in", "in", serde_of(key), serde_of(value), extractor, on_error, list(children))


def part_of(target: CompiledSource, *stores: Store) -> CompiledPart:
    part = SubTopology("sub", (target.source,), (), stores=stores)
    return CompiledPart(part, {"in": target}, (), ())


def compiled(*children: Any, receipts: bool = False, **options: Any) -> CompiledSource:
    return compile_source(source(*children, **options), CompileContext(receipts=receipts))


def run(target: CompiledSource, messages: Any, failed: Any = None) -> list[Any]:
    out: list[Any] = []
    target.run(messages, out, 0, failed or raising)
    return out


def raising(site: Site, message: Any, error: BaseException, out: list[Any]) -> None:
    raise error
