"""A reference of session windows, for what a late record does to a session that has closed."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

from tests.comparison.arrivals import Arrival
from tests.comparison.flights import MINUTE_MS, SESSION_GAP_MS, SESSION_GRACE_MS

GAP_MS, GRACE_MS = SESSION_GAP_MS, SESSION_GRACE_MS


class Session(NamedTuple):
    """A session of a key with its number of records; None: it is no longer one."""

    key: str
    start: int
    end: int
    count: int | None


def is_kept(time: int, observed: int, retention_ms: int) -> bool:
    """Return whether a store of Kafka Streams still has an entry of a time.

    It is dropped in segments of half the retention, at least a minute (`AbstractSegments`).

    Args:
        time: of the entry.
        observed: the greatest time of an entry that the store was given.
        retention_ms: of the store.
    """
    segment_ms = max(retention_ms // 2, MINUTE_MS)
    return time // segment_ms >= (observed - retention_ms) // segment_ms


class SessionReference:
    """Counts records in sessions.

    Args:
        retention_ms: a record joins closed sessions that a store with this retention still has, and
            a session that it no longer has when it closes is not sent. None: a record joins open
            sessions only, and each is sent.
    """

    def __init__(self, retention_ms: int | None) -> None:
        self.updates: list[Session] = []
        """Each change: the sessions whose bounds it changed, with None, then the one it made."""
        self.closed: list[Session] = []
        self._retention_ms = retention_ms
        self._sessions: dict[str, list[Session]] = defaultdict(list)
        """In the order of their starts, and so of their ends."""
        self._open: set[Session] = set()
        self._first_end = 0
        """At most the first end of an open session."""

    def count(self, records: Iterable[Arrival]) -> None:
        """Take all records, in the order of their arrival."""
        for record in records:
            self._add(record)
            self._close(record.stream_time)

    def _add(self, record: Arrival) -> None:
        own = Session(record.key, record.at, record.at, 0)
        near = [
            session
            for session in takewhile(
                lambda session: session.end + GAP_MS >= record.at,
                reversed(self._sessions[record.key]),
            )
            if session.start - GAP_MS <= record.at and self._is_found(session, record.stream_time)
        ]
        start, end = min(s.start for s in (own, *near)), max(s.end for s in (own, *near))
        if has_closed(end, record.stream_time):
            return
        made = Session(record.key, start, end, 1 + sum(s.count or 0 for s in near))
        bounds = start, end
        changed = [session for session in sorted(near) if (session.start, session.end) != bounds]
        self.updates += [*(session._replace(count=None) for session in changed), made]
        for session in near:
            self._sessions[record.key].remove(session)
        insort(self._sessions[record.key], made)
        self._open.difference_update(near)
        self._open.add(made)
        self._first_end = min(self._first_end, end)

    def _is_found(self, session: Session, stream_time: int) -> bool:
        """Return whether a record may join a session; stores hide older ones (KAFKA-12960)."""
        if self._retention_ms is None:
            return not has_closed(session.end, stream_time)
        return session.end > stream_time - self._retention_ms

    def _close(self, stream_time: int) -> None:
        if not has_closed(self._first_end, stream_time):
            return
        closing = sorted(s for s in self._open if has_closed(s.end, stream_time))
        self._open.difference_update(closing)
        self._first_end = min((session.end for session in self._open), default=stream_time)
        self.closed += [
            session
            for session in closing
            if self._retention_ms is None or is_kept(session.end, stream_time, self._retention_ms)
        ]


def has_closed(end: int, stream_time: int) -> bool:
    """Return whether a session accepts no more records."""
    return end + GAP_MS + GRACE_MS < stream_time
