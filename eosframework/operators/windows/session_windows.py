"""Session windows: records of a key that follow each other within a gap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from eosframework.operators.windows.closing import Result
from eosframework.operators.windows.key_windows import SpanOperator
from eosframework.operators.windows.window_entries import Span
from eosframework.records import WindowResult


class SessionWindows(SpanOperator):
    """Folds records into sessions (`SessionWindows` of Kafka Streams).

    A record joins the sessions within the gap of its time, which become one. A session whose bounds
    change is a new window: the former one is emitted with the value None. A session closes when
    stream time exceeds its end by more than gap and grace, and no record joins a closed one; Kafka
    Streams may still find it in its store.
    """

    def update(self, key: bytes, value: Any, timestamp: int, now: int) -> Sequence[Result] | None:
        """Fold a record into its session; return the session, and None for those replaced."""
        gap = self.window.size_ms
        now = max(now, self._floor)
        spans, noted = self._spans(key)
        # Sessions do not overlap, so their ends are sorted, too; closed ones end before open ones.
        stop = bisect_right(spans, timestamp + gap, key=_start_of)
        first = stop
        while first > 0 and spans[first - 1].end >= timestamp - gap:
            if self.closes_at(spans[first - 1]) <= now:
                break
            first -= 1
        near = spans[first:stop]
        if not near and self._closes_after(timestamp) <= now:
            return None
        start = min(timestamp, *(s.start for s in near)) if near else timestamp
        end = max(timestamp, *(s.end for s in near)) if near else timestamp
        aggregate = self._folded(near, value)
        made: tuple[Span, ...] = ()
        if aggregate is not None:
            made = (Span(start, end, end, False, self._form.encode_value(aggregate)),)
        self._put_spans(key, (*spans[:first], *made, *spans[stop:]), noted)
        if not self._shows_updates:
            return ()
        replaced = [s for s in near if (s.start, s.end) != (start, end)]
        return [
            *((WindowResult(s.start, s.end, None), s.end) for s in replaced),
            (WindowResult(start, end, aggregate), end),
        ]

    def closes_at(self, span: Span) -> int:
        """Return the stream time from which no record joins a session."""
        return self._closes_after(span.end)

    def ends_at(self, span: Span) -> int:
        """Return the same time: a closed session is not needed."""
        return self._closes_after(span.end)

    def _first_due(self, spans: Sequence[Span]) -> int:
        """Return the due time of the first session: sessions end in the order of their starts."""
        return self._closes_after(spans[0].end)

    def _closes_after(self, end: int) -> int:
        return end + self.window.size_ms + self.window.grace_ms + 1

    def _folded(self, near: Sequence[Span], value: Any) -> Any:
        fold = self._fold
        if not near:
            return fold.first(value)
        aggregate = self._value(near[0])
        for span in near[1:]:
            aggregate = fold.merge(aggregate, self._value(span))
        return fold.then(aggregate, value)


def _start_of(span: Span) -> int:
    return span.start
