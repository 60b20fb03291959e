"""Publishing inside the user's own database transaction.

The message becomes visible to the relay when that transaction commits, and never if it does not.
The same functions can be called in SQL, from any language:

    SELECT eosframework.publish('orders', 'customer-1'::bytea, '{"total": 7}'::bytea)
"""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import orjson

from eosframework.errors import ConfigurationError
from eosframework.txnid import reserved_topic

HeaderValue = bytes | str | None
Headers = Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]

_DOLLARS = ("$1", "$2", "$3", "$4")
_FORMATS = ("%s", "%s", "%s", "%s")


def publish(
    connection: Any,
    topic: str,
    key: bytes | str | None,
    value: bytes | str | None,
    headers: Headers | None = None,
) -> None:
    """Send a message to Kafka if, and only if, the connection's current transaction commits.

    Messages of one key keep the order in which they were published. Concurrent transactions that
    publish the same key are ordered by these calls; lock the key's row first if the order of their
    other effects must be the same.

    Args:
        connection: a psycopg connection or cursor, a SQLAlchemy session or connection, or any
            DB-API cursor for PostgreSQL whose parameters are written `%s`. Nothing is committed.
        topic: a Kafka topic.
        key: determines the partition, as with Java's producer; None: any partition.
        value: None: a tombstone.
        headers: by name, or pairs where a name occurs more than once.

    Raises:
        ConfigurationError: the topic's name is not valid or is reserved, or the connection cannot
            be used.
    """
    _execute(connection, "publish", _parameters(topic, key, value, headers))


def emit(
    connection: Any,
    topic: str,
    key: bytes | str | None,
    value: bytes | str | None,
    headers: Headers | None = None,
) -> None:
    """Publish through the write-ahead log instead of the table: see `outbox.source=slot`.

    Messages are sent in the order in which their transactions commit. The arguments are those of
    `publish`.

    Raises:
        ConfigurationError: as `publish`.
    """
    _execute(connection, "emit", _parameters(topic, key, value, headers))


async def publish_async(
    connection: Any,
    topic: str,
    key: bytes | str | None,
    value: bytes | str | None,
    headers: Headers | None = None,
) -> None:
    """Publish on an asynchronous connection, as `publish` does on a blocking one.

    Args:
        connection: a psycopg AsyncConnection or AsyncCursor, a SQLAlchemy AsyncSession or
            AsyncConnection, or an asyncpg connection in a transaction. Nothing is committed.
        topic: a Kafka topic.
        key: as for `publish`.
        value: as for `publish`.
        headers: as for `publish`.

    Raises:
        ConfigurationError: as `publish`.
    """
    await _execute_async(connection, "publish", _parameters(topic, key, value, headers))


async def emit_async(
    connection: Any,
    topic: str,
    key: bytes | str | None,
    value: bytes | str | None,
    headers: Headers | None = None,
) -> None:
    """Emit on an asynchronous connection, as `emit` does; the arguments are `publish_async`'s.

    Raises:
        ConfigurationError: as `publish`.
    """
    await _execute_async(connection, "emit", _parameters(topic, key, value, headers))


def decode_headers(stored: Any) -> list[tuple[str, bytes | None]]:
    """Return the Kafka headers of JSON from the database: an object, or a list of pairs.

    A string becomes its UTF-8 bytes, null becomes None, and `{"base64": …}` the decoded bytes. SQL
    callers may write any other JSON, which becomes its own text.
    """
    if not stored:
        return []
    return [(str(name), _decoded(value)) for name, value in _pairs(stored)]


def headers_of(text: bytes) -> list[tuple[str, bytes | None]]:
    """Return the Kafka headers of JSON text from the database.

    Raises:
        ValueError: the text is not valid JSON, or the JSON does not contain headers.
    """
    try:
        return checked(decode_headers(json.loads(text)))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"expected an object or a list of pairs: {error}") from error


