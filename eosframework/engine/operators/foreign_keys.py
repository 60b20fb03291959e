"""Joins of two tables by a foreign key: subscriptions, answers and their join (ADR 41).

Three tasks take part. The task of a left row subscribes it to a foreign key, the task of that key
answers with the right row, and a third one, which has the keys of the left table, joins both.

    FK1. A left row with another foreign key than before ends its subscription, and begins one with
         the next version of its task. Row, end and begin are in one transaction.
    FK2. A left row with the same foreign key is sent on with the version that it has.
    FK3. A subscription is answered with the current right row, and with each later one, all under
         its version. After its end there are no answers.
    FK4. An answer of an earlier version than the last row or answer is dropped. One of a later
         version waits for its row: rows and answers come through different topics.
    FK5. A row whose answer has not come yet changes no result, until it comes.
    FK6. A deleted row is forgotten at once. Of each task that sends rows, the version of the last
         deletion is kept: an answer of an earlier one, for a key without a row, is dropped.

The version grows with each subscription of a task, so the row of a key that has the greatest
version is its last one, and so are the answers with this version.

Formats, after which the bytes of a key or row follow:

    subscription    1 byte kind, version; key of the left row
    row             1 byte flags, version; left row
    answer          1 byte kind, version; right row
    version         4 bytes task, 8 bytes number; versions are compared as bytes
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from eosframework.engine.operators.entries import Entry
from eosframework.engine.operators.store_transaction import StoreTransaction
from eosframework.errors import raised_by_functions
from eosframework.serialization.key_bytes import key_encoder
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import Subscribe

_NUMBER = struct.Struct(">Q")
_LENGTH = struct.Struct(">I")

TASK = 4
"""Length of the task in a version."""

_VERSION = TASK + _NUMBER.size

HEAD = 1 + _VERSION
"""Length of what precedes the key or row in a message."""

_BEGIN, _END = b"\1", b"\2"
"""Kinds of subscriptions."""

IS_ROW, HAS_KEY = 1, 2
"""Flags of rows: not deleted; the foreign key is not null."""

_DELETED, _ALONE, _KEYED = (bytes([flags]) for flags in (0, IS_ROW, IS_ROW | HAS_KEY))

FOUND = 1
"""The kind of an answer with a row; the other kind has none."""

_FOUND, _ABSENT = b"\1", b"\2"

OF_TASK, OF_KEY = b"\0", b"\1"
"""First bytes of the keys in the stores of subscriptions and of joined rows."""

Subscription = tuple[bytes, bytes]
"""The encoded foreign key and the message to its task."""

Answer = tuple[bytes, bytes, int]
"""The key of the left row, the message to its task, and the event time."""


class Subscriptions:
    """The subscriptions of the left rows of one task.

    Args:
        node: the node of the graph.
        store: the transaction of its store.
        partition: of the task.
    """

    def __init__(self, node: Subscribe, store: StoreTransaction, partition: int) -> None:
        self._node = node
        self._store = store
        self._task = partition.to_bytes(TASK)
        self._encode = key_encoder(node.foreign) or bytes

    def change(
        self, key: bytes, row: bytes | None, foreign: Any, timestamp: int
    ) -> tuple[bytes | None, list[Subscription]]:
        """Take a left row (FK1, FK2); return the message with it, and those to other tasks.

        Args:
            key: of the row.
            row: the encoded row; None: deleted.
            foreign: its foreign key; None: it has none.
            timestamp: in milliseconds.

        Returns:
            None in place of the row if a row is deleted that was not there.
        """
        place = OF_KEY + key
        known = self._store.get(place)
        if known is None:
            if row is None:
                return None, []
            before = old = None
        else:
            before, old = split_subscription(known[0])
        now = None if foreign is None else self._encoded(foreign)
        if row is not None and before is not None and old == now:
            return (_ALONE if now is None else _KEYED) + before + row, []
        version = self._next_version(timestamp)
        sent = [] if old is None else [(old, _END + version + key)]
        if row is None:
            self._store.delete(place)
            return _DELETED + version, sent
        if now is None:
            self._store.put(place, (version, timestamp))
            return _ALONE + version + row, sent
        self._store.put(place, (version + OF_KEY + now, timestamp))
        sent.append((now, _BEGIN + version + key))
        return _KEYED + version + row, sent

    def _next_version(self, timestamp: int) -> bytes:
        entry = self._store.get(OF_TASK)
        last = 0 if entry is None else _NUMBER.unpack(entry[0])[0]
        number = _NUMBER.pack(last + 1)
        self._store.put(OF_TASK, (number, timestamp))
        return self._task + number

    def _encoded(self, foreign: Any) -> bytes:
        try:
            return self._encode(foreign)
        except raised_by_functions() as error:
            node = self._node
            raise TypeError(
                f"{node.of.name} returned {foreign!r:.80} ({type(foreign).__name__}), and table "
                f"{node.other!r} has keys of {node.foreign.name} ({error}); return a key of that "
                f"table, or None for a row without one"
            ) from error


def split_subscription(kept: bytes) -> tuple[bytes, bytes | None]:
    """Return the version of a stored subscription, and its encoded foreign key; None: none."""
    return kept[:_VERSION], kept[_VERSION + len(OF_KEY) :] if len(kept) > _VERSION else None


def number_of(version: bytes) -> int:
    """Return the number of a version within its task.

    Raises:
        struct.error: it is cut.
    """
    return _NUMBER.unpack_from(version, TASK)[0]


class Answering:
    """Answers the subscriptions to the right rows of one task (FK3).

    Args:
        store: the transaction of the store of subscriptions.
        row: returns the current row of a key.
        show: converts a stored row to one that the join sees.
        serde: of the rows in answers.
    """

    def __init__(
        self,
        store: StoreTransaction,
        row: Callable[[bytes], Entry | None],
        show: Callable[[Any], Any],
        serde: Serde,
    ) -> None:
        self._store = store
        self._row = row
        self._show = show
        self._encode = serde.encode or bytes

    def left(self, foreign: bytes, message: bytes, timestamp: int) -> tuple[Answer, ...]:
        """Take a subscription to a key, or the end of one; return the answer, if it has one."""
        version, key = message[1:HEAD], message[HEAD:]
        place = _prefix(foreign) + key
        if message[:1] == _END:
            self._store.delete(place)
            return ()
        self._store.put(place, (version, timestamp))
        entry = self._row(foreign)
        if entry is None:
            return ((key, _ABSENT + version, timestamp),)
        return ((key, _FOUND + version + self._encode(entry[0]), entry[1]),)

    def right(self, foreign: bytes, row: Any, before: Any, timestamp: int) -> Iterator[Answer]:
        """Take a change of a row; yield an answer for each subscription to its key."""
        now = self._show(row)
        if now is None and self._show(before) is None:
            return
        prefix = _prefix(foreign)
        kind, data = (_ABSENT, b"") if now is None else (_FOUND, self._encode(now))
        for place, (version, _) in self._store.scan(prefix, _after(prefix)):
            yield place[len(prefix) :], kind + version + data, timestamp


def subscribers_of(foreign: bytes) -> tuple[bytes, bytes]:
    """Return the first key of the subscriptions to a foreign key, and the one after the last."""
    prefix = _prefix(foreign)
    return prefix, _after(prefix)


def read_subscriber(place: bytes) -> tuple[bytes, bytes]:
    """Return the encoded foreign key in the key of a subscription to it, and that of the row."""
    end = _LENGTH.size + _LENGTH.unpack_from(place)[0]
    return place[_LENGTH.size : end], place[end:]


def _prefix(foreign: bytes) -> bytes:
    """Return the beginning of the keys of all subscriptions to a foreign key."""
    return _LENGTH.pack(len(foreign)) + foreign


def _after(prefix: bytes) -> bytes:
    """Return the first key after those with a prefix, which has a byte below the greatest."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])
