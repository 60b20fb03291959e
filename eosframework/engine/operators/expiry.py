"""Expiring entries: they read as absent once stream time exceeds their timestamp by the ttl.

The result of a read depends on timestamps alone, so it does not matter when an entry is removed,
and removal can be cheap: a pass reads the store in key order, a few entries before each commit, and
starts again when enough entries may have expired. No index by time exists, so a store can get a
ttl, or a different one, at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eosframework.engine.operators.entries import Entry, EntryFormat
from eosframework.engine.operators.store_transaction import (
    ABSENT,
    CommittedStore,
    EncodedTransaction,
    Journal,
    StoreTransaction,
    Update,
    ValueTransaction,
)
from eosframework.engine.operators.windows import NEVER
from eosframework.topology.graph.graph import Store

LOOKS_PER_CHANGE = 2
"""Entries that a pass checks for each key that the transaction changed. With two, expired
entries never outnumber the live ones during a pass."""

LOOKS = 64
"""Entries that a pass checks at each commit in any case."""

PASSES_PER_TTL = 8
"""The next pass begins when an entry has been expired for the ttl divided by this."""


class StreamTime:
    """The stream time of a task, kept up to date by the generated code."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The lifetime of a store's entries.

    Args:
        ttl_ms: an entry has expired when stream time exceeds its timestamp by more than this.
        time: the stream time of the task.
    """

    ttl_ms: int
    time: StreamTime


class Expiring(StoreTransaction):
    """A store transaction that hides expired entries and removes them gradually."""

    def __init__(
        self, form: EntryFormat, committed: CommittedStore, journal: Journal, lifetime: Lifetime
    ) -> None:
        super().__init__(form, committed, journal)
        self._ttl_ms, self._time = lifetime.ttl_ms, lifetime.time
        self._pass = Pass(lifetime.ttl_ms, form)

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, Entry]]:
        """Yield the entries that have not expired; see `StoreTransaction.scan`."""
        oldest = self._time.now - self._ttl_ms
        for key, entry in StoreTransaction.scan(self, first, last, reverse=reverse):
            if entry[1] >= oldest:
                yield key, entry

    def before(self, key: bytes) -> Entry | None:
        """Return the entry of a key as committed, without the changes of this transaction."""
        return self._alive(StoreTransaction.before(self, key))

    def drop(self) -> None:
        """Discard all changes and cached entries; the store may have been replaced."""
        StoreTransaction.drop(self)
        self._pass.doubt()

    def remove_expired(self, now: int) -> None:
        """Remove changes that have already expired, and continue the pass; called before a commit.

        Args:
            now: stream time after the last record of the transaction.
        """
        if self._oldest_change() + self._ttl_ms < now:
            for key, kept in list(self._changed.items()):
                if kept is not None and self._timestamp(kept) + self._ttl_ms < now:
                    self.delete(key)
        for key in self._pass.turn(self._committed, self._changed, self._oldest_change(), now):
            self.delete(key)

    def _alive(self, entry: Entry | None) -> Entry | None:
        expired = entry is None or entry[1] + self._ttl_ms < self._time.now
        return None if expired else entry

    def _oldest_change(self) -> int:
        changed = (self._timestamp(kept) for kept in self._changed.values() if kept is not None)
        return min(changed, default=NEVER)


class Pass:
    """The progress of the removal of expired entries through one store.

    Args:
        ttl_ms: the ttl of its entries.
        form: the format of its entries.
    """

    def __init__(self, ttl_ms: int, form: EntryFormat) -> None:
        self._ttl_ms = ttl_ms
        self._form = form
        self._rest_ms = ttl_ms // PASSES_PER_TTL
        self._next: bytes | None = b""
        """The key at which the pass continues; None: the last pass is complete."""
        self._oldest = NEVER
        """A lower bound of the timestamps of the entries that this pass kept and of those added
        since."""

    def turn(
        self,
        committed: CommittedStore,
        changed: Mapping[bytes, Any],
        oldest_change: int,
        now: int,
    ) -> list[bytes]:
        """Return the keys to delete.

        Args:
            committed: the content of the store.
            changed: the keys that the open transaction changed; the pass skips them.
            oldest_change: the lowest timestamp among these changes.
            now: stream time.
        """
        if self._next is None:
            self._oldest = min(self._oldest, oldest_change)
            if now <= self._oldest + self._ttl_ms + self._rest_ms:
                return []
            self._next, self._oldest = b"", NEVER
        oldest, last_expired = min(self._oldest, oldest_change), now - self._ttl_ms
        looks = LOOKS + LOOKS_PER_CHANGE * len(changed)
        expired: list[bytes] = []
        for key, data in committed.scan(self._next):
            if looks == 0:
                self._next = key
                break
            looks -= 1
            timestamp = self._form.timestamp(data)
            if timestamp >= last_expired:
                oldest = min(oldest, timestamp)
            elif key not in changed:
                expired.append(key)
        else:
            self._next = None
        self._oldest = oldest
        return expired

    def doubt(self) -> None:
        """Schedule another pass: entries whose removal was rolled back may still exist."""
        self._oldest = 0


class ExpiringValues(Expiring, ValueTransaction):
    """Expiring entries whose values are immutable."""

    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a key, unless it has expired."""
        return self._alive(ValueTransaction.get(self, key))

    def folding(self, first: Callable[[Any], Any], then: Callable[[Any, Any], Any]) -> Update:
        """Return the update function of a fold; an expired aggregate begins anew."""
        changed, load = self._changed, self._load
        changed_of, note = changed.get, self._journal.append
        ttl_ms, time = self._ttl_ms, self._time

        def update(key: bytes, value: Any, timestamp: int) -> Entry:
            before = changed_of(key, ABSENT)
            known = load(key) if before is ABSENT else before
            if known is None or known[1] + ttl_ms < time.now:
                aggregate = first(value)
            else:
                so_far, latest = known
                aggregate = then(so_far, value)
                if latest > timestamp:
                    timestamp = latest
            entry = aggregate, timestamp
            note((changed, key, before))
            changed[key] = None if aggregate is None else entry
            return entry

        return update

    def counting(self) -> Update:
        """Return the update function of a count, as a fold: an expired one begins anew."""
        return self.folding(lambda value: 1, lambda count, value: count + 1)


