"""What a user's function returned, as what a record needs; a wrong type is named at once.

The generated functions of `compile` call these, so the producer never meets a value that it
would refuse after the record was done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from eosframework.records import Headers, Record, as_milliseconds


def as_bytes(value: Any) -> bytes | None:
    """Return `value`, which has to be bytes or None where the serde is `bytes`."""
    if value is None or value.__class__ is bytes:
        return value
    raise TypeError(
        f"the output's serde is bytes, but the value is {type(value).__name__} "
        f"({_short(value)}); give the sink a serde, for example value: json"
    )


def as_topic(name: Any) -> str:
    """Return the topic that a sink's function chose."""
    if name.__class__ is str and name:
        return name
    raise TypeError(
        f"a sink's function returns a topic's name, not {type(name).__name__} ({_short(name)})"
    )


def unpack_record(
    result: Any, timestamp: int, headers: Headers | None
) -> tuple[Any, Any, int, Headers | None]:
    """Return key, value, timestamp and headers of what map, flat_map or process returned.

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
