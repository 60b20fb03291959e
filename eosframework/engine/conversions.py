"""Checked conversions of the results of user functions to the parts of a record.

The generated code calls these, so that the producer never gets a value that it would reject after
the record was processed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, cast

from eosframework.errors import SchemaRegistryUnavailable, SchemasRefused, raised_by_functions
from eosframework.records import LATEST_MS, TOPIC_NAME, Headers, Record, as_milliseconds
from eosframework.topology.graph.graph import Source
from eosframework.transactions.ports import Message
from eosframework.txnid import reserved_topic

KNOWN_TOPICS = 10_000
"""The most topic names that are cached as checked."""


def as_bytes(value: Any) -> bytes | None:
    """Return `value`, which must be bytes or None for the serde `bytes`."""
    if value is None or value.__class__ is bytes:
        return value
    raise TypeError(
        f"the output's serde is bytes, but the value is {type(value).__name__} "
        f"({_short(value)}); give the sink a serde, for example value: json"
    )


class TopicChoice:
    """Checks the topics that functions of sinks return; caches the names that passed.

    Args:
        is_missing: returns whether a topic does not exist; None: cannot be checked.
    """

    def __init__(self, is_missing: Callable[[str], bool] | None = None) -> None:
        self._is_missing = is_missing
        self._known: set[str] = set()

    def __call__(self, name: Any) -> str:
        """Return the topic that a sink's function chose.

        Raises:
            TypeError: the result is not a string.
            ValueError: the name is invalid, reserved or missing on the cluster.
        """
        if name.__class__ is not str or not name:
            raise TypeError(
                f"a sink's function returns a topic's name, not {type(name).__name__} "
                f"({_short(name)})"
            )
        if name not in self._known:
            self._refuse(name)
            if len(self._known) >= KNOWN_TOPICS:
                self._known.clear()
            self._known.add(name)
        return name

    def _refuse(self, name: str) -> None:
        if not TOPIC_NAME.fullmatch(name) or name in (".", ".."):
            raise ValueError(
                f"a sink's function chose {_short(name)}, which cannot be a topic; Kafka allows 1 "
                f"to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'"
            )
        if reason := reserved_topic(name):
            raise ValueError(f"a sink's function chose a reserved topic: {reason}; choose another")
        if self._is_missing is not None and self._is_missing(name):
            raise ValueError(
                f"a sink's function chose topic {name!r}, which does not exist; create it, or "
                f"choose another one"
            )


def refuse_ahead(time_ms: int, own_ms: int, ahead_ms: int) -> NoReturn:
    """Raise because an event time lies too far ahead.

    Args:
        time_ms: the event time returned by the function.
        own_ms: the record's own Kafka timestamp.
        ahead_ms: the largest allowed difference of both.

    Raises:
        ValueError: always.
    """
    raise ValueError(
        f"the function gave the event time {moment(time_ms)}, and the record's own timestamp is "
        f"{moment(own_ms)}; worker.max_event_time_ahead allows {ahead_ms / 1000:g} s between "
        f"them. Correct the function or the record, or raise the setting"
    )


def moment(time_ms: int) -> str:
    """Return a time as milliseconds and, if it is a date, in ISO form."""
    if not 0 <= time_ms <= LATEST_MS:
        return str(time_ms)
    moment = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f"{time_ms} ({moment})"


def unpack_record(
    result: Any, timestamp: int, headers: Headers | None
) -> tuple[Any, Any, int, Headers | None]:
    """Return key, value, timestamp and headers of a result of map, flat_map or process.

    Args:
        result: a Record, or a `(key, value)` pair that keeps the input's timestamp and headers.
        timestamp: the input's event time in milliseconds.
        headers: the input's headers.
    """
    if result.__class__ is Record:
        record = cast(Record, result)
        if record.headers is not headers:
            return record.key, record.value, as_milliseconds(record.timestamp), _checked(record)
        return record.key, record.value, as_milliseconds(record.timestamp), headers
    if isinstance(result, tuple) and len(pair := cast("tuple[Any, ...]", result)) == 2:
        return pair[0], pair[1], timestamp, headers
    raise TypeError(
        f"map, flat_map and process give a Record or a (key, value) pair, "
        f"not {cast(Any, result).__class__.__name__} ({_short(cast(Any, result))})"
    )


def _checked(record: Record) -> Headers | None:
    headers = list(cast("Sequence[Any]", record.headers or ()))
    for header in headers:
        match header:
            case (str(), bytes() | None):
                pass
            case _:
                raise TypeError(f"a header is a (str, bytes) pair, not {_short(header)}")
    return headers or None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def event_time(source: Source, message: Message) -> int:
    """Return a message's event time, or its own timestamp where it has none.

    Decoding errors, failing functions and times too far ahead are reported when the record is run.

    Raises:
        SchemaRegistryUnavailable: the schema registry is unavailable.
        SchemasRefused: the schema registry refuses the schema.
    """
    own = message.timestamp()[1]
    if source.timestamp is None:
        return own
    try:
        value: Any = message.value()
        if value is not None and source.value.decode is not None:
            value = source.value.decode(value)
        if value is not None:
            time_ms = as_milliseconds(source.timestamp.call(value))
            if source.ahead_ms is None or time_ms - own <= source.ahead_ms:
                return time_ms
    except (SchemaRegistryUnavailable, SchemasRefused):
        raise
    except raised_by_functions():
        pass
    return own
