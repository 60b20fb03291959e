"""One attempt at an effect, on the event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from eosframework.engine.calls.flights import Call, CallNode, Flight
from eosframework.errors import EffectInDoubt
from eosframework.records import Effect

Run = Callable[[Callable[[], Any]], Any]
"""Runs a function that blocks; returns its result, or an awaitable of it."""


class EffectCall(Call):
    """The call of an attempt; it belongs to a task, and outlasts the rewinding of its record.

    Args:
        wanted: the call of the record.
        flight: for the owner alone.
        effect: its identity.
        looks_up: the service is asked first.
        run: runs functions without `async`.
    """

    __slots__ = ("_effect", "_looks_up", "_run_blocking")

    def __init__(
        self, wanted: Call, flight: Flight, effect: Effect, *, looks_up: bool, run: Run
    ) -> None:
        super().__init__(
            flight,
            wanted.node,
            wanted.key,
            wanted.value,
            wanted.time,
            wanted.headers,
            wanted.key_bytes,
        )
        self._effect = effect
        self._looks_up = looks_up
        self._run_blocking = run

    async def run(self, function: Callable[..., Any], resources: Mapping[str, Any]) -> Any:
        """Look the effect up in a doubt, and call the function if it did not take place (J4)."""
        if self._looks_up and (found := await self._looked_up(self.node, resources)) is not None:
            return found
        return await self._result(function, resources)

    async def _looked_up(self, node: CallNode, resources: Mapping[str, Any]) -> Any:
        assert node.once is not None
        assert node.once.look_up is not None, "the policy has a function"
        look_up = node.once.look_up
        try:
            return await self._result(look_up.call, resources)
        except Exception as error:
            raise EffectInDoubt(
                f"effect {self._effect.key!r} may have taken place, and {look_up.name} could not "
                f"tell: {type(error).__name__}: {error}. The function was not called"
            ) from error

    async def _result(self, function: Callable[..., Any], resources: Mapping[str, Any]) -> Any:
        if is_coroutine(function):
            return await function(self.value, self._effect, **resources)
        found = self._run_blocking(lambda: function(self.value, self._effect, **resources))
        return await found if inspect.isawaitable(found) else found


def is_coroutine(function: Callable[..., Any]) -> bool:
    """Return whether a call of a function gives a coroutine."""
    called = getattr(function.__class__, "__call__", None)  # noqa: B004 - it is callable
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


async def in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a thread of its own, which does not keep the process alive.

    A thread cannot be cancelled: its effect may still come. So a cancellation is swallowed, and the
    call is abandoned like a coroutine that does so.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def call() -> None:
        try:
            found, error = function(), None
        except BaseException as raised:
            found, error = None, raised
        with suppress(RuntimeError):  # The loop has ended.
            loop.call_soon_threadsafe(_settle, ended, found, error)

    threading.Thread(target=call, name="eosframework-effect", daemon=True).start()
    while not ended.done():
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError:
            continue
    return ended.result()


def _settle(ended: asyncio.Future[Any], found: Any, error: BaseException | None) -> None:
    if error is None:
        ended.set_result(found)
    elif isinstance(error, StopIteration | SystemExit | KeyboardInterrupt):
        ended.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
    else:
        ended.set_exception(error)


def at_once(function: Callable[[], Any]) -> Any:
    """Run a function here, which lets nothing else run; for drivers."""
    return function()
