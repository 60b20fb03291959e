"""Queries of stores: decoded keys and values, independent of a store's layout on disk.

The package finds and decodes the entries of each kind of store, and parses keys from a command line
or a URL. It is given the store's content, which it only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from eosframework.engine.operators.entries import Entry
from eosframework.engine.operators.history import Chunks, VersionedRows
from eosframework.engine.operators.store_transaction import CommittedStore, open_transaction
from eosframework.engine.operators.stream_joins import interval_of, pieces
from eosframework.engine.operators.windows import (
    DATA,
    INDEX,
    MARK_KEY,
    START,
    Alarm,
    Span,
    SpansFormat,
)
from eosframework.errors import ConfigurationError
from eosframework.records import WindowResult, moment
from eosframework.serialization import references
from eosframework.serialization.key_bytes import key_encoder
from eosframework.serialization.serdes import Serde
from eosframework.serialization.strict_json import Unreadable, read, write_large
from eosframework.state.foreign_layouts import JoinedLayout, SubscribedLayout, SubscribersLayout
from eosframework.state.layout import Layout, Row, bounds
from eosframework.topology.graph.graph import (
    Aggregate,
    Answers,
    ForeignJoin,
    Graph,
    JoinSide,
    Processor,
    Store,
    StreamJoin,
    Subscribe,
    SubTopology,
    Table,
)
from eosframework.topology.graph.walk import nodes_of
from eosframework.topology.spec.keyed_spec import Window, WindowKind

_HEXADECIMAL = "0x"
"""Prefix of hexadecimal digits for bytes that are not text."""


def key_of(store: Store, text: str) -> bytes:
    """Return a key, encoded by the store's serde.

    Unless the keys are strings, `0x` and hexadecimal digits give the encoded bytes directly.

    Args:
        store: of the key.
        text: a string or a number as it is, any other key as JSON.

    Raises:
        ConfigurationError: the serde cannot encode the key.
    """
    serde = store.key
    try:
        if text.startswith(_HEXADECIMAL) and serde.name != "string":
            return bytes.fromhex(text[len(_HEXADECIMAL) :])
        return _encoded(serde, _parsers(serde)(text))
    except (ValueError, TypeError, OverflowError, Unreadable) as error:
        reason = _problems(error) if isinstance(error, ValidationError) else error
        raise ConfigurationError(
            f"{text!r} is not a key of store {store.name!r}, whose keys are {serde.name}: "
            f"{reason}; write it as JSON, or its bytes as 0x and hexadecimal digits"
        ) from error


def _problems(error: ValidationError) -> str:
    """Return the problems of a model in one line, each with its field."""
    found = [(".".join(map(str, detail["loc"])), detail["msg"]) for detail in error.errors()]
    return "; ".join(f"{field}: {message}" if field else message for field, message in found)


def encoded_key(store: Store, key: Any) -> bytes:
    """Return a key, encoded by the store's serde.

    Raises:
        ConfigurationError: the serde cannot encode the key.
    """
    try:
        encode = key_encoder(store.key)
        if encode is not None:
            return encode(key)
        if isinstance(key, bytes):
            return key
        reason = f"expected bytes, got {type(key).__name__}"
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        reason = str(error)
    raise ConfigurationError(
        f"{key!r} is not a key of store {store.name!r}, whose keys are {store.key.name}: {reason}"
    )


def key_text(store: Store, key: Any) -> str:
    """Return a key as text that `key_of` accepts."""
    shown = plain(key) if isinstance(key, bytes) else key
    return shown if isinstance(shown, str) else as_json(shown).decode()


def as_json(content: Any) -> bytes:
    """Return JSON; bytes that are not UTF-8 become `0x` and hexadecimal digits."""
    try:
        return orjson.dumps(content, plain, orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        return write_large(content, error, plain, orjson.OPT_NON_STR_KEYS)


def plain(value: Any) -> Any:
    """Return the JSON representation of a value of another type."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return _HEXADECIMAL + value.hex()
    return str(value)


