"""Late records: counted, and sent to a topic if the step declares one."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from eosframework.processing.failures.failures import Site, dead_letter
from eosframework.processing.ports import Message, Output

NOTICE_SECONDS = 60.0
"""Minimum interval between two warnings about late records."""


class LateRecords:
    """Counts the late records of a task."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, site: Site, message: Message, stream_time: int, out: list[Output]) -> None:
        """Count a record, and send it unchanged to the topic of late records, if there is one.

        Args:
            site: the step for which it is late, with that topic.
            message: the record.
            stream_time: stream time of the task, in milliseconds.
            out: takes the record.
        """
        self.count += 1
        if site.on_error.topic is not None:
            behind_ms = stream_time - message.timestamp()[1]
            error = LateRecord(f"stream time is {stream_time}, {behind_ms} ms ahead")
            out.append(dead_letter(site, message, error))


class LateRecord(Exception):
    """The reason in the headers of a late record."""


class LateNotice:
    """Warns of new late records at a bounded rate."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._warned = 0
        self._not_before = 0.0
        self._events = structlog.get_logger("eosframework.worker")

    def turn(self, count: int) -> None:
        """Warn if the count has grown since the last warning and that is old enough."""
        if count > self._warned and self._clock() >= self._not_before:
            self._events.warning("late_records", new=count - self._warned, all=count)
            self._warned = count
            self._not_before = self._clock() + NOTICE_SECONDS
