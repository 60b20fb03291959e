"""Resources that calls share, such as the client of a service, opened on the event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, cast

from eosframework.errors import RunError
from eosframework.topology.graph.graph import Function

Close = Callable[[], Any]


class Resources:
    """The resources of a worker, each opened once, when the first call needs it."""

    def __init__(self) -> None:
        self._opened: dict[Callable[..., Any], asyncio.Future[Any]] = {}
        self._closes: list[tuple[str, Close]] = []

    async def open_all(self, wanted: Mapping[str, Function], step: str) -> dict[str, Any]:
        """Return resources by the names of arguments.

        Args:
            wanted: the functions that open them.
            step: the step that needs them, for messages.

        Raises:
            RunError: one cannot be opened.
        """
        return {name: await self._open(function, step) for name, function in wanted.items()}

    async def _open(self, function: Function, step: str) -> Any:
        found = self._opened.get(function.call)
        if found is None:
            found = self._opened[function.call] = asyncio.ensure_future(self._new(function))
        try:
            return await asyncio.shield(found)
        except Exception as error:
            raise RunError(
                f"resource {function.name!r} of step {step!r} cannot be opened: "
                f"{type(error).__name__}: {error}. Nothing was committed after the last "
                f"transaction; make what it needs available, and start the worker again"
            ) from error

    async def _new(self, function: Function) -> Any:
        found = function.call()
        if isinstance(found, AbstractAsyncContextManager):
            manager = cast("AbstractAsyncContextManager[Any]", found)
            self._closes.append((function.name, lambda: manager.__aexit__(None, None, None)))
            return await manager.__aenter__()
        if inspect.isawaitable(found):
            found = await found
        if isinstance(found, AbstractAsyncContextManager):
            entered = cast("AbstractAsyncContextManager[Any]", found)
            self._closes.append((function.name, lambda: entered.__aexit__(None, None, None)))
            return await entered.__aenter__()
        if isinstance(found, AbstractContextManager):
            plain = cast("AbstractContextManager[Any]", found)
            self._closes.append((function.name, lambda: plain.__exit__(None, None, None)))
            return plain.__enter__()
        close = getattr(found, "aclose", None) or getattr(found, "close", None)
        if callable(close):
            self._closes.append((function.name, close))
        return found

    async def close(self) -> list[tuple[str, BaseException]]:
        """Close all, the last one first; return those that failed."""
        failed: list[tuple[str, BaseException]] = []
        closes, self._closes = self._closes, []
        for name, close in reversed(closes):
            try:
                done = close()
                if inspect.isawaitable(done):
                    await done
            except Exception as error:
                failed.append((name, error))
        return failed
