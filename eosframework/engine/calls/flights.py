"""Records with the calls that they wait for.

Calls of a record run in levels: those that its source reaches, then those that follow from their
results. A level ends with its last call, and its results are taken in the order in which its calls
began, so the outputs of a record do not depend on the order in which calls end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from eosframework.engine.failures.failure_handler import Site
from eosframework.topology.graph.graph import Calls, Once, Operator, Step
from eosframework.topology.graph.node_kinds import excludes_none, none_refused
from eosframework.transactions.ports import Message

After = Callable[[Message, "Flight", Any, Any, int, Any, bytes | None], None]
"""Runs the steps that follow a call, up to the next calls: for a record with its key, value, time,
headers and encoded key."""


def _nothing(*_: object) -> None:
    """Follow a call with nothing."""


class CallNode:
    """A step that calls a coroutine, in the generated code of one source.

    Args:
        step: the step.

    Attributes:
        after: the steps that follow it; set once they are compiled.
    """

    def __init__(self, step: Step) -> None:
        assert step.calls is not None, "the step calls a coroutine"
        self.step = step
        self.options: Calls = step.calls
        self.site = Site(step.name, step.on_error)
        self.after: After = _nothing
        self.once: Once | None = step.calls.once
        self._maps = step.operator in (
            Operator.MAP_ASYNC,
            Operator.MAP_BATCH_ASYNC,
            Operator.CALL_ONCE,
        )
        self._filters = step.operator is Operator.FILTER_ASYNC
        is_single = step.operator is Operator.MAP_ASYNC
        self._refuses_none = is_single and excludes_none(step.function.call)

    def resume(self, call: Call) -> None:
        """Run the steps that follow a call that has a result."""
        flight, value = call.flight, call.value
        if self._maps:
            value = call.result
            if value is None and self._refuses_none:
                flight.fail(self.site, none_refused(self.step.function.name))
                return
        elif self._filters and not call.result:
            return
        self.after(flight.message, flight, call.key, value, call.time, call.headers, call.key_bytes)


class Call:
    """One call of a coroutine for a record.

    Args:
        flight: the record.
        node: the step.
        key: the key of the record at the step, and so on.
        key_bytes: the encoded key of the message; None once a step has set another key.

    Attributes:
        result: of the coroutine.
        error: the reason why there is no result.
        number: of a step whose calls take effect once: its place among those of the record.
    """

    __slots__ = (
        "attempt",
        "began_at",
        "error",
        "flight",
        "has_expired",
        "headers",
        "is_over",
        "key",
        "key_bytes",
        "node",
        "number",
        "result",
        "time",
        "timer",
        "value",
    )

    def __init__(
        self,
        flight: Flight,
        node: CallNode,
        key: Any,
        value: Any,
        time: int,
        headers: Any,
        key_bytes: bytes | None,
    ) -> None:
        self.flight = flight
        self.node = node
        self.key = key
        self.value = value
        self.time = time
        self.headers = headers
        self.key_bytes = key_bytes
        self.result: Any = None
        self.error: BaseException | None = None
        self.attempt = 0
        self.began_at = 0.0
        self.timer: Any = None
        self.has_expired = False
        self.is_over = False
        self.number = 1

    def run(self, function: Callable[..., Any], resources: Mapping[str, Any]) -> Any:
        """Call the function of the step, and return what it returns; on the event loop."""
        return function(self.value, **resources)


@dataclass(slots=True, eq=False)
class FlightPlan:
    """The part of a source's generated code that runs ahead.

    Args:
        begin: decodes a message and runs the steps before the first calls, which it begins.
        places: the number of places at which the transaction resumes.
        most_calls: the largest concurrency of a step.
        once: the first step whose calls take effect once; None: there is none.
    """

    begin: Callable[[Message, Flight], None]
    places: int
    most_calls: int
    once: str | None = None


class Flight:
    """A record with its calls; it stands for its message in queues and runs.

    Args:
        message: the record.
        plan: of its source; None: it makes no calls.
        owner: cancels its calls together with those of its other records.
        membership: the group membership under which it was fetched.
        size_bytes: its estimated size.

    Attributes:
        calls: those of the current level.
        waiting: how many of them have not ended.
        places: by place, the records with which the transaction resumes there.
        error: the first failure, with its place in `site`.
        is_complete: all calls have ended.
        result_bytes: the estimated size of results.
    """

    __slots__ = (
        "calls",
        "error",
        "is_cancelled",
        "is_complete",
        "membership",
        "message",
        "owner",
        "places",
        "plan",
        "result_bytes",
        "site",
        "size_bytes",
        "waiting",
    )

    def __init__(
        self,
        message: Message,
        plan: FlightPlan | None,
        owner: object,
        membership: object = None,
        size_bytes: int = 0,
    ) -> None:
        self.message = message
        self.plan = plan
        self.owner = owner
        self.membership = membership
        self.size_bytes = size_bytes
        self.result_bytes = 0
        self.calls: list[Call] = []
        self.waiting = 0
        self.error: BaseException | None = None
        self.site: Site | None = None
        self.is_complete = False
        self.is_cancelled = False
        self.places: list[list[tuple[Any, ...]]] = []
        if plan is not None:
            self.places = [[] for _ in range(plan.places)]
            plan.begin(message, self)
        self._settle()

    def call(
        self, node: CallNode, k: Any, v: Any, t: int, h: Any, key_bytes: bytes | None, /
    ) -> None:
        """Begin a call; the generated code calls this."""
        call = Call(self, node, k, v, t, h, key_bytes)
        if node.once is not None:
            call.number = 1 + sum(1 for one in self.calls if one.node is node)
        self.calls.append(call)

    def fail(self, site: Site, error: BaseException) -> None:
        """Note a failure; the first one counts."""
        if self.error is None:
            self.error, self.site = error, site

    def land(self) -> list[Call]:
        """Take the results of a level whose calls have ended; return the calls of the next one."""
        ended, self.calls = self.calls, []
        for call in ended:
            if self.error is not None:
                break
            if call.error is not None:
                self.fail(call.node.site, call.error)
                break
            self.result_bytes += size_of(call.result)
            call.node.resume(call)
        self._settle()
        return self.calls

    def _settle(self) -> None:
        if self.error is not None:
            self.calls = []
        self.waiting = len(self.calls)
        self.is_complete = not self.calls

    # --- as a message ------------------------------------------------------------------------

    def topic(self) -> str:
        """The topic it was read from."""
        return self.message.topic()

    def partition(self) -> int:
        """The partition it was read from."""
        return self.message.partition()

    def offset(self) -> int:
        """Its offset."""
        return self.message.offset()

    def key(self) -> bytes | None:
        """The encoded key."""
        return self.message.key()

    def value(self) -> bytes | None:
        """The encoded value."""
        return self.message.value()

    def timestamp(self) -> tuple[int, int]:
        """The timestamp's type, and the timestamp in milliseconds."""
        return self.message.timestamp()

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """The headers in order, or None if there are none."""
        return self.message.headers()


def message_of(message: Message) -> Message:
    """Return the record itself."""
    return message.message if isinstance(message, Flight) else message


_SAMPLED = 32
"""The most elements of a container that are measured."""


def size_of(value: object, depth: int = 4) -> int:
    """Return the estimated size of a result in bytes."""
    if isinstance(value, str | bytes | bytearray):
        return 50 + len(value)
    if depth and isinstance(value, dict):
        return _size_of_all([*cast("dict[Any, Any]", value).items()], depth)
    if depth and isinstance(value, list | tuple | set | frozenset):
        return _size_of_all([*cast("Iterable[object]", value)], depth)
    if depth and hasattr(value, "__dict__"):
        return 50 + size_of(vars(value), depth - 1)
    return 32


def _size_of_all(values: list[Any], depth: int) -> int:
    if not values:
        return 64
    step = max(1, len(values) // _SAMPLED)
    sampled = values[::step]
    return 64 + sum(size_of(one, depth - 1) for one in sampled) * len(values) // len(sampled)
