"""A store within an open transaction: the uncommitted changes over the committed content.

Each change is recorded in the task's journal together with the previous entry. `undo` replays the
journal backwards to a mark and so removes the changes of a record that failed.

A value that a function could change in place (a dict, a model) is kept as bytes, so each reader
gets a copy and a store changes only through `put`. Numbers and texts are kept as they are and
encoded once for each key and transaction.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol

from sortedcontainers import SortedList  # pyright: ignore[reportMissingTypeStubs]

from eosframework.engine.operators.entries import Entry, EntryFormat
from eosframework.errors import DataRejected

_HOT_KEY_LIMIT = 10_000
"""The default of `worker.hot_key_limit`."""

_HELD_LIMIT = 100_000
"""The default of `worker.reorder_limit`."""

_SIZE_BYTES = 128 * 2**20
"""The default of `worker.queue_megabytes`, in bytes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the work of a single record.

    Args:
        records: the most records of its key that a record may join in a stream-stream join, and the
            most sliding or session windows that a key may have at once.
        size_bytes: the most bytes of the values of all pairs of one record in a stream-stream join.
        held: the most records that the reorder step of a task may hold.
    """

    records: int = _HOT_KEY_LIMIT
    size_bytes: int = _SIZE_BYTES
    held: int = _HELD_LIMIT

    @property
    def of_records(self) -> str:
        """The limit of a join, for messages."""
        return f"{self.records} records, or {self.size_bytes // 2**20} MB with them,"

    @property
    def advice(self) -> str:
        """The next step for the user, for messages."""
        return "raise worker.hot_key_limit (or worker.queue_megabytes for large records)"


class CommittedStore(Protocol):
    """The content of one task's store after its last commit."""

    def get(self, key: bytes) -> bytes | None:
        """Return the entry of a key."""
        ...

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with `first <= key < last` in byte order.

        Writes made during the scan are not visible to it.

        Args:
            first: the first key, inclusive.
            last: the last key, exclusive; None: the end of the store.
            reverse: iterate from the last key to the first.
        """
        ...


class WholeTopic(Protocol):
    """The current rows of a global table."""

    def get(self, key: bytes, /) -> tuple[bytes, int] | None:
        """Return the encoded row of a key and its timestamp."""
        ...


RECENT_ENTRIES = 20_000
"""The most entries of a store that are cached between transactions."""

RECENT_BYTES = 2**24
"""The most encoded bytes of cached entries; for entries above about a kilobyte this is the lower
bound."""

_ENTRY_BYTES = 250
"""Memory of an entry besides the bytes of its value: key, tuple, numbers and dictionary slots."""

_NUMBERS = frozenset({"integer", "float"})
"""Serdes whose values take no memory beyond `_ENTRY_BYTES`."""

ABSENT: Final[Any] = object()
"""Marks a key that this transaction has not changed."""

Update = Callable[[bytes, Any, int], Entry]
"""Takes key, value and timestamp of a record; returns the key's aggregate with its timestamp."""


class Changes(dict[bytes, Any]):
    """The changes of a transaction to a store, by key, in insertion order.

    `undo` removes the keys that were inserted last, so only sorted keys past `kept` become invalid.

    Attributes:
        kept: the number of leading keys that have not changed since the last sort.
    """

    __slots__ = ("kept",)

    def __init__(self) -> None:
        super().__init__()
        self.kept = 0

    def undo_insert(self, key: bytes) -> None:
        """Remove the key that was inserted last."""
        del self[key]
        self.kept = min(self.kept, len(self))


Journal = list[tuple[Changes, bytes, Any]]
"""One entry per change, in order: the changes of a store, the key, and the previous entry."""


def undo(journal: Journal, mark: int) -> None:
    """Revert the changes made since the journal had the length `mark`."""
    while len(journal) > mark:
        changed, key, before = journal.pop()
        if before is ABSENT:
            changed.undo_insert(key)
        else:
            changed[key] = before


_UNSORTED_SCANS = 6
"""The number of scans in a transaction that filter all changes, because sorting them costs more."""


class _SortedKeys:
    """The sorted keys of a transaction's changes, updated when they are read.

    A scan therefore costs in proportion to its result, however much the transaction changed. The
    first scans are exempt, because most transactions make no more.

    Args:
        changed: the changes.
    """

    def __init__(self, changed: Changes) -> None:
        self._changed = changed
        self._taken: list[bytes] = []
        """The keys that are sorted, in insertion order."""
        self._keys: Any = SortedList()
        self._scans = 0

    def between(self, first: bytes, last: bytes | None) -> Iterable[bytes]:
        """Return the keys with `first <= key < last`, in order; None as `last` is no bound."""
        self._scans += 1
        if self._scans <= _UNSORTED_SCANS:
            keys = self._changed
            return sorted(key for key in keys if key >= first and (last is None or key < last))
        self._catch_up()
        return self._keys.irange(first, last, inclusive=(True, False))

    def clear(self) -> None:
        """Discard all keys; the changes are empty."""
        self._taken.clear()
        self._keys.clear()
        self._changed.kept = self._scans = 0

    def _catch_up(self) -> None:
        changed, taken, keys = self._changed, self._taken, self._keys
        for key in taken[changed.kept :]:
            keys.remove(key)
        del taken[changed.kept :]
        new = list(islice(reversed(changed), len(changed) - len(taken)))
        new.reverse()
        keys.update(new)
        taken += new
        changed.kept = len(taken)


