"""Sliding windows: every set of records of a key that are at most a given time apart."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from eosframework.operators.windows.closing import Result
from eosframework.operators.windows.key_windows import SpanOperator
from eosframework.operators.windows.window_entries import Span


@dataclass(slots=True)
class _Around:
    """The windows of a key around a time, before a record of that time.

    Args:
        left: the last window that ended before the time.
        right: the last window that contains the time and ends after it.
        previous: time of the last record before.
        starts: starts of the windows that contain the time, and of the next one.
    """

    left: Span | None = None
    right: Span | None = None
    previous: int | None = None
    starts: set[int] = field(default_factory=set[int])


class SlidingWindows(SpanOperator):
    """Folds records into the windows that end at a record, and those that begin after one.

    The windows are those of Kafka Streams (KIP-450, `KStreamSlidingWindowAggregate`): [t - size, t]
    for each record at t, and [t + 1, t + 1 + size] if it contains a record. A new window takes the
    aggregate of the window before it, so no value is ever subtracted. Two things differ: windows
    may begin before 1970, and a closed window, which is not emitted again, still accepts records
    for the windows derived from it (in Kafka Streams these records are missing from the next
    window).
    """

    def update(self, key: bytes, value: Any, timestamp: int, now: int) -> Sequence[Result] | None:
        """Fold a record into the windows that contain its time; return the open ones."""
        size = self.window.size_ms
        now = max(now, self._floor)
        if self._closes_after(timestamp + 1 + size) <= now + 1:
            return None
        spans, noted = self._spans(key)
        first = bisect_left(spans, timestamp - size, key=_start_of)
        stop = bisect_right(spans, timestamp, key=_start_of)
        kept = spans[:first]
        around, touched = self._take(spans, first, stop, value, timestamp)
        previous = around.previous
        if previous is not None and previous + 1 + size >= timestamp:
            touched += self._new(around, previous + 1, timestamp, None, value)
        left = around.left if previous is not None and previous >= timestamp - size else None
        touched += self._new(around, timestamp - size, timestamp, left, value)
        right = around.right
        if right is not None and right.timestamp > timestamp:
            touched += self._behind(around, timestamp + 1, right)
        touched.sort()
        if self.closes_at(touched[0]) <= now:
            touched = [s._replace(closed=True) if self.closes_at(s) <= now else s for s in touched]
        if kept and self.ends_at(kept[0]) <= now:
            kept = [
                s for s in kept if self.ends_at(s) > now or not (s.closed or self._shows_updates)
            ]
        self._put_spans(key, (*kept, *touched, *spans[stop:]), noted)
        if not self._shows_updates:
            return ()
        return [(self._result(s), s.timestamp) for s in touched if not s.closed]

    def closes_at(self, span: Span) -> int:
        """Return the stream time from which a window accepts no record for itself."""
        return self._closes_after(span.end)

    def ends_at(self, span: Span) -> int:
        """Return the stream time from which no open window can be derived from a window.

        An open window begins directly after its last record, or contains one of its records.
        """
        return self._closes_after(span.end) + self.window.size_ms + 1

    def _first_due(self, spans: Sequence[Span]) -> int:
        """Return the due time of the first window: windows end in the order of their starts."""
        return self.ends_at(spans[0]) if self._shows_updates else super()._first_due(spans)

    def _closes_after(self, end: int) -> int:
        return end + self.window.grace_ms + 1

    def _take(
        self, spans: Sequence[Span], first: int, stop: int, value: Any, timestamp: int
    ) -> tuple[_Around, list[Span]]:
        """Return the windows around a record, and the windows that now contain it.

        Args:
            spans: the windows of the key.
            first: index of the first window that contains the record's time.
            stop: index after the last one.
            value: the value of the record.
            timestamp: the timestamp of the record.
        """
        around = _Around()
        if first > 0:
            around.left = spans[first - 1]
            around.previous = around.left.timestamp
        touched: list[Span] = []
        for span in spans[first:stop]:
            start, end, latest, _, _ = span
            around.starts.add(start)
            if end > timestamp:
                around.right = span
            elif latest < timestamp:
                around.previous = latest
            touched.append(self._with(span, value, timestamp))
        if stop < len(spans):
            around.starts.add(spans[stop].start)
        return around, touched

    def _with(self, span: Span, value: Any, timestamp: int) -> Span:
        start, end, latest, closed, _ = span
        aggregate = self._fold.then(self._value(span), value)
        raw = self._form.encode_value(aggregate)
        return Span(start, end, max(latest, timestamp), closed, raw)

    def _new(
        self, around: _Around, start: int, timestamp: int, before: Span | None, value: Any
    ) -> list[Span]:
        """Return the window at `start` from `before` and the record; none if it exists."""
        if start in around.starts:
            return []
        around.starts.add(start)
        end = start + self.window.size_ms
        if before is not None:
            moved = before._replace(start=start, end=end, closed=False)
            return [self._with(moved, value, timestamp)]
        raw = self._form.encode_value(self._fold.first(value))
        return [Span(start, end, timestamp, False, raw)]

    def _behind(self, around: _Around, start: int, right: Span) -> list[Span]:
        if start in around.starts:
            return []
        end = start + self.window.size_ms
        return [right._replace(start=start, end=end, closed=False)]


def _start_of(span: Span) -> int:
    return span.start
