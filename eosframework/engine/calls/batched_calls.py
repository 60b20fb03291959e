"""One call of a coroutine for the values of several records.

BC1. calls that begin in one turn of the loop are one batch, of at most the size that is declared
BC2. each record has its own call, with its slot, timeout and attempts; an error of a batch is the
    error of all its calls
BC3. a batch is cancelled once all of its calls are, and the last one of them waits for its end
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, cast


class _Batch:
    """The values of a batch, and the futures of their results."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.task: asyncio.Task[None] | None = None

    @property
    def is_unwanted(self) -> bool:
        """True if no call waits for a result."""
        return all(future.done() for future in self.futures)


class BatchedFunction:
    """Stands for a coroutine function of single values; see `StepCalls`.

    Args:
        function: takes a list of values, and the resources by name; returns a list of as many
            results.
        batch: the most values of a batch.
        name: of the function, for messages.
    """

    def __init__(self, function: Callable[..., Any], batch: int, name: str) -> None:
        self._function = function
        self._batch = batch
        self._name = name
        self._next = _Batch()

    async def __call__(self, value: Any, **resources: Any) -> Any:
        """Return the result for a value, from the call for its batch."""
        loop = asyncio.get_running_loop()
        batch, future = self._next, loop.create_future()
        batch.values.append(value)
        batch.futures.append(future)
        if len(batch.values) == self._batch:
            self._begin(batch, resources)
        elif len(batch.values) == 1:  # The calls of this turn come before it (BC1).
            loop.call_soon(self._begin, batch, resources)
        try:
            return await future
        except asyncio.CancelledError:
            if batch.is_unwanted and batch.task is not None and not batch.task.done():
                batch.task.cancel()
                await asyncio.wait((batch.task,))
            raise

    def _begin(self, batch: _Batch, resources: dict[str, Any]) -> None:
        if batch.task is not None:
            return
        if batch is self._next:
            self._next = _Batch()
        if not batch.is_unwanted:
            name = f"batch of {self._name}"
            work = self._run(batch, resources)
            batch.task = asyncio.get_running_loop().create_task(work, name=name)

    async def _run(self, batch: _Batch, resources: dict[str, Any]) -> None:
        try:
            results = self._checked(batch, await self._called(batch, resources))
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            # On the loop the last two would end its thread.
            is_exception = isinstance(error, Exception)
            found = error if is_exception else RuntimeError(f"{type(error).__name__}: {error}")
            for future in batch.futures:
                if not future.done():
                    future.set_exception(found)
            return
        for future, result in zip(batch.futures, results, strict=True):
            if not future.done():
                future.set_result(result)

    async def _called(self, batch: _Batch, resources: dict[str, Any]) -> Any:
        found = self._function(batch.values, **resources)
        if not inspect.isawaitable(found):
            raise TypeError(
                f"{self._name} returned {type(found).__name__}, which is no coroutine; expected a "
                f"function declared with `async def`"
            )
        return await found

    def _checked(self, batch: _Batch, results: Any) -> list[Any]:
        wanted = len(batch.futures)
        if not isinstance(results, list | tuple):
            raise TypeError(
                f"{self._name} returned {type(results).__name__} for {wanted} values; expected a "
                f"list of {wanted} results"
            )
        found = [*cast("list[Any]", results)]
        if len(found) != wanted:
            raise ValueError(
                f"{self._name} returned {len(found)} results for {wanted} values; expected one for "
                f"each value, in their order"
            )
        return found
