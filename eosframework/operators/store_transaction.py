"""A store as the records of an open transaction see it: what they changed over what is committed.

A change is noted in the task's journal with what was there before, so that a record that fails
takes all its changes back: `undo` does so from the end to the record's mark.

A value that functions could change in place (a dict, a model) is kept as bytes: whoever gets it
has a copy of its own, and no function can change a store but by what it returns. Numbers and
texts are kept as they are, and encoded once for each key and transaction.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from sortedcontainers import SortedList  # pyright: ignore[reportMissingTypeStubs]

from eosframework.errors import DataRejected
from eosframework.operators.entries import Entry, EntryFormat, timestamp_of
from eosframework.operators.operator_ports import CommittedStore

RECENT_ENTRIES = 20_000
"""So many entries of a store are kept at hand between transactions."""

RECENT_BYTES = 2**24
"""So many bytes of them, encoded; more entries of a kilobyte than of the number above."""

ENTRY_BYTES = 250
"""What an entry takes in memory besides the bytes of its value: key, tuple, numbers, and places in
dictionaries."""

NUMBERS = frozenset({"integer", "float"})
"""Serdes whose values take no more than that."""

ABSENT: Final[Any] = object()
"""In place of an entry: this transaction did not change the key."""

Update = Callable[[bytes, Any, int], Entry]
"""Takes key, value and timestamp of a record; returns the key's aggregate with its timestamp."""


class Changes(dict[bytes, Any]):
    """The changes of a transaction to a store, by key, in the order in which keys came in.

    What is undone came in last, so of the keys that are sorted those go that are behind `kept`.

    Attributes:
        kept: so many of its first keys are the same as when it was sorted last.
    """

    __slots__ = ("kept",)

    def __init__(self) -> None:
        super().__init__()
        self.kept = 0

    def undo_insert(self, key: bytes) -> None:
        """Take out the key that came in last."""
        del self[key]
        self.kept = min(self.kept, len(self))


Journal = list[tuple[Changes, bytes, Any]]
"""For each change in order: the changes of a store, the key, and what was there before."""


def undo(journal: Journal, mark: int) -> None:
    """Take back what was changed since the journal was `mark` long."""
    while len(journal) > mark:
        changed, key, before = journal.pop()
        if before is ABSENT:
            changed.undo_insert(key)
        else:
            changed[key] = before


UNSORTED_SCANS = 6
"""So many scans in a transaction look through all that it changed: to sort that takes longer."""


class SortedKeys:
    """The keys of a transaction's changes in their order, brought up to date when they are read.

    So a scan costs what it finds, however much the transaction changed; but for its first scans,
    because most transactions have no more.

    Args:
        changed: the changes.
    """

    def __init__(self, changed: Changes) -> None:
        self._changed = changed
        self._taken: list[bytes] = []
        """The keys that are sorted, in the order in which they came in."""
        self._keys: Any = SortedList()
        self._scans = 0

    def between(self, first: bytes, last: bytes | None) -> Iterable[bytes]:
        """Return the keys with `first <= key < last`, in order; None: to the last one."""
        self._scans += 1
        if self._scans <= UNSORTED_SCANS:
            keys = self._changed
            return sorted(key for key in keys if key >= first and (last is None or key < last))
        self._catch_up()
        return self._keys.irange(first, last, inclusive=(True, False))

    def clear(self) -> None:
        """Forget all keys; the changes are empty."""
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


