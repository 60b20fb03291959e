"""Records that come too late for what keeps something until a time: counted, and sent on."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from eosframework.processing.codegen.source_lines import Site
from eosframework.processing.failures.failures import dead_letter
from eosframework.processing.ports import Message, Output

NOTICE_SECONDS = 60.0
"""Between two warnings of late records."""


class LateRecords:
    """Counts the late records of a task."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, site: Site, message: Message, stream_time: int, out: list[Output]) -> None:
        """Count a record, and send it as it came to the topic of late ones, if there is one.

        Args:
            site: the step that it was too late for, with that topic.
            message: the record.
            stream_time: of the task, in milliseconds.
            out: takes the record.
        """
        self.count += 1
        if site.on_error.topic is not None:
            behind_ms = stream_time - message.timestamp()[1]
            error = LateRecord(f"stream time is {stream_time}, {behind_ms} ms ahead")
            out.append(dead_letter(site, message, error))


class LateRecord(Exception):
    """What the headers of a late record say of it."""


class LateNotice:
    """Warns of late records when there are new ones, once in a while."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told = 0
        self._not_before = 0.0
        self._events = structlog.get_logger("eosframework.worker")

    def turn(self, count: int) -> None:
        """Warn if there are more than were told of, and the last warning is old enough."""
        if count > self._told and self._clock() >= self._not_before:
            self._events.warning("late_records", new=count - self._told, all=count)
            self._told = count
            self._not_before = self._clock() + NOTICE_SECONDS
