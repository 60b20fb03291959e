"""Signs of stragglers: what a producer's own log says about its connections."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from eosframework.kafka.client.connection_log import ConnectionLog
from eosframework.kafka.client.defaults import producer_properties, with_connection_log
from eosframework.kafka.producer.straggler_detection import POLLS, StragglerDetection

FORM = "%s [%s] %s"


@dataclass
class Records:
    """A user's logger."""

    taken: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def log(self, level: int, form: str, *arguments: Any) -> None:
        self.taken.append((level, form % arguments))


def change(log: ConnectionLog, broker: str, before: str, after: str) -> None:
    """Log as librdkafka 2.16 does."""
    text = f"[thrd:{broker}]: {broker}: Broker changed state {before} -> {after}"
    log.log(logging.DEBUG, FORM, "STATE", "rdkafka#producer-1", text)


class Client:
    """A producer whose log arrives when it is polled."""

    def __init__(self) -> None:
        self.log = ConnectionLog(Records())
        self.queued: list[tuple[str, str, str]] = []
        self.raising = 0
        self.stragglers = StragglerDetection(self.log, self.serve)

    def serve(self) -> bool:
        if self.raising:
            self.raising -= 1
            return False
        for entry in self.queued:
            change(self.log, *entry)
        self.queued.clear()
        return True


@pytest.fixture
def client() -> Client:
    client = Client()
    client.queued.append(("127.0.0.1:9092/1", "APIVERSION_QUERY", "UP"))
    return client


def test_connections_that_hold_make_no_producer_suspect(client: Client) -> None:
    assert client.stragglers.faults() is None
    client.queued.append(("TxnCoordinator", "APIVERSION_QUERY", "UP"))
    assert client.stragglers.faults() is None


@pytest.mark.parametrize("after", ["DOWN", "INIT", "WHAT_NOBODY_KNOWS"])
@pytest.mark.parametrize("before", ["UP", "REAUTH"])
def test_a_connection_in_use_that_breaks_makes_its_producer_suspect(
    client: Client, before: str, after: str
) -> None:
    client.queued.append(("TxnCoordinator", before, after))
    client.queued.append(("TxnCoordinator", after, "UP"))
    assert client.stragglers.faults() == {"TxnCoordinator": 1}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("CONNECT", "DOWN"),
        ("APIVERSION_QUERY", "DOWN"),
        ("DOWN", "INIT"),
        ("UP", "REAUTH"),
        ("REAUTH", "UP"),
    ],
)
def test_what_breaks_before_it_is_in_use_carries_no_request(
    client: Client, before: str, after: str
) -> None:
    client.queued.append(("127.0.0.1:9092/1", before, after))
    assert client.stragglers.faults() is None


def test_what_broke_while_the_id_was_taken_does_not_count(client: Client) -> None:
    client.queued.append(("127.0.0.1:9092/bootstrap", "UP", "DOWN"))
    client.stragglers.ignore_earlier_faults()
    assert client.stragglers.faults() is None
    client.queued.append(("127.0.0.1:9092/bootstrap", "UP", "DOWN"))
    assert client.stragglers.faults() == {"127.0.0.1:9092/bootstrap": 1}


def test_a_callback_that_raises_hides_nothing(client: Client) -> None:
    client.queued.append(("127.0.0.1:9092/1", "UP", "DOWN"))
    client.raising = POLLS - 1
    assert client.stragglers.faults() == {"127.0.0.1:9092/1": 1}


def test_a_log_that_cannot_be_read_proves_nothing(client: Client) -> None:
    client.raising = POLLS
    assert client.stragglers.faults() is not None


def test_a_log_without_any_connection_proves_nothing() -> None:
    assert Client().stragglers.faults() is not None


def test_a_text_that_librdkafka_changes_makes_a_producer_suspect(client: Client) -> None:
    client.serve()
    client.log.log(logging.DEBUG, FORM, "STATE", "rdkafka#producer-1", "x: UP became DOWN")
    assert client.stragglers.faults() is not None


@pytest.mark.parametrize(
    ("own", "levels"),
    [
        ({}, [logging.WARNING, logging.INFO]),
        ({"log_level": 4}, [logging.WARNING]),
        ({"debug": "msg"}, [logging.WARNING, logging.INFO, logging.DEBUG]),
        ({"debug": "msg", "log_level": 3}, [logging.WARNING, logging.INFO, logging.DEBUG]),
    ],
)
def test_the_users_logger_has_what_it_asked_for(own: dict[str, Any], levels: list[int]) -> None:
    records = Records()
    given = {"bootstrap.servers": "", "transactional.id": "id", "logger": records, **own}
    properties, log = with_connection_log(producer_properties(given))
    assert properties["debug"].split(",")[-1] == "broker"
    assert properties["log_level"] == 7
    assert "statistics.interval.ms" not in properties
    for level in (logging.WARNING, logging.INFO, logging.DEBUG):
        log.log(level, FORM, "FAIL", "rdkafka#producer-1", "text")
    assert [level for level, _ in records.taken] == levels
