"""What `publish` hands to whatever connection it is given."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.errors import ConfigurationError
from eosframework.postgres.outbox import publish, publish_async
from eosframework.postgres.outbox.publication import decode_headers


class Recorder:
    """A connection, cursor or session that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def _note(self, sql: str, parameters: tuple[Any, ...]) -> None:
        self.asked.append((sql, parameters))


class PsycopgConnection(Recorder):
    execute = Recorder._note


class SqlalchemyConnection(Recorder):
    exec_driver_sql = Recorder._note


class SqlalchemySession(Recorder):
    def connection(self) -> SqlalchemyConnection:
        connection = SqlalchemyConnection()
        connection.asked = self.asked
        return connection


class AsyncConnection:
    async def execute(self, sql: str, parameters: tuple[Any, ...]) -> None:
        raise AssertionError("never awaited")


class AsyncSession:
    async def connection(self) -> AsyncConnection:
        raise AssertionError("never awaited")


HEADERS = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), st.none() | st.binary(max_size=8))
)


@pytest.mark.parametrize("kind", [PsycopgConnection, SqlalchemyConnection, SqlalchemySession])
def test_every_kind_of_connection_executes_the_same_statement(kind: type[Recorder]) -> None:
    connection = kind()
    publish(connection, "orders", "k", b"v")
    sql, parameters = connection.asked[0]
    assert "eosframework.publish" in sql
    assert parameters == ("orders", b"k", b"v", None)


@given(HEADERS)
def test_headers_come_back_as_they_were_given(headers: list[tuple[str, bytes | None]]) -> None:
    connection = PsycopgConnection()
    publish(connection, "orders", None, None, headers)
    [(_, parameters)] = connection.asked
    assert decode_headers(orjson.loads(parameters[3] or "null")) == headers


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (None, []),
        ({"a": "text", "b": None}, [("a", b"text"), ("b", None)]),
        ([["a", {"base64": "AAE="}]], [("a", b"\0\1")]),
        ({"a": 7, "b": {"c": [1]}}, [("a", b"7"), ("b", b'{"c":[1]}')]),
    ],
)
def test_headers_written_in_sql_are_understood(stored: Any, expected: Any) -> None:
    assert decode_headers(stored) == expected


@pytest.mark.parametrize("topic", ["", ".", "..", "with space", "x" * 250, "ü"])
def test_a_topic_that_cannot_exist_is_refused_in_the_users_own_code(topic: str) -> None:
    with pytest.raises(ConfigurationError, match="not the name of a Kafka topic"):
        publish(PsycopgConnection(), topic, None, None)


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(ConfigurationError, match="value is of type dict"):
        publish(PsycopgConnection(), "orders", None, {"a": 1})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", [AsyncConnection, AsyncSession])
def test_an_asynchronous_connection_is_told_how(kind: type[Any]) -> None:
    with pytest.raises(
        ConfigurationError, match=r"await eosframework\.postgres\.outbox\.publish_async"
    ):
        publish(kind(), "orders", None, None)


@pytest.mark.parametrize("kind", [PsycopgConnection, SqlalchemySession])
def test_a_blocking_connection_is_told_how(kind: type[Recorder]) -> None:
    connection = kind()
    with pytest.raises(
        ConfigurationError, match=r"eosframework.postgres.outbox.publish\(connection"
    ):
        publish_async(connection, "orders", None, None).send(None)
    assert connection.asked == []


def test_anything_else_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a int cannot be published on"):
        publish(7, "orders", None, None)


def test_a_header_s_number_may_have_any_number_of_digits() -> None:
    assert decode_headers({"a": [10**300]}) == [("a", b"[%d]" % 10**300)]
