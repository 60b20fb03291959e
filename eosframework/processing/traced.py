"""A task whose transactions are traced; what is not traced has no part in this."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from eosframework.processing.ports import Message, Output
from eosframework.processing.task import Task
from eosframework.records import TopicPartition


class TransactionTrace(Protocol):
    """Shows the transactions of one task, one after the other."""

    def begin(self) -> None:
        """A transaction began."""
        ...

    def took(self, messages: Sequence[Message]) -> None:
        """These records went into it."""
        ...

    def current(self) -> AbstractContextManager[object]:
        """Let what runs inside be seen as a part of it."""
        ...

    def marked(self, outputs: Sequence[Output]) -> Sequence[Output]:
        """Return outputs that say where they come from."""
        ...

    def end(self, outcome: str, records: int | None = None) -> None:
        """It ended, if there was one; `records` is None where it came to nothing."""
        ...


class TracedTask(Task):
    """A task that says of each transaction when it began, what it took and how it ended.

    Args:
        given: as `Task`.
        trace: is told.
        named: as `Task`.
    """

    def __init__(self, *given: Any, trace: TransactionTrace, **named: Any) -> None:
        self._trace = trace
        super().__init__(*given, **named)

    def committed(self) -> None:
        """Take the open transaction as committed; see `Task`."""
        records = self.records_in_transaction
        super().committed()
        self._trace.end("committed", records)

    def drop(self) -> None:
        """Forget what the open transaction did; see `Task`."""
        super().drop()
        self._trace.end("dropped")

    def _begin(self, first: tuple[TopicPartition, int] | None) -> None:
        if not self.in_transaction:
            self._trace.begin()
        super()._begin(first)

    def _run_records(
        self, partition: TopicPartition, messages: Sequence[Message]
    ) -> Sequence[Message]:
        with self._trace.current():
            left = super()._run_records(partition, messages)
        self._trace.took(messages[: len(messages) - len(left)])
        return left

    def _produce_given(self, outputs: Sequence[Output]) -> None:
        super()._produce_given(self._trace.marked(outputs))
