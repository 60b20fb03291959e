"""A task whose transactions are traced."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from eosframework.engine.task.task import Task
from eosframework.records import TopicPartition
from eosframework.transactions.ports import Message, Output


class TransactionTrace(Protocol):
    """Traces the transactions of one task, one after the other."""

    def begin(self) -> None:
        """Begin the trace of a transaction."""
        ...

    def took(self, messages: Sequence[Message]) -> None:
        """Add records to the transaction."""
        ...

    def current(self) -> AbstractContextManager[object]:
        """Make the transaction the parent of everything traced inside."""
        ...

    def marked(self, outputs: Sequence[Output]) -> Sequence[Output]:
        """Return outputs with headers that link to the trace."""
        ...

    def end(self, outcome: str, records: int | None = None) -> None:
        """End the trace, if one has begun; `records` is None if nothing was committed."""
        ...


class TracedTask(Task):
    """A task that traces the begin, the records and the outcome of each transaction.

    Args:
        given: as `Task`.
        trace: receives the events.
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