def checked(headers: list[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Return headers after checking that Kafka accepts their names.

    Raises:
        ValueError: a name cannot be encoded as UTF-8, or contains a zero byte.
    """
    for name, _ in headers:
        name.encode()
        if "\0" in name:
            raise ValueError(f"the name {name[:100]!r} holds a zero byte")
    return headers


def encode_headers(headers: Headers) -> str | None:
    """Return headers as JSON text for the database; values that are UTF-8 become strings."""
    if not headers:
        return None
    return orjson.dumps([[name, _legible(value)] for name, value in _pairs(headers)]).decode()


def _parameters(topic: str, key: Any, value: Any, headers: Headers | None) -> tuple[Any, ...]:
    if not topic or len(topic) > 249 or set(topic) - _TOPIC_CHARACTERS or topic in (".", ".."):
        raise ConfigurationError(
            f"topic {topic!r} is not the name of a Kafka topic; use letters, digits, '.', '_' and "
            f"'-', at most 249 of them"
        )
    if reason := reserved_topic(topic):
        raise ConfigurationError(f"{reason}; publish to another topic")
    return topic, _bytes("key", key), _bytes("value", value), _encoded(headers)


_TOPIC_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def _bytes(what: str, given: Any) -> bytes | None:
    match given:
        case None | bytes():
            return given
        case str():
            return given.encode()
        case bytearray() | memoryview():
            return bytes(cast("Any", given))
        case _:
            pass
    raise ConfigurationError(
        f"the message's {what} is of type {type(given).__name__}; give bytes, text or None"
    )


def _encoded(headers: Headers | None) -> str | None:
    if not headers:
        return None
    return orjson.dumps([[name, _json_of(value)] for name, value in _pairs(headers)]).decode()


def _pairs(headers: Any) -> Iterable[tuple[str, Any]]:
    return cast("Any", headers).items() if isinstance(headers, Mapping) else headers


def _json_of(value: HeaderValue) -> Any:
    """Return JSON that PostgreSQL accepts: base64 for bytes and for text with U+0000."""
    if isinstance(value, str) and "\0" in value:
        value = value.encode()
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value


def _decoded(value: Any) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(text)} if len(value) == 1:
            # PostgreSQL's encode() breaks its lines.
            return base64.b64decode("".join(text.split()), validate=True)
        case _:
            return _json_bytes(value)


def _json_bytes(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # An integer of more than 64 bits.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _legible(value: HeaderValue) -> Any:
    if isinstance(value, bytes):
        try:
            return _json_of(value.decode())
        except UnicodeDecodeError:
            pass
    return _json_of(value)


def _execute(connection: Any, function: str, parameters: tuple[Any, ...]) -> None:
    """Execute on a psycopg, SQLAlchemy or DB-API connection, without importing any of them."""
    if _is_session(connection):
        connection = _blocking(connection.connection(), function)
    execute = getattr(connection, "exec_driver_sql", None) or getattr(connection, "execute", None)
    if execute is None:
        raise _unknown(connection, "a psycopg connection or cursor, or a SQLAlchemy session")
    _blocking(execute(_call(function, _FORMATS), parameters), function)


async def _execute_async(connection: Any, function: str, parameters: tuple[Any, ...]) -> None:
    """Execute on an asynchronous psycopg, SQLAlchemy or asyncpg connection, likewise."""
    if _is_of("asyncpg", connection) and hasattr(connection, "execute"):
        await connection.execute(_call(function, _DOLLARS), *parameters)
        return
    if _is_session(connection):
        connection = await _asynchronous(connection.connection, function)()
    if hasattr(connection, "exec_driver_sql"):
        has_dollars = connection.dialect.paramstyle == "numeric_dollar"
        sql = _call(function, _DOLLARS if has_dollars else _FORMATS)
        await _asynchronous(connection.exec_driver_sql, function)(sql, parameters)
    elif hasattr(connection, "execute"):
        await _asynchronous(connection.execute, function)(_call(function, _FORMATS), parameters)
    else:
        raise _unknown(connection, "a connection of psycopg, SQLAlchemy or asyncpg")


def _call(function: str, places: tuple[str, ...]) -> str:
    topic, key, value, headers = places
    # The cast to text first: a driver may have a codec of the user's for jsonb.
    return f"SELECT eosframework.{function}({topic}, {key}, {value}, {headers}::text::jsonb)"


def _is_session(connection: Any) -> bool:
    is_connection = hasattr(connection, "exec_driver_sql")
    return not is_connection and callable(getattr(connection, "connection", None))


def _is_of(package: str, connection: Any) -> bool:
    return type(connection).__module__.partition(".")[0] == package


def _blocking(answer: Any, function: str) -> Any:
    if not inspect.isawaitable(answer):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
    raise ConfigurationError(
        f"{function} needs a blocking connection; with asyncio write: "
        f"await eosframework.postgres.outbox.{function}_async(connection, topic, key, value)"
    )


def _asynchronous(method: Callable[..., Any], function: str) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):
        return method
    raise ConfigurationError(
        f"{function}_async needs an asynchronous connection; with a blocking one write: "
        f"eosframework.postgres.outbox.{function}(connection, topic, key, value)"
    )


def _unknown(connection: Any, expected: str) -> ConfigurationError:
    return ConfigurationError(
        f"a {type(connection).__name__} cannot be published on; give {expected}"
    )
