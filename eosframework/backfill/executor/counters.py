"""What an open transaction counts; one that is not committed counts nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eosframework.processing.codegen.compiler import CompiledPart
from eosframework.processing.ports import Message
from eosframework.processing.task import Task


class Counted(NamedTuple):
    """Records that came to nothing, or elsewhere."""

    late: int
    skipped: int
    dead_letters: int


class Tally:
    """Counts for one task.

    Args:
        task: counts whatever it runs, also what it runs again.
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
        """Look at the event times of records, where looking is all it takes."""
        if self._times_are_known:
            first = min(message.timestamp()[1] for message in messages)
            if self.first_time is None or first < self.first_time:
                self.first_time = first

    def open(self) -> Counted:
        """Return what was counted since the last mark."""
        return Counted(*(now - then for now, then in zip(self._all(), self._mark, strict=True)))

    def mark(self) -> None:
        """Begin anew: what was counted is committed, or nothing of it counts."""
        self._mark = self._all()

    def _all(self) -> Counted:
        failures = self._task.failures
        return Counted(self._task.late_records, failures.skipped, failures.dead_letters)
