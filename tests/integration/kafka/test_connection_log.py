"""The installed librdkafka logs connections in the form that straggler detection reads."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from typing import Any

import psutil
from confluent_kafka import Producer

from eosframework.kafka.client.connection_log import ConnectionLog
from eosframework.kafka.client.defaults import producer_properties, with_connection_log
from tests.conftest import KafkaService
from tests.support.applications.pipeline import wait_until

FORM = re.compile(r"\[thrd:\S+\]: (\S+): Broker changed state [A-Z_]+ -> [A-Z_]+")


class Kept:
    """A logger that keeps the records of librdkafka about states of connections."""

    def __init__(self) -> None:
        self.states: list[tuple[str, str]] = []

    def log(self, level: int, form: str, *arguments: Any) -> None:
        del level
        facility, _, text = map(str, arguments)
        if facility == "STATE" or "changed state" in form % arguments:
            self.states.append((facility, text))


def cut_connections_to(port: int) -> int:
    """Shut down this process's own sockets, as a network does that fails; return how many."""
    cut = 0
    for connection in psutil.Process().net_connections("tcp"):
        if connection.raddr and connection.raddr.port == port and connection.fd >= 0:
            # librdkafka may have closed it meanwhile, and opened another file in its place.
            with suppress(OSError), socket.socket(fileno=os.dup(connection.fd)) as same:
                same.shutdown(socket.SHUT_RDWR)
                cut += 1
    return cut


def broken(log: ConnectionLog) -> bool:
    return bool(log.broken)


def test_every_change_of_a_connection_is_read(kafka: KafkaService, topic_name: str) -> None:
    kept = Kept()
    given = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "transactional.id": topic_name,
        "debug": "broker",
        "logger": kept,
    }
    properties, log = with_connection_log(producer_properties(given))
    producer = Producer(properties)
    producer.init_transactions(60)
    producer.poll(0)
    assert log.opened
    log.broken.clear()  # librdkafka itself ended the bootstrap connection

    assert cut_connections_to(int(kafka.bootstrap_servers.rpartition(":")[2]))
    wait_until(lambda: producer.poll(0.01) >= 0 and broken(log), "a broken connection in the log")
    producer.close()

    read = [(facility, FORM.fullmatch(text)) for facility, text in kept.states]
    assert all(facility == "STATE" and found for facility, found in read), kept.states
    assert {found[1] for _, found in read if found} >= set(log.broken)
