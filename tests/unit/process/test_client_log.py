"""Of librdkafka's clients that fail to connect to one broker, one event is logged."""

from __future__ import annotations

import logging

from eosframework.process.client_log import (
    CLIENT_LOGGER,
    COORDINATOR,
    FailedConnection,
    Repetitions,
    name_failed_connection,
)

REFUSED = "Connect to ipv4#127.0.0.1:9092 failed: Connection refused"


def failed(client: int, place: str) -> logging.LogRecord:
    text = (
        f"FAIL [rdkafka#producer-{client}] [thrd:{place}]: {place}: {REFUSED} "
        f"(after 0ms in state CONNECT)"
    )
    return logging.LogRecord(CLIENT_LOGGER, logging.ERROR, "", 0, text, None, None)


def test_fifty_clients_of_one_broker_are_one_event_and_another_broker_is_another() -> None:
    limited = Repetitions()
    passed = [
        limited.filter(failed(n, f"kafka:9092/{'bootstrap' if n % 2 else 7}")) for n in range(50)
    ]
    assert passed == [True] + [False] * 49
    assert limited.filter(failed(1, "kafka-2:9092/8"))


def test_the_connections_of_many_producers_to_their_coordinator_are_of_the_same_kind() -> None:
    limited = Repetitions()
    assert limited.filter(failed(1, "kafka:9092/7"))
    text = (
        f"FAIL [rdkafka#producer-2] [thrd:TxnCoordinator]: TxnCoordinator: kafka:9092: {REFUSED} "
        f"(after 1012ms in state CONNECT)"
    )
    record = logging.LogRecord(CLIENT_LOGGER, logging.ERROR, "", 0, text, None, None)
    assert not limited.filter(record)
    assert FailedConnection.parse(text) == FailedConnection("kafka:9092", COORDINATOR, REFUSED)


def test_a_failed_connection_is_an_event_with_fields() -> None:
    event = {"event": failed(3, "kafka:9092/bootstrap").getMessage(), "logger": CLIENT_LOGGER}
    named = name_failed_connection(None, "", event)
    assert (named["event"], named["broker"], named["reason"]) == (
        "connection_failed",
        "kafka:9092",
        REFUSED,
    )


def test_another_record_of_librdkafka_stays_as_it_is() -> None:
    event = {"event": "MAXPOLL [c#consumer-1] exceeded", "logger": CLIENT_LOGGER}
    assert name_failed_connection(None, "", dict(event)) == event
