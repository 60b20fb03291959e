"""Entries that expire: they read as absent once stream time is past their own time and the ttl.

What reads as absent follows from the times alone. Whether an entry was removed already does not
show, so that removing can be cheap: a pass goes through the store in the order of its keys, a few
entries before each commit, and begins again when enough can have expired. There is no index by
time: a store can get a ttl, or another one, at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eosframework.operators.entries import Entry, EntryFormat, timestamp_of
from eosframework.operators.operator_ports import CommittedStore
from eosframework.operators.store_transaction import (
    ABSENT,
    EncodedSession,
    Journal,
    StoreSession,
    Update,
    ValueSession,
)
from eosframework.operators.windows.closing import NEVER
from eosframework.topology.graph.graph import Store

LOOKS_PER_CHANGE = 2
"""A pass looks at so many entries for each key that the transaction changed: what expires during
the pass is then never more than what lives."""

LOOKS = 64
"""A pass looks at so many entries in any case."""

PASSES_PER_TTL = 8
"""The next pass begins when an entry has been expired for so small a part of the ttl."""


class StreamTime:
    """The time of a task as its operators see it; the generated function keeps it."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0


@dataclass(frozen=True, slots=True)
class Lifetime:
    """For how long the entries of a store count.

    Args:
        ttl_ms: an entry has expired when stream time is further than this past its timestamp.
        time: of the task.
    """

    ttl_ms: int
    time: StreamTime


class Expiring(StoreSession):
    """A session that does not show what has expired, and removes it little by little."""

    def __init__(
        self, form: EntryFormat, committed: CommittedStore, journal: Journal, lifetime: Lifetime
    ) -> None:
        super().__init__(form, committed, journal)
        self._ttl_ms, self._time = lifetime.ttl_ms, lifetime.time
        self._pass = Pass(lifetime.ttl_ms)

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, Entry]]:
        """Yield the entries that have not expired; see `StoreSession.scan`."""
        oldest = self._time.now - self._ttl_ms
        for key, entry in StoreSession.scan(self, first, last, reverse=reverse):
            if entry[1] >= oldest:
                yield key, entry

    def before(self, key: bytes) -> Entry | None:
        """Return the entry that a key has without what this transaction changed."""
        return self._alive(StoreSession.before(self, key))

    def drop(self) -> None:
        """Forget everything; the store may hold something else from now on."""
        StoreSession.drop(self)
        self._pass.is_in_doubt()

    def remove_expired(self, now: int) -> None:
        """Remove what came too late to count, and go on with the pass; before a commit.

        Args:
            now: stream time; every record up to the commit is run.
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
    """How far a store was looked through for what has expired.

    Args:
        ttl_ms: of its entries.
    """

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._rest_ms = ttl_ms // PASSES_PER_TTL
        self._next: bytes | None = b""
        """The key to go on with; None: the last pass is through."""
        self._oldest = NEVER
        """No timestamp is lower among the entries that this pass left, and those that came."""

    def turn(
        self,
        committed: CommittedStore,
        changed: Mapping[bytes, Any],
        oldest_change: int,
        now: int,
    ) -> list[bytes]:
        """Return keys to delete.

        Args:
            committed: what the store holds.
            changed: the keys that the open transaction changed; they are left alone.
            oldest_change: the lowest timestamp that it gave one of them.
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
            timestamp = timestamp_of(data)
            if timestamp >= last_expired:
                oldest = min(oldest, timestamp)
            elif key not in changed:
                expired.append(key)
        else:
            self._next = None
        self._oldest = oldest
        return expired

    def is_in_doubt(self) -> None:
        """What was to be removed may be there again: let another pass follow this one."""
        self._oldest = 0


class ExpiringValues(Expiring, ValueSession):
    """Of values that nobody can change in place."""

    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a key, unless it has expired."""
        return self._alive(ValueSession.get(self, key))

    def folding(self, first: Callable[[Any], Any], then: Callable[[Any, Any], Any]) -> Update:
        """Return what folds each record; an aggregate that has expired begins anew."""
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


class ExpiringEncoded(Expiring, EncodedSession):
    """Of values that functions could change."""

    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a key, unless it has expired."""
        return self._alive(EncodedSession.get(self, key))


def open_expiring(
    form: EntryFormat, committed: CommittedStore, journal: Journal, lifetime: Lifetime
) -> Expiring:
    """Return the session for a store's kind of values; see `session.open_session`."""
    kind = ExpiringValues if form.is_immutable else ExpiringEncoded
    return kind(form, committed, journal, lifetime)


def unexpired(store: Store, content: CommittedStore, stream_time: int | None) -> CommittedStore:
    """Return what counts of a store's content.

    Args:
        store: of the graph.
        content: of one task.
        stream_time: of the task; None: it is not known, and all counts.
    """
    if store.ttl_ms is None or stream_time is None:
        return content
    return Unexpired(content, store.ttl_ms, stream_time)


class Unexpired:
    """What of a store's content has not expired; a `CommittedStore`.

    Args:
        content: of one task.
        ttl_ms: of its entries.
        stream_time: of the task.
    """

    def __init__(self, content: CommittedStore, ttl_ms: int, stream_time: int) -> None:
        self._content = content
        self._oldest = stream_time - ttl_ms

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
        return timestamp_of(data) >= self._oldest