class ExpiringEncoded(Expiring, EncodedTransaction):
    """Expiring entries whose values could be changed in place."""

    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a key, unless it has expired."""
        return self._alive(EncodedTransaction.get(self, key))


def open_expiring(
    form: EntryFormat, committed: CommittedStore, journal: Journal, lifetime: Lifetime
) -> Expiring:
    """Return the expiring transaction for a store's kind of values."""
    kind = ExpiringValues if form.is_immutable else ExpiringEncoded
    return kind(form, committed, journal, lifetime)


def unexpired(store: Store, content: CommittedStore, stream_time: int | None) -> CommittedStore:
    """Return a view of a store's content without expired entries.

    Args:
        store: a store of the graph.
        content: its content in one task.
        stream_time: the stream time of the task; None: unknown, so nothing is hidden.
    """
    if store.ttl_ms is None or stream_time is None:
        return content
    return Unexpired(content, EntryFormat(store.name, store.value), stream_time - store.ttl_ms)


class Unexpired:
    """A `CommittedStore` that hides expired entries.

    Args:
        content: the content of a store in one task.
        form: the format of its entries.
        oldest: the oldest timestamp of an entry that has not expired, in milliseconds.
    """

    def __init__(self, content: CommittedStore, form: EntryFormat, oldest: int) -> None:
        self._content = content
        self._form = form
        self._oldest = oldest

    def get(self, key: bytes) -> bytes | None:
        """Return the entry of a key, unless it has expired."""
        data = self._content.get(key)
        return None if data is None or not self._lives(data) else data

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries that have not expired; see `CommittedStore.scan`."""
        for key, data in self._content.scan(first, last, reverse=reverse):
            if self._lives(data):
                yield key, data

    def _lives(self, data: bytes) -> bool:
        return self._form.timestamp(data) >= self._oldest