class StoreTransaction(ABC):
    """One store of one task within a transaction; see `open_transaction`.

    Args:
        form: format of the entries.
        committed: the committed content.
        journal: the journal of the task, which clears it between records.
    """

    def __init__(self, form: EntryFormat, committed: CommittedStore, journal: Journal) -> None:
        self.form = form
        self._committed = committed
        self._journal = journal
        self._changed = Changes()
        self._sorted = _SortedKeys(self._changed)
        self._recent: dict[bytes, Any] = {}
        self._recent_bytes = 0
        self._changed_bytes = 0
        self._put_bytes = 0
        """Bytes of all values that were put, including those replaced later."""

    @abstractmethod
    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a key, including uncommitted changes."""

    @abstractmethod
    def put(self, key: bytes, entry: Entry, data: bytes | None = None) -> None:
        """Set the entry of a key.

        Args:
            key: the key.
            entry: the entry.
            data: the bytes of its value, if they are known.
        """

    @abstractmethod
    def _kept(self, data: bytes) -> Any:
        """Return the in-memory form of an encoded entry."""

    @abstractmethod
    def _entry(self, kept: Any) -> Entry: ...

    @abstractmethod
    def _bytes(self, kept: Any) -> bytes: ...

    @abstractmethod
    def _size(self, kept: Any) -> int:
        """Return the approximate bytes of a kept entry, besides `_ENTRY_BYTES`."""

    @abstractmethod
    def _timestamp(self, kept: Any) -> int: ...

    def delete(self, key: bytes) -> None:
        """Delete a key."""
        changed = self._changed
        self._journal.append((changed, key, changed.get(key, ABSENT)))
        changed[key] = None

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, Entry]]:
        """Yield entries with `first <= key < last` in order, including uncommitted changes.

        Changes made during the scan are not visible to it.

        Args:
            first: the first key, inclusive.
            last: the last key, exclusive; None: the end of the store.
            reverse: iterate from the last key to the first.
        """
        own = {key: self._changed[key] for key in self._sorted.between(first, last)}
        waiting = list(own) if reverse else list(reversed(own))
        for key, data in self._committed.scan(first, last, reverse=reverse):
            while waiting and (waiting[-1] > key if reverse else waiting[-1] < key):
                yield from self._shown(waiting[-1], own[waiting.pop()])
            if waiting and waiting[-1] == key:
                yield from self._shown(key, own[waiting.pop()])
            else:
                yield key, self.form.decode(data)
        while waiting:
            yield from self._shown(waiting[-1], own[waiting.pop()])

    @property
    def has_changes(self) -> bool:
        """True if this transaction changed anything."""
        return bool(self._changed)

    @property
    def changed_bytes(self) -> int:
        """An approximate upper bound of the memory of this transaction's changes, in bytes."""
        return len(self._changed) * _ENTRY_BYTES + self._put_bytes

    def weigh(self) -> None:
        """Make `changed_bytes` exact by excluding replaced values; reads every change."""
        kept = self._changed.values()
        self._put_bytes = sum(self._size(one) for one in kept if one is not None)

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """Return each changed key with its last encoded entry; None: deleted.

        Raises:
            DataRejected: a value cannot be encoded, for example an integer of more than 64 bits.
                The transaction is bisected until the record that produced it is known.
        """
        encode = self._bytes
        try:
            changes = [
                (key, None if kept is None else encode(kept)) for key, kept in self._changed.items()
            ]
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            raise DataRejected(
                f"store {self.form.store!r} cannot keep a value as {self.form.serde.name}: "
                f"{type(error).__name__}: {error}"
            ) from error
        self._changed_bytes = sum(len(data) for _, data in changes if data is not None)
        return changes

    def changed_entries(self) -> Iterator[tuple[bytes, Entry | None]]:
        """Yield each changed key with its last decoded entry; None: deleted."""
        for key, kept in list(self._changed.items()):
            yield key, None if kept is None else self._entry(kept)

    def before(self, key: bytes) -> Entry | None:
        """Return the entry of a key as committed, without the changes of this transaction."""
        kept = self._load(key)
        return None if kept is None else self._entry(kept)

    def committed(self) -> None:
        """Take the changes as committed: the store now contains them."""
        if len(self._recent) + len(self._changed) > RECENT_ENTRIES:
            self._forget_recent()
        self._recent.update(self._changed)
        self._recent_bytes += self._changed_bytes
        if self._recent_bytes > RECENT_BYTES:
            self._weigh_recent()
        self._forget_changes()

    def drop(self) -> None:
        """Discard all changes and cached entries; the store may have been replaced."""
        self._forget_changes()
        self._forget_recent()

    def _load(self, key: bytes) -> Any:
        """Return the kept entry of a key that this transaction did not change."""
        kept = self._recent.get(key, ABSENT)
        if kept is not ABSENT:
            return kept
        data = self._committed.get(key)
        kept = None if data is None else self._kept(data)
        if len(self._recent) >= RECENT_ENTRIES:
            self._forget_recent()
        self._recent[key] = kept
        if data is not None:
            self._recent_bytes += len(data)
            if self._recent_bytes > RECENT_BYTES:
                self._weigh_recent()
        return kept

    def _weigh_recent(self) -> None:
        """Measure the cache, and clear it if it is too large.

        An entry that replaced another was counted in addition to it. The cache is cleared at half
        of the limit, so that it is not measured again at every commit.
        """
        recent = self._recent.values()
        size_bytes = sum(len(self._bytes(kept)) for kept in recent if kept is not None)
        if size_bytes > RECENT_BYTES // 2:
            self._forget_recent()
        else:
            self._recent_bytes = size_bytes

    def _forget_recent(self) -> None:
        self._recent.clear()
        self._recent_bytes = 0

    def _forget_changes(self) -> None:
        self._changed.clear()
        self._sorted.clear()
        self._changed_bytes = self._put_bytes = 0

    def _shown(self, key: bytes, kept: Any) -> Iterator[tuple[bytes, Entry]]:
        if kept is not None:
            yield key, self._entry(kept)


