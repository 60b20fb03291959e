"""Hostile messages through a real relay: what can be sent arrives, and nothing waits behind one."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.hostile.outbox import MESSAGES
from tests.support.applications.outbox import OutboxWorld, entry
from tests.support.applications.pipeline import read_committed
from tests.support.processes.waiting import wait_until

FUNCTIONS = {"table": "publish", "slot": "emit"}


def put(connection: psycopg.Connection[Any], kind: str, arguments: str) -> None:
    """Publish a message; write it as the owner could where `publish` or `emit` refuses it."""
    try:
        connection.execute(f"SELECT eosframework.{FUNCTIONS[kind]}({arguments})".encode())
        return
    except psycopg.DataError:
        columns = ("topic", "key", "value", "headers")[: len(arguments.split(", ", 3))]
    named = ", ".join(columns)
    row = f"INSERT INTO eosframework.outbox ({named}) VALUES ({arguments})"
    if kind == "table":
        connection.execute(row.encode())
        return
    # The types are those of the table's columns; the row itself is not kept.
    with connection.transaction(force_rollback=True):
        written = connection.execute(f"{row} RETURNING topic, key, value, headers".encode())
        message = written.fetchone()
    assert message is not None
    connection.execute(
        "SELECT pg_logical_emit_message(true, 'eosframework.outbox', %s::bytea)", [entry(*message)]
    )


@pytest.mark.parametrize("kind", ["table", "slot"])
def test_hostile_messages_hold_up_no_other(
    make_outbox: Callable[..., OutboxWorld], kind: str
) -> None:
    outbox = make_outbox(kind=kind)
    if kind == "slot":
        outbox.finish()  # makes the slot: it has what is written from then on
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        for message in MESSAGES:
            outbox.publish_on(connection, "healthy")
            arguments = message.arguments.replace("TOPIC", outbox.topic)
            put(connection, kind, arguments)
        outbox.publish_on(connection, "healthy")
    relay = outbox.start_relay()
    expected = len(MESSAGES) + 1 + sum(message.arrives for message in MESSAGES)

    def all_arrived() -> bool:
        assert relay.process.poll() is None, relay.log[-4000:]
        return len(read_committed(outbox.bootstrap_servers, outbox.topic)) >= expected

    wait_until(all_arrived, f"{expected} messages")
    arrived = read_committed(outbox.bootstrap_servers, outbox.topic)
    healthy = [
        (message.value() or b"").decode() for message in arrived if message.key() == b"healthy"
    ]
    assert healthy == outbox.committed["healthy"]
    assert len(arrived) == expected
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0, relay.log[-4000:]
