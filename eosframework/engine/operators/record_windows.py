"""Windows of a number of records: each key's are in its entry, with the key's number of records.

Records of a key are numbered from 0, in the order of their arrival. After each `step` records, the
last `records` of them are a complete window; the first windows have fewer. A window that begins at
record s has one aggregate, whichever of its records are its last, so an entry has one span for each
start that a further result needs:

    records 5, step 2             s = 0, 1, 3, 5, …: results of [0, 2), [0, 4), [1, 6), [3, 8), …
    records 5, step 5: tumbling   s = 0, 5, 10, …: results of [0, 5), [5, 10), …

The end of each span is the number of the key's records. Where no span is open, the last one is kept
as closed for that number. Records are folded into each open span: no value is ever subtracted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from eosframework.engine.operators.folds import Fold
from eosframework.engine.operators.store_transaction import StoreTransaction
from eosframework.engine.operators.windows import (
    DATA,
    NEVER,
    Alarm,
    Closed,
    Result,
    Span,
    SpansFormat,
    WindowOperator,
)
from eosframework.records import WindowResult
from eosframework.topology.spec.keyed_spec import Window


class RecordWindows(WindowOperator):
    """Folds records into windows of a number of them; time has no part in it.

    Args:
        fold: the aggregate of a window.
        form: format of the store's entries.
    """

    _floor_of_new = NEVER - 1
    """The time of the mark: with a ttl, an entry that is older than it has expired."""

    def __init__(
        self,
        store: StoreTransaction,
        window: Window,
        alarm: Alarm,
        fold: Fold,
        form: SpansFormat,
    ) -> None:
        super().__init__(store, window, alarm)
        assert window.records is not None, "the window is one of records"
        assert window.step is not None, "WindowSpec.window states it"
        self._records, self._step = window.records, window.step
        self._fold = fold
        self._form = form

    def update(self, key: bytes, value: Any, timestamp: int, now: int) -> Sequence[Result]:
        """Fold a record into the open windows of its key; return the one that it completes."""
        entry = self._store.get(DATA + key)
        spans, latest = ((), timestamp) if entry is None else entry
        number = spans[-1].end if spans else 0
        grown = [self._with(span, value, timestamp) for span in spans if not span.closed]
        if number == 0 or (number + self._records) % self._step == 0:
            grown.append(self._span(number, number + 1, timestamp, self._fold.first(value)))
        done = (number + 1) % self._step == 0
        # The first start of the next result that the key will have.
        needed = (number // self._step + 1 + done) * self._step - self._records
        kept = [span for span in grown if span.start >= needed]
        self._store.put(
            DATA + key,
            (tuple(kept) or (grown[0]._replace(closed=True),), max(latest, timestamp)),
        )
        if not done:
            return ()
        start, end, at, _, _ = grown[0]
        return ((WindowResult(start, end, self._form.value_of(grown[0])), at),)

    def load(self) -> None:
        """Load nothing: no window is due at a time."""

    def due(self) -> int:
        """Return that no window is due at a time."""
        return NEVER

    def last_close(self) -> int:
        """Return that no window is closed by a time."""
        return 0

    def closing(self, now: int) -> Generator[Closed | None]:
        """Yield nothing: a window is sent with the record that completes it."""
        yield from ()

    def changed(self) -> Iterator[Closed]:
        """Yield nothing, for the same reason."""
        yield from ()

    def _with(self, span: Span, value: Any, timestamp: int) -> Span:
        aggregate = self._fold.then(self._form.value_of(span), value)
        return self._span(span.start, span.end + 1, max(span.timestamp, timestamp), aggregate)

    def _span(self, start: int, end: int, timestamp: int, aggregate: Any) -> Span:
        if aggregate is None:
            raise TypeError(
                "the function of an aggregate over windows of records returned None; return the "
                "aggregate with the value, or without it: each record is one of its windows"
            )
        return Span(start, end, timestamp, False, self._form.encode_value(aggregate))
