"""What the entries of a store of windows say, for those who only look."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eosframework.operators.agenda import DATA
from eosframework.operators.binding import format_of
from eosframework.operators.window_entries import MARK_KEY, START, SpansFormat
from eosframework.topology.graph import Store, Window, WindowKind

Shown = tuple[bytes, int, int, Any]
"""An encoded key, start and end of a window of it, and the window's value."""


def windows_in(store: Store, window: Window, store_key: bytes, data: bytes) -> Iterator[Shown]:
    """Yield the windows that an entry holds; none if it only says something of the store.

    Of deduplication they are the times that are taken, without a value.

    Args:
        store: that the entry is in.
        window: of the store.
        store_key: of the entry.
        data: the entry.
    """
    if store_key == MARK_KEY:
        return
    form = format_of(store)
    value, timestamp = form.decode(data)
    if isinstance(form, SpansFormat):
        if store_key[:1] == DATA:
            for span in value:
                shown = form.decode_value(span.raw, form.version)
                yield store_key[1:], span.start, span.end, shown
        return
    start, key = START.unpack_from(store_key)[0], store_key[START.size :]
    if window.kind is WindowKind.LAST:
        yield key, timestamp, timestamp + window.size_ms, None
    else:
        yield key, start, start + window.size_ms, value
