"""Windows with bounds of their own for each key, stored together in the entry of the key."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from eosframework.errors import KeyTooHot
from eosframework.operators.folds import Fold
from eosframework.operators.limits import Limits
from eosframework.operators.store_transaction import StoreTransaction
from eosframework.operators.windows.agenda import DATA, Agenda
from eosframework.operators.windows.closing import Alarm, Closed, WindowOperator
from eosframework.operators.windows.window_entries import MARK_KEY, Span, SpansFormat
from eosframework.records import WindowResult
from eosframework.topology.spec.window_spec import Window


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
