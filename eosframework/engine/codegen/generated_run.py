"""The types of generated functions, and of the state that they get."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any, Protocol

from eosframework.engine.failures.failure_handler import LeftOut, Site
from eosframework.engine.operators.expiry import StreamTime
from eosframework.engine.operators.store_transaction import Journal
from eosframework.transactions.ports import Message, Output


class RunState(Protocol):
    """The state of one task that keyed operators use."""

    @property
    def operators(self) -> Sequence[Any]:
        """The operators of the keyed nodes, in the order of their slots."""
        ...

    @property
    def journal(self) -> Journal:
        """The changes of the current record."""
        ...

    @property
    def time(self) -> StreamTime:
        """Stream time, for stores whose entries expire."""
        ...

    @property
    def late(self) -> Callable[[Site, Message, int, list[Output]], None]:
        """Handles a record that is late for a step."""
        ...

    @property
    def keyless(self) -> LeftOut:
        """Counts the records that steps skip because they have no key."""
        ...

    @property
    def windows(self) -> Any:
        """Closes the windows of the task."""
        ...

    @property
    def times(self) -> Any:
        """Stream time of a task whose sources have watermarks."""
        ...


Failed = Callable[[Site, Message, BaseException, list[Output]], None]
"""Handles a record that failed: may append outputs in its place, or raise."""


class Run(Protocol):
    """The compiled function of a source or an emission."""

    __code__: CodeType

    def __call__(
        self,
        messages: Iterable[Message],
        out: list[Output],
        stream_time: int,
        failed: Failed,
        state: RunState | None = None,
        /,
    ) -> int:
        """Run messages of one partition, append their outputs, return the stream time after them.

        Args:
            messages: in offset order; a sequence, except for an emission.
            out: takes the outputs.
            stream_time: stream time before them, in milliseconds.
            failed: handles records that fail.
            state: the state of the task; None: the sub-topology has no keyed nodes.
        """
        ...
