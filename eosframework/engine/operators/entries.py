"""Encodings of entries in a store and its changelog.

An entry has a version, a timestamp, and the bytes of its value:

1 byte    version of the value's format, declared with the store
8 bytes   timestamp in milliseconds since the epoch, big-endian
rest      the value, by the store's serde; it may be empty

A value may itself be a sequence of values with their times:

8 bytes   time in milliseconds since the epoch, big-endian, signed
4 bytes   length of the value, or `_DELETED` for a row that was deleted at this time; with the bit
          `_HAS_WRITTEN` if the next field exists
8 bytes   only of a record out of order: its time of writing (`watermarks`), in milliseconds
rest      the value, by its serde

Errors of entries that cannot be decoded: of stores, and of global tables.
An entry is written by an earlier transaction, or by another program, so the record that reads it
is not to blame: the error is the framework's, and never goes to `on_error`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from eosframework.errors import (
    EntryDamaged,
    InstanceFenced,
    RunError,
    TransactionError,
    raised_by_functions,
)
from eosframework.serialization.serdes import Serde

T = TypeVar("T")

_OF_STORE = (
    "If the topology that wrote it declared other types, run that one. Otherwise produce the right "
    "entry, or one without a value (its key then begins anew), under the same key to the same "
    "partition of the changelog, and start the worker again; `eosframework reset` begins with "
    "empty stores"
)
_OF_TOPIC = (
    "Declare the types that the topic has, or produce the right row, or one without a value, under "
    "the same key to the same partition, and start the worker again"
)


@dataclass(frozen=True, slots=True)
class Holder:
    """The store or global table that entries belong to.

    Args:
        text: names it in messages.
        remedy: the next step if an entry cannot be decoded.
        topic: the topic that its entries come from; None: unknown.
        partition: of that topic; None: any.
    """

    text: str
    remedy: str
    topic: str | None = None
    partition: int | None = None

    def damaged(self, part: bytes, error: BaseException) -> BaseException:
        """Return the error to raise for bytes that cannot be decoded.

        Errors of the framework stay as they are: an unavailable schema registry damages nothing.

        Args:
            part: a key, a value, or a part of a value.
            error: the error of the decoder.
        """
        if isinstance(error, RunError | InstanceFenced | TransactionError):
            return error
        reason = " ".join(f"{type(error).__name__}: {_text_of(error)}".split())
        reason = reason if len(reason) <= 300 else reason[:297] + "..."
        origin = "" if self.partition is None else f" of {self.topic}[{self.partition}]"
        return EntryDamaged(
            f"{self.text}: an entry{origin} cannot be read: {reason}. No record is to blame, and "
            f"nothing was written for those that use the entry. {self.remedy}",
            holder=self.text,
            topic=self.topic,
            partition=self.partition,
            part=part,
        )

    def reading(self, decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
        """Return a decoder that raises `EntryDamaged`."""

        def read(data: bytes) -> T:
            try:
                return decode(data)
            except raised_by_functions() as error:
                raise self.damaged(data, error) from error

        return read


def of_store(name: str, topic: str | None = None, partition: int | None = None) -> Holder:
    """Return the holder of a store's entries.

    Args:
        name: of the store.
        topic: its changelog.
        partition: of the task.
    """
    return Holder(f"store {name!r}", _OF_STORE, topic, partition)


def of_global_table(topic: str) -> Holder:
    """Return the holder of a global table's rows."""
    return Holder(f"global table of topic {topic!r}", _OF_TOPIC, topic)


def _text_of(error: BaseException) -> str:
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except raised_by_functions():  # Of a user's own class.
        return "it has no text"


LAYOUT = 1
"""Number of the layout of entries; part of a store's identity."""

_HEAD = struct.Struct(">BQ")
_TIMESTAMP = struct.Struct(">xQ")
_IMMUTABLE = frozenset({"integer", "float", "string", "bytes"})

Entry = tuple[Any, int]
"""A value with its timestamp in milliseconds since the epoch; a plain tuple, because each record
makes one."""

Upgrade = Callable[[bytes, int], Any]
"""Converts the bytes of an older value, with its version, to a value of the current version."""


