"""Windows with bounds of their own for each key, stored together in the entry of the key."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from eosframework.engine.operators.folds import Fold
from eosframework.engine.operators.store_transaction import Limits, StoreTransaction
from eosframework.engine.operators.windows import (
    DATA,
    MARK_KEY,
    Agenda,
    Alarm,
    Closed,
    Result,
    Span,
    SpansFormat,
    WindowOperator,
)
from eosframework.errors import KeyTooHot
from eosframework.records import WindowResult
from eosframework.topology.spec.keyed_spec import Window


class SpanOperator(WindowOperator):
    """Keeps the windows of each key sorted by start, and closes and removes them.

    Windows close and end in the order of their starts: sessions do not overlap, and sliding windows
    have one length. The timestamp of a key's entry is the time under which the agenda has the key.

    Args:
        fold: the aggregate of a window.
        form: format of the store's entries.
        limits: limits on the windows of a key.
        shows_updates: whether `update` returns the windows that it changed; otherwise they are
            emitted when they close.
    """

    def __init__(
        self,
        store: StoreTransaction,
        window: Window,
        alarm: Alarm,
        fold: Fold,
        form: SpansFormat,
        limits: Limits,
        *,
        shows_updates: bool,
    ) -> None:
        super().__init__(store, window, alarm)
        self._fold = fold
        self._form = form
        self._limits = limits
        self._shows_updates = shows_updates
        self._agenda = Agenda(store)

    @abstractmethod
    def closes_at(self, span: Span) -> int:
        """Return the stream time from which a window accepts no record."""

    @abstractmethod
    def ends_at(self, span: Span) -> int:
        """Return the stream time from which a window is not needed."""

    def load(self) -> None:
        """Load the due times of keys."""
        self._agenda.load()

    def due(self) -> int:
        """Return the time at which the first key must be checked."""
        return self._agenda.due()

    def closing(self, now: int) -> Generator[Closed | None]:
        """Yield the windows that `now` closes, in the order of their keys' due times."""
        while (first := self._agenda.first()) is not None and first[0] <= now:
            due, key = first
            before, noted = self._spans(key)
            spans = before
            if noted == due and not self._shows_updates:
                spans = yield from self._closed(key, before, due, now)
            self._agenda.remove_first()
            if noted == due:
                self._put_spans(key, spans[bisect_right(spans, now, key=self.ends_at) :], None)
            if spans is before:
                yield None

    def _closed(
        self, key: bytes, spans: Sequence[Span], due: int, now: int
    ) -> Generator[Closed, None, Sequence[Span]]:
        """Yield the windows of a key that `now` closes, and return all its windows, updated.

        A generator that is closed early records which windows were emitted before.
        """
        stop = bisect_right(spans, now, key=self.closes_at)
        ripe = [number for number in range(stop) if not spans[number].closed]
        if not ripe:
            return spans
        left, is_through = [*spans], False
        try:
            for number in ripe:
                yield key, self._result(spans[number]), spans[number].timestamp
                left[number] = spans[number]._replace(closed=True)
            is_through = True
        finally:
            if not is_through:
                self._store.put(DATA + key, (tuple(left), due))
        return left

    def changed(self) -> Iterator[Closed]:
        """Yield the windows that the open transaction changed; None for those that it removed."""
        for store_key, entry in self._store.changed_entries():
            if store_key[:1] != DATA:
                continue
            before = self._store.before(store_key)
            old: dict[tuple[int, int], Span] = (
                {} if before is None else {(s.start, s.end): s for s in before[0]}
            )
            spans: Sequence[Span] = () if entry is None else entry[0]
            kept = {(span.start, span.end) for span in spans}
            for bounds, span in old.items():
                if bounds not in kept:
                    yield store_key[1:], WindowResult(*bounds, None), span.timestamp
            for span in spans:
                if span != old.get((span.start, span.end)):
                    yield store_key[1:], self._result(span), span.timestamp

    def last_close(self) -> int:
        """Return the stream time that closes every window of every key."""
        found = self._store.scan(DATA, MARK_KEY)
        open_ = (self.closes_at(s) for _, (spans, _) in found for s in spans if not s.closed)
        return max(open_, default=0)

    def _spans(self, key: bytes) -> tuple[Sequence[Span], int | None]:
        """Return the windows of a key, and the time under which the agenda has it."""
        entry = self._store.get(DATA + key)
        return ((), None) if entry is None else entry

    def _put_spans(self, key: bytes, spans: Sequence[Span], noted: int | None) -> None:
        """Store the windows of a key, and note the key for the first time at which one is due."""
        if not spans:
            self._store.delete(DATA + key)
            return
        if len(spans) > self._limits.records:
            raise KeyTooHot(
                f"its key would have more than {self._limits.records} windows at once; raise "
                f"worker.hot_key_limit, or make the windows or their grace shorter"
            )
        due = self._first_due(spans)
        if noted is None or due < noted:
            self._agenda.add(due, key)
            self.alarm.set(due)
            noted = due
        self._store.put(DATA + key, (tuple(spans), noted))

    def _first_due(self, spans: Sequence[Span]) -> int:
        """Return the first stream time at which one of these windows is due."""
        return min(map(self._next, spans))

    def _next(self, span: Span) -> int:
        is_over = span.closed or self._shows_updates
        return self.ends_at(span) if is_over else self.closes_at(span)

    def _result(self, span: Span) -> WindowResult:
        return WindowResult(span.start, span.end, self._value(span))

    def _value(self, span: Span) -> Any:
        return self._form.value_of(span)


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
