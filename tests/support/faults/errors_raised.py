"""What a real broker was made to raise: the record that docs/errors.md is checked against."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from eosframework.kafka.taxonomy import Call, kafka_error
from tests.support.processes.waiting import PATIENCE_SECONDS

RAISED: set[tuple[str, Call]] = set()
"""Every (code, call) that a test declares with `raises`."""

Seen = list[tuple[Any, str]]


def raises(*pairs: tuple[str, str]) -> Callable[[Callable[..., Seen]], Callable[..., None]]:
    """The test returns (error, call) pairs; they must be exactly these codes out of these calls."""
    declared = {(code, Call(call)) for code, call in pairs}

    def decorate(test: Callable[..., Seen]) -> Callable[..., None]:
        RAISED.update(declared)

        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            seen = test(*args, **kwargs)
            found = {(kafka_error(error).name(), Call(call)) for error, call in seen}
            assert found == declared, f"{found - declared} in place of {declared - found}"

        return run

    return decorate


def raises_one_of(*pairs: tuple[str, str]) -> Callable[[Callable[..., Seen]], Callable[..., None]]:
    """The test returns one (error, call) pair; which of these it is, a race in the client decides.

    None of them counts as raised: another test has to raise each by itself.
    """
    declared = {(code, Call(call)) for code, call in pairs}

    def decorate(test: Callable[..., Seen]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            ((error, call),) = test(*args, **kwargs)
            found = (kafka_error(error).name(), Call(call))
            assert found in declared, f"{found} is none of {declared}"

        return run

    return decorate


class Caught:
    """Keeps whatever leaves the block, also what `except` clauses do not match.

    `flush()` of a producer with delivery callbacks raises a KafkaError, which is no exception.
    """

    error: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: TracebackType | None) -> bool:
        self.error = error
        return True


def error_of(call: Callable[..., object], *args: Any) -> Any:
    """Return what `call` raises; None if it does not."""
    with Caught() as caught:
        call(*args)
    return caught.error


def error_from_poll(consumer: Any, deadline_seconds: float = PATIENCE_SECONDS) -> Any:
    """Return the first error that a consumer reports."""
    deadline = time.monotonic() + deadline_seconds
    while time.monotonic() < deadline:
        if (message := consumer.poll(0.1)) is not None and message.error():
            return message.error()
    raise AssertionError(f"the consumer reported no error within {deadline_seconds:g} s")