def _parsers(serde: Serde) -> Callable[[str], Any]:
    if serde.model is not None:
        return serde.model.model_validate_json
    parsers: dict[str, Callable[[str], Any]] = {
        "bytes": str.encode,
        "integer": int,
        "float": float,
        "json": read,
        "window": read,
    }
    return parsers.get(serde.name, str)


def _encoded(serde: Serde, key: Any) -> bytes:
    encode = key_encoder(serde)
    return key if encode is None else encode(key)


RowT = TypeVar("RowT")


class BoundedRows(Generic[RowT]):
    """An iterable of the first rows, which ends at a number of rows or of bytes.

    Args:
        rows: anything that JSON can show.
        most: number of rows.
        most_bytes: of all rows as JSON. The last row may exceed them, so that each row can be read.
    """

    def __init__(self, rows: Iterable[RowT], most: int, most_bytes: int) -> None:
        self._rows = rows
        self._most = most
        self._most_bytes = most_bytes
        self.more = False
        """After the iteration: there are further rows."""

    def __iter__(self) -> Iterator[tuple[RowT, bytes]]:
        """Yield each row, and its JSON."""
        size = 0
        for count, row in enumerate(self._rows):
            if count == self._most or size >= self._most_bytes:
                self.more = True
                return
            encoded = as_json(row)
            size += len(encoded)
            yield row, encoded


_SIDES = {"left": DATA + b"l", "right": DATA + b"r"}
_HISTORY_KEY = b"k"


class _PlainLayout(Layout):
    """One value for each key, in the order of the keys."""

    has_one_row = True

    def get(self, content: CommittedStore, key: bytes) -> Iterator[Row]:
        """Yield the row of a key."""
        data = content.get(key)
        if data is not None:
            yield self._row(key, *self._form.decode(data))

    def scan(self, content: CommittedStore, first: bytes, last: bytes | None) -> Iterator[Row]:
        """Yield rows in the order of their keys."""
        for key, data in content.scan(first, last):
            yield self._row(key, *self._form.decode(data))


class _WindowsLayout(Layout):
    """Tumbling and hopping windows, by start, then by key."""

    def __init__(self, store: Store, window: Window) -> None:
        super().__init__(store)
        self._windows = window

    def get(self, content: CommittedStore, key: bytes) -> Iterator[Row]:
        """Yield the windows of a key, the earliest first."""
        for start in _starts(content):
            if (data := content.get(START.pack(start) + key)) is not None:
                yield self._window(start, key, data)

    def scan(self, content: CommittedStore, first: bytes, last: bytes | None) -> Iterator[Row]:
        """Yield windows by start, then by key."""
        for start in _starts(content):
            low, high = bounds(START.pack(start), first, last)
            for name, data in content.scan(low, high):
                yield self._window(start, name[START.size :], data)

    def _window(self, start: int, key: bytes, data: bytes) -> Row:
        value, timestamp = self._form.decode(data)
        return self._row(key, WindowResult(start, self._windows.end_of(start), value), timestamp)


class _SpansLayout(Layout):
    """Sessions, sliding windows, windows of records: a key's entry contains all of its windows."""

    def get(self, content: CommittedStore, key: bytes) -> Iterator[Row]:
        """Yield the windows of a key, the earliest first."""
        data = content.get(DATA + key)
        if data is not None:
            yield from self._windows(key, data)

    def scan(self, content: CommittedStore, first: bytes, last: bytes | None) -> Iterator[Row]:
        """Yield windows in the order of their keys."""
        for name, data in content.scan(*bounds(DATA, first, last)):
            yield from self._windows(name[len(DATA) :], data)

    def _windows(self, key: bytes, data: bytes) -> Iterator[Row]:
        form = self._form
        assert isinstance(form, SpansFormat), "format_of gives it to these kinds"
        spans: list[Span] = form.decode(data)[0]
        for span in spans:
            value = form.value_of(span)
            yield self._row(key, WindowResult(span.start, span.end, value), span.timestamp)