@dataclass(frozen=True, slots=True)
class EntryFormat:
    """Encodes and decodes entries.

    Args:
        store: its name, for messages.
        serde: of the values.
        version: version of the values' format, 1 to 255.
        upgrade: converts older values; None: an older one is an error.
        holder: the store for errors; None: known by its name alone.
    """

    store: str
    serde: Serde
    version: int = 1
    upgrade: Upgrade | None = None
    holder: Holder | None = None

    @property
    def held(self) -> Holder:
        """The store for errors of entries."""
        return self.holder or of_store(self.store)

    @property
    def is_immutable(self) -> bool:
        """True if values of this serde cannot be changed in place."""
        return self.serde.name in _IMMUTABLE

    def encode(self, entry: Entry) -> bytes:
        """Return the bytes of an entry."""
        value, timestamp = entry
        encode = self.serde.encode
        return _HEAD.pack(self.version, timestamp) + (encode(value) if encode else value)

    def framed(self, data: bytes, timestamp: int) -> bytes:
        """Return the bytes of an entry whose value is encoded already."""
        return _HEAD.pack(self.version, timestamp) + data

    def size(self, value: Any) -> int:
        """Return the approximate memory of an immutable value, in bytes."""
        return len(value) if isinstance(value, bytes | str) else 0

    def decode(self, data: bytes) -> Entry:
        """Return the entry; a value of an older version is converted to the current one.

        Raises:
            RunError: the entry cannot be decoded, or not be converted to the current version.
        """
        try:
            return self.read(data)
        except raised_by_functions() as error:
            raise self.held.damaged(data, error) from error

    def timestamp(self, data: bytes) -> int:
        """Return the timestamp in the bytes of an entry.

        Raises:
            EntryDamaged: the entry is too short.
        """
        try:
            return _TIMESTAMP.unpack_from(data)[0]
        except struct.error as error:
            raise self.held.damaged(data, error) from error

    def time_in(self, form: struct.Struct, key: bytes, at: int = 0) -> int:
        """Return the time in the key of an entry.

        Args:
            form: unpacks the time.
            key: the key.
            at: the position of the time.

        Raises:
            EntryDamaged: the key is too short.
        """
        try:
            return form.unpack_from(key, at)[0]
        except struct.error as error:
            raise self.held.damaged(key, error) from error

    def timed(self, data: bytes) -> list[Timed]:
        """Return the values with times in the value of an entry.

        Raises:
            EntryDamaged: they are cut.
        """
        return [(time, value) for time, value, _ in self.written(data)]

    def written(self, data: bytes) -> list[Written]:
        """Return the values with times, and times of writing, in the value of an entry.

        Raises:
            EntryDamaged: they are cut.
        """
        try:
            return [*_unpacked_written(data)]
        except struct.error as error:
            raise self.held.damaged(data, error) from error

    def read(self, data: bytes) -> Entry:
        """Return the entry, as `decode`; any exception means that it cannot be decoded."""
        version, timestamp = _HEAD.unpack_from(data)
        return self.decode_value(data[_HEAD.size :], version), timestamp

    def decode_value(self, raw: bytes, version: int) -> Any:
        """Return the value alone, converted to the current version.

        Raises:
            RunError: the value cannot be converted to the current version.
        """
        if version != self.version:
            return self._upgraded(raw, version)
        decode = self.serde.decode
        return decode(raw) if decode else raw

    def _upgraded(self, raw: bytes, version: int) -> Any:
        found = f"store {self.store!r} holds a value of version {version}"
        if version > self.version:
            raise RunError(
                f"{found}, and the topology declares version {self.version}: a newer topology "
                f"wrote it; run that one"
            )
        if self.upgrade is None:
            raise RunError(
                f"{found}, and the topology declares version {self.version} without a way to read "
                f"the older one; declare upgrade: module:function, which takes (bytes, version)"
            )
        return self.upgrade(raw, version)


_DELETED = 0xFFFFFFFF

_HAS_WRITTEN = 0x80000000
"""A bit of the length; no value is that long."""

_TIMED_HEAD = struct.Struct(">qI")
_WRITTEN = struct.Struct(">q")

Timed = tuple[int, bytes | None]
"""A time in milliseconds and a value; None: deleted."""

Written = tuple[int, bytes | None, int]
"""A time in milliseconds, a value, and the value's time of writing."""


def packed(time: int, value: bytes | None, written: int | None = None) -> bytes:
    """Return one value with its time.

    Args:
        time: in milliseconds.
        value: None: deleted.
        written: its time of writing; None, or not after `time`: equal to `time`.
    """
    if value is None:
        return _TIMED_HEAD.pack(time, _DELETED)
    if written is None or written <= time:
        return _TIMED_HEAD.pack(time, len(value)) + value
    return _TIMED_HEAD.pack(time, len(value) | _HAS_WRITTEN) + _WRITTEN.pack(written) + value


def packed_all(values: Iterable[Timed]) -> bytes:
    """Return the concatenation of several packed values."""
    return b"".join([packed(time, value) for time, value in values])


def unpacked(data: bytes) -> Iterator[Timed]:
    """Yield the values in their order.

    Raises:
        struct.error: the last one is cut.
    """
    for time, value, _ in _unpacked_written(data):
        yield time, value


def _unpacked_written(data: bytes) -> Iterator[Written]:
    """Yield the values in their order, each with its time of writing.

    Raises:
        struct.error: the last one is cut.
    """
    at, end = 0, len(data)
    while at < end:
        time, length = _TIMED_HEAD.unpack_from(data, at)
        at += _TIMED_HEAD.size
        if length == _DELETED:
            yield time, None, time
            continue
        written = time
        if length & _HAS_WRITTEN:
            length ^= _HAS_WRITTEN
            [written] = _WRITTEN.unpack_from(data, at)
            at += _WRITTEN.size
        if length > end - at:
            raise struct.error(f"a value of {length} bytes is cut after {end - at}")
        yield time, data[at : at + length], written
        at += length
