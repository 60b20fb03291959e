"""The declaration of steps that call a coroutine for each record."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from eosframework.topology.spec.keyed_spec import Declared, Duration, short

_PER_SECOND = {"s": 1.0, "m": 60.0, "h": 3600.0}
_RATE_PATTERN = r"^\s*(\d+(\.\d+)?)\s*/\s*([smh])\s*$"

RateLike = float | int | str
"""Calls per second, or a text such as `100/s`, `500/m` or `1000/h`."""


def rate_of(wanted: Any) -> float:
    """Return a rate in calls per second.

    Raises:
        ValueError: it is not a rate, or not above zero.
    """
    found = wanted
    if isinstance(wanted, str) and (match := re.match(_RATE_PATTERN, wanted)):
        found = float(match[1]) / _PER_SECOND[match[3]]
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < math.inf:
        raise ValueError(
            f"{wanted!r} is no rate; expected a number of calls above zero, per second as in 50, "
            f"or with its unit as in 100/s, 500/m or 1000/h. Leave it out for no limit"
        )
    return float(found)


def _above_zero(timeout: timedelta) -> timedelta:
    if not timeout:
        raise ValueError("timeout: 0 lets no call end; expected more, as in 10s")
    return timeout


def _waits(given: Any) -> Any:
    return (given,) if isinstance(given, str | timedelta) else given


Rate = Annotated[
    float,
    BeforeValidator(rate_of),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": _RATE_PATTERN, "examples": ["100/s", "500/m"]},
            ]
        }
    ),
]

DEFAULT_CONCURRENCY = 64
DEFAULT_BATCH = 32
DEFAULT_TIMEOUT = timedelta(seconds=30)


class CallSpec(Declared):
    """Call a coroutine for each record, many at a time."""

    call: str
    """module:function declared with `async def`. It takes the value, and the resources by name."""

    concurrency: int = Field(default=DEFAULT_CONCURRENCY, ge=1)
    """The most calls of the step in flight in a worker."""

    order: Literal["input", "key"] = "input"
    """input: calls begin in input order, whatever their keys. key: calls of one key are serial, and
    those of other keys overtake them. Results take the order of the input in both cases."""

    timeout: Annotated[Duration, AfterValidator(_above_zero)] = DEFAULT_TIMEOUT
    """The longest time of a call. It is cancelled then, and has failed with a TimeoutError."""

    rate: Rate | None = None
    """The most calls in a time, in a worker: a number for each second, or 100/s, 500/m, 1000/h.
    Default: no limit."""

    retry: Annotated[
        tuple[Duration, ...],
        BeforeValidator(_waits),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}},
                ],
                "examples": [["200ms", "1s"]],
            }
        ),
    ] = ()
    """Pauses before further attempts at a call that failed. After the last attempt `on_error`
    applies. Default: one attempt."""

    resources: dict[str, str] = Field(default_factory=dict)
    """By the name of an argument, module:function that opens what the calls share, such as the
    client of a service: once for each worker, on the event loop. It is closed with the worker."""

    @property
    def functions(self) -> dict[tuple[str, ...], str]:
        """References to all functions of the step, by their path within it."""
        opened = {("resources", name): opener for name, opener in self.resources.items()}
        return {("call",): self.call, **opened}

    @property
    def limits(self) -> CallLimits:
        """The options in the units of the engine."""
        return CallLimits(
            self.concurrency,
            self.order == "key",
            self.timeout.total_seconds(),
            self.rate,
            tuple(wait.total_seconds() for wait in self.retry),
        )

    @property
    def options(self) -> dict[str, Any]:
        """The options as texts and numbers, for `describe`."""
        found: dict[str, Any] = {
            "concurrency": self.concurrency,
            "order": self.order,
            "timeout": short(self.timeout),
        }
        if self.rate is not None:
            found["rate"] = self.rate
        if self.retry:
            found["retry"] = [short(wait) for wait in self.retry]
        return found


class BatchCallSpec(CallSpec):
    """Call a coroutine with the values of several records, many batches at a time."""

    batch: int = Field(default=DEFAULT_BATCH, ge=1)
    """The most values of a call. `concurrency` counts records, so up to concurrency ÷ batch calls
    are in flight."""

    @property
    def limits(self) -> CallLimits:
        """The options in the units of the engine."""
        return replace(super().limits, batch=self.batch)

    @property
    def options(self) -> dict[str, Any]:
        """The options as texts and numbers, for `describe`."""
        return {"batch": self.batch, **super().options}


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits on the calls of a step.

    Args:
        concurrency: the most calls in flight.
        by_key: calls of one key are serial.
        timeout_seconds: of each attempt.
        rate: the most calls per second; None: there is no limit.
        retry_seconds: pauses before further attempts.
        batch: the most values of a call; None: each call takes one.
    """

    concurrency: int
    by_key: bool
    timeout_seconds: float
    rate: float | None = None
    retry_seconds: tuple[float, ...] = ()
    batch: int | None = None