class _SeenLayout(Layout):
    """Records seen by a deduplication; the value is the result of its `by` function, if any."""

    def __init__(self, store: Store, *, has_by: bool) -> None:
        super().__init__(store)
        self._has_by = has_by
        self._shared = self._form.held.reading(read)

    def get(self, content: CommittedStore, key: bytes) -> Iterator[Row]:
        """Yield the seen records of a key, the earliest first."""
        for start in _starts(content):
            yield from self._seen(content, start, key)

    def scan(self, content: CommittedStore, first: bytes, last: bytes | None) -> Iterator[Row]:
        """Yield seen records by slices of time."""
        for name, data in content.scan(b"", MARK_KEY):
            key, shared = self._form.held.reading(self._parts)(name[START.size :])
            if key >= first and (last is None or key < last):
                yield self._row(key, shared, self._form.decode(data)[1])

    def _seen(self, content: CommittedStore, start: int, key: bytes) -> Iterator[Row]:
        if not self._has_by:
            data = content.get(START.pack(start) + key)
            if data is not None:
                yield self._row(key, None, self._form.decode(data)[1])
            return
        prefix = START.pack(start) + START.pack(len(key)) + key
        for name, data in content.scan(prefix, prefix + MARK_KEY):
            yield self._row(key, self._shared(name[len(prefix) :]), self._form.decode(data)[1])

    def _parts(self, identity: bytes) -> tuple[bytes, Any]:
        if not self._has_by:
            return identity, None
        end = START.size + START.unpack_from(identity)[0]
        return identity[START.size : end], read(identity[end:])


class HistoryLayout(Layout):
    """Tables with history, of which the current rows are returned."""

    has_one_row = True

    def __init__(self, store: Store, row: Serde, history_ms: int) -> None:
        super().__init__(store)
        self._serde, self._history_ms = row, history_ms

    def get(self, content: CommittedStore, key: bytes) -> Iterator[Row]:
        """Yield the current row of a key."""
        if (entry := self._history(content).row(key)) is not None:
            yield self._row(key, *entry)

    def scan(self, content: CommittedStore, first: bytes, last: bytes | None) -> Iterator[Row]:
        """Yield the current rows in the order of their keys."""
        history = self._history(content)
        for name, _ in content.scan(*bounds(_HISTORY_KEY, first, last)):
            key = name[len(_HISTORY_KEY) :]
            if (entry := history.row(key)) is not None:
                yield self._row(key, *entry)

    def _history(self, content: CommittedStore) -> VersionedRows:
        session = open_transaction(self._form, content, [])
        return VersionedRows(Chunks(session), self._serde, self._history_ms, Alarm())


class WaitingLayout(Layout):
    """Records of a stream-stream join that wait for matches; the value contains their side."""

    def __init__(self, join: StreamJoin) -> None:
        super().__init__(join.store)
        self._key, self._slice_ms = join.key, interval_of(join).slice_ms
        self._values = dict(zip(_SIDES, join.values, strict=True))

    def get(self, content: CommittedStore, key: bytes) -> Iterator[Row]:
        """Yield the records of a key, those of the left side first."""
        for side, prefix in _SIDES.items():
            for start in _starts(content, prefix):
                yield from self._records(content, side, start, key)

    def scan(self, content: CommittedStore, first: bytes, last: bytes | None) -> Iterator[Row]:
        """Yield the records by side, slice of time and key."""
        for side, prefix in _SIDES.items():
            for start in _starts(content, prefix):
                slice_ = prefix + START.pack(start)
                for name, _ in content.scan(*bounds(slice_, first, last)):
                    yield from self._records(content, side, start, name[len(slice_) :])

    def _records(
        self, content: CommittedStore, side: str, slice_: int, key: bytes
    ) -> Iterator[Row]:
        def get(name: bytes) -> Entry | None:
            data = content.get(name)
            return None if data is None else self._form.decode(data)

        times = slice_ * self._slice_ms, (slice_ + 1) * self._slice_ms - 1
        number = list(_SIDES).index(side)
        for data in pieces(get, number, slice_, key, self._slice_ms, times):
            for time, value in self._form.timed(data):
                shown = None if value is None else self._decoded(self._values[side], value)
                yield Row(self._decoded(self._key, key), {"side": side, "value": shown}, time)