class StoreSession(ABC):
    """One store of one task within a transaction; see `open_session`.

    Args:
        form: of the entries.
        committed: what the store holds.
        journal: of the task; emptied by the task when no record is being run.
    """

    def __init__(self, form: EntryFormat, committed: CommittedStore, journal: Journal) -> None:
        self.form = form
        self._committed = committed
        self._journal = journal
        self._changed = Changes()
        self._sorted = SortedKeys(self._changed)
        self._recent: dict[bytes, Any] = {}
        self._recent_bytes = 0
        self._changed_bytes = 0
        self._put_bytes = 0
        """Of values that were put, those that replaced others included."""

    @abstractmethod
    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a key; what this transaction changed counts."""

    @abstractmethod
    def put(self, key: bytes, entry: Entry) -> None:
        """Change the entry of a key."""

    @abstractmethod
    def _kept(self, data: bytes) -> Any:
        """Return what is kept in memory of an entry's bytes."""

    @abstractmethod
    def _entry(self, kept: Any) -> Entry: ...

    @abstractmethod
    def _bytes(self, kept: Any) -> bytes: ...

    @abstractmethod
    def _size(self, kept: Any) -> int:
        """Return about how many bytes what is kept takes, besides `ENTRY_BYTES`."""

    @abstractmethod
    def _timestamp(self, kept: Any) -> int: ...

    def delete(self, key: bytes) -> None:
        """Forget a key."""
        changed = self._changed
        self._journal.append((changed, key, changed.get(key, ABSENT)))
        changed[key] = None

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, Entry]]:
        """Yield entries with `first <= key < last` in order; what this transaction changed counts.

        What is changed during the scan does not show.

        Args:
            first: where to begin.
            last: where to end; None: behind the last key.
            reverse: from the last one to the first.
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
        """Whether this transaction changed anything."""
        return bool(self._changed)

    @property
    def changed_bytes(self) -> int:
        """The approximate upper bound of the memory that this transaction's changes take."""
        return len(self._changed) * ENTRY_BYTES + self._put_bytes

    def weigh(self) -> None:
        """Make `changed_bytes` exact, without values that were replaced; looks at all changes."""
        kept = self._changed.values()
        self._put_bytes = sum(self._size(one) for one in kept if one is not None)

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield each key that was changed with its last entry; None: it was deleted.

        Raises:
            DataRejected: a value does not encode, for example an integer of more than 64 bits. The
                transaction is replayed in halves until the record that gave it is known.
        """
        size_bytes = 0
        for key, kept in self._changed.items():
            data = None if kept is None else self._encoded(kept)
            size_bytes += len(data or b"")
            yield key, data
        self._changed_bytes = size_bytes

    def _encoded(self, kept: Any) -> bytes:
        try:
            return self._bytes(kept)
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            raise DataRejected(
                f"store {self.form.store!r} cannot keep a value as {self.form.serde.name}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def changed_entries(self) -> Iterator[tuple[bytes, Entry | None]]:
        """Yield the same, decoded."""
        for key, kept in list(self._changed.items()):
            yield key, None if kept is None else self._entry(kept)

    def before(self, key: bytes) -> Entry | None:
        """Return the entry that a key has without what this transaction changed."""
        kept = self._load(key)
        return None if kept is None else self._entry(kept)

    def committed(self) -> None:
        """Take what was changed as what the store holds: it does now."""
        if len(self._recent) + len(self._changed) > RECENT_ENTRIES:
            self._forget_recent()
        self._recent.update(self._changed)
        self._recent_bytes += self._changed_bytes
        if self._recent_bytes > RECENT_BYTES:
            self._weigh_recent()
        self._forget_changes()

    def drop(self) -> None:
        """Forget everything; the store may hold something else from now on."""
        self._forget_changes()
        self._forget_recent()

    def _load(self, key: bytes) -> Any:
        """Return what is kept of a key that this transaction did not change."""
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
        """Find out whether too much is at hand, and forget it then.

        An entry that replaced another one was counted as well as that one. Where half of the
        bytes are there in fact, they are forgotten, so that this is not found out all the time.
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


class ValueSession(StoreSession):
    """Of values that nobody can change in place: they are kept as they are."""

    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a key."""
        entry = self._changed.get(key, ABSENT)
        return self._load(key) if entry is ABSENT else entry

    def put(self, key: bytes, entry: Entry) -> None:
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
        """Return the same as `folds.folding`, in one call for each record instead of four."""
        changed, load = self._changed, self._load
        changed_of, note = changed.get, self._journal.append
        is_number = self.form.serde.name in NUMBERS

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


class EncodedSession(StoreSession):
    """Of values that functions could change: they are kept as bytes."""

    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a key, a copy for the caller alone."""
        kept = self._changed.get(key, ABSENT)
        if kept is ABSENT:
            kept = self._load(key)
        return None if kept is None else self.form.decode(kept)

    def put(self, key: bytes, entry: Entry) -> None:
        """Change the entry of a key."""
        changed = self._changed
        data = self.form.encode(entry)
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
        return timestamp_of(kept)


def open_session(form: EntryFormat, committed: CommittedStore, journal: Journal) -> StoreSession:
    """Return the session for a store's kind of values."""
    kind = ValueSession if form.is_immutable else EncodedSession
    return kind(form, committed, journal)