class ValueTransaction(StoreTransaction):
    """A store transaction for immutable values, which are kept as they are."""

    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a key."""
        entry = self._changed.get(key, ABSENT)
        return self._load(key) if entry is ABSENT else entry

    def put(self, key: bytes, entry: Entry, data: bytes | None = None) -> None:
        """Change the entry of a key."""
        changed = self._changed
        value = entry[0]
        if value.__class__ is bytes:
            self._put_bytes += len(value)
        elif value.__class__ is not int:
            self._put_bytes += self.form.size(value)
        self._journal.append((changed, key, changed.get(key, ABSENT)))
        changed[key] = entry

    def folding(self, first: Callable[[Any], Any], then: Callable[[Any, Any], Any]) -> Update:
        """Return the same function as `folds.folding`, with one call per record instead of four."""
        changed, load = self._changed, self._load
        changed_of, note = changed.get, self._journal.append
        is_number = self.form.serde.name in _NUMBERS

        def update(key: bytes, value: Any, timestamp: int) -> Entry:
            before = changed_of(key, ABSENT)
            known = load(key) if before is ABSENT else before
            if known is None:
                aggregate = first(value)
            else:
                so_far, latest = known
                aggregate = then(so_far, value)
                if latest > timestamp:
                    timestamp = latest
            if not is_number and aggregate is not None:
                self._put_bytes += len(aggregate)
            entry = aggregate, timestamp
            note((changed, key, before))
            changed[key] = None if aggregate is None else entry
            return entry

        return update

    def counting(self) -> Update:
        """Return the update function of a count, which calls no function of a fold."""
        changed, load = self._changed, self._load
        changed_of, note = changed.get, self._journal.append

        def update(key: bytes, value: Any, timestamp: int) -> Entry:
            before = changed_of(key, ABSENT)
            known = load(key) if before is ABSENT else before
            if known is None:
                count = 1
            else:
                so_far, latest = known
                count = so_far + 1
                if latest > timestamp:
                    timestamp = latest
            note((changed, key, before))
            changed[key] = entry = count, timestamp
            return entry

        return update

    def _kept(self, data: bytes) -> Entry:
        return self.form.decode(data)

    def _entry(self, kept: Entry) -> Entry:
        return kept

    def _bytes(self, kept: Entry) -> bytes:
        return self.form.encode(kept)

    def _size(self, kept: Entry) -> int:
        return self.form.size(kept[0])

    def _timestamp(self, kept: Entry) -> int:
        return kept[1]


class EncodedTransaction(StoreTransaction):
    """A store transaction for values that could be changed in place, which are kept as bytes."""

    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a key: a copy for the caller alone."""
        kept = self._changed.get(key, ABSENT)
        if kept is ABSENT:
            kept = self._load(key)
        return None if kept is None else self.form.decode(kept)

    def put(self, key: bytes, entry: Entry, data: bytes | None = None) -> None:
        """Set the entry of a key."""
        changed = self._changed
        data = self.form.encode(entry) if data is None else self.form.framed(data, entry[1])
        self._put_bytes += len(data)
        self._journal.append((changed, key, changed.get(key, ABSENT)))
        changed[key] = data

    def _kept(self, data: bytes) -> bytes:
        return data

    def _entry(self, kept: bytes) -> Entry:
        return self.form.decode(kept)

    def _bytes(self, kept: bytes) -> bytes:
        return kept

    def _size(self, kept: bytes) -> int:
        return len(kept)

    def _timestamp(self, kept: bytes) -> int:
        return self.form.timestamp(kept)


def open_transaction(
    form: EntryFormat, committed: CommittedStore, journal: Journal
) -> StoreTransaction:
    """Return the transaction for a store's kind of values."""
    kind = ValueTransaction if form.is_immutable else EncodedTransaction
    return kind(form, committed, journal)