class _TimersLayout(Layout):
    """The timers of a `process` step; the value has the event time at which one fires."""

    def get(self, content: CommittedStore, key: bytes) -> Iterator[Row]:
        """Yield the timers of a key, the earliest first."""
        return (row for name, row in self._timers(content) if name == key)

    def scan(self, content: CommittedStore, first: bytes, last: bytes | None) -> Iterator[Row]:
        """Yield timers in the order in which they fire."""
        for name, row in self._timers(content):
            if name >= first and (last is None or name < last):
                yield row

    def _timers(self, content: CommittedStore) -> Iterator[tuple[bytes, Row]]:
        for name, _ in content.scan(INDEX, DATA):
            at: int = START.unpack_from(name, len(INDEX))[0]
            key = name[len(INDEX) + START.size :]
            yield key, self._row(key, {"fires_at": moment(at)}, at)


def layout_of(part: SubTopology, store: Store) -> Layout:
    """Return the layout of a store.

    Args:
        part: the store's sub-topology.
        store: one of `part.stores`.
    """
    for node in nodes_of(part):
        match node:
            case Aggregate() if node.store is store:
                return _layout_of_aggregate(node)
            case Table() if node.store is store and node.history_ms is not None:
                return HistoryLayout(store, node.row, node.history_ms)
            case Processor() if store in _timers_of(node):
                return _TimersLayout(store)
            case JoinSide(join=StreamJoin() as join) if join.store is store:
                return WaitingLayout(join)
            case Subscribe() if node.store is store:
                return SubscribedLayout(node)
            case JoinSide(join=Answers() as join) if join.store is store:
                return SubscribersLayout(join)
            case JoinSide(join=ForeignJoin() as join) if join.store is store:
                return JoinedLayout(join)
            case _:
                pass
    return _PlainLayout(store)


def _timers_of(node: Processor) -> list[Store]:
    by_wall_clock = [clock.store for clock in node.wall_clock if clock.every is None]
    return [*by_wall_clock, *([] if node.timers is None else [node.timers])]


def _layout_of_aggregate(node: Aggregate) -> Layout:
    window = node.store.window
    if window is None:
        return _PlainLayout(node.store)
    match window.kind:
        case WindowKind.TUMBLING | WindowKind.HOPPING:
            return _WindowsLayout(node.store, window)
        case WindowKind.SLIDING | WindowKind.SESSION | WindowKind.RECORDS:
            return _SpansLayout(node.store)
        case WindowKind.LAST:
            return _SeenLayout(node.store, has_by="by" in node.functions)


def _starts(content: CommittedStore, prefix: bytes = b"") -> Iterator[int]:
    """Yield the starts that have entries, seeking from each one to the next."""
    first, end = prefix, prefix + MARK_KEY
    while (found := next(iter(content.scan(first, end)), None)) is not None:
        start: int = START.unpack_from(found[0], len(prefix))[0]
        yield start
        first = prefix + START.pack(start + 1)


@dataclass(frozen=True, slots=True)
class QueriedStore:
    """A store with the layout of its entries.

    Args:
        sub_topology: name of its sub-topology; each of its tasks has a part of the store.
    """

    sub_topology: str
    store: Store
    layout: Layout

    @property
    def name(self) -> str:
        """The store's name."""
        return self.store.name


def queried_stores(graph: Graph) -> dict[str, QueriedStore]:
    """Return all stores of an application by name."""
    return {
        store.name: QueriedStore(part.name, store, layout_of(part, store))
        for part in graph.sub_topologies
        for store in part.stores
    }


def queried_store(graph: Graph, name: str) -> QueriedStore:
    """Return a store of an application.

    Raises:
        ConfigurationError: the application has no such store.
    """
    stores = queried_stores(graph)
    if name not in stores:
        known = ", ".join(stores) or "none"
        raise ConfigurationError(
            f"application {graph.application!r} has no store {name!r}; its stores are {known}"
            f"{references.closest(name, stores)}"
        )
    return stores[name]
