"""Counters of an open transaction, reset without a commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eosframework.processing.codegen.compiler import CompiledPart
from eosframework.processing.ports import Message
from eosframework.processing.task import Task


class Counted(NamedTuple):
    """Numbers of late, skipped and dead-lettered records."""

    late: int
    skipped: int
    dead_letters: int


class Counters:
    """The counters of one task.

    Args:
        task: counts all records that it runs, including repeated ones.
        compiled: its sub-topology.
    """

    def __init__(self, task: Task, compiled: CompiledPart) -> None:
        self.first_time: int | None = None
        self._task = task
        self._times_are_known = all(
            source.source.timestamp is None for source in compiled.sources.values()
        )
        self._mark = self._all()

    def saw(self, messages: Sequence[Message]) -> None:
        """Update the earliest event time, if it is the record's timestamp."""
        if self._times_are_known:
            first = min(message.timestamp()[1] for message in messages)
            if self.first_time is None or first < self.first_time:
                self.first_time = first

    def open(self) -> Counted:
        """Return the counts since the last mark."""
        return Counted(*(now - then for now, then in zip(self._all(), self._mark, strict=True)))

    def mark(self) -> None:
        """Restart the counts after a commit or an abort."""
        self._mark = self._all()

    def _all(self) -> Counted:
        failures = self._task.failures
        return Counted(self._task.late_records, failures.skipped, failures.dead_letters)
