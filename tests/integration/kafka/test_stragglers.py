"""A request that arrives late, after librdkafka repeated it and the caller saw success."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from eosframework.embedded import start_kafka
from eosframework.kafka.producer import TransactionalProducer
from eosframework.kafka.states import State
from eosframework.kafka.watch import ConnectionWatch
from tests.conftest import SMALL_BROKER
from tests.support.pipeline import read_committed
from tests.support.proxy import END_TXN, PRODUCE, FrameProxy, HeldRequest


@dataclass(frozen=True)
class Proxied:
    """A broker with two listeners, one of them behind the proxy."""

    proxy: FrameProxy
    direct: str

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.proxy.port}"


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        behind = reserved.getsockname()[1]
    with FrameProxy(behind) as proxy:
        listeners = {
            "listeners": f"PLAINTEXT://127.0.0.1:{{port}},PROXIED://127.0.0.1:{behind},"
            "CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:{port},"
            f"PROXIED://127.0.0.1:{proxy.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
        }
        cluster = start_kafka(
            tmp_path_factory.mktemp("proxied"),
            fast_start=True,
            properties={**SMALL_BROKER, **listeners},
        )
        try:
            yield Proxied(proxy, cluster.bootstrap_servers)
        finally:
            cluster.kill()


@pytest.fixture
def topic(proxied: Proxied, topic_name: str) -> str:
    admin = AdminClient({"bootstrap.servers": proxied.direct})
    for created in admin.create_topics([NewTopic(topic_name, 1, 1)]).values():
        created.result(30)
    return topic_name


def values(proxied: Proxied, topic: str) -> list[bytes | None]:
    return [message.value() for message in read_committed(proxied.direct, topic)]


def producer_on(
    proxied: Proxied, topic: str, *, protection: bool, watch: ConnectionWatch | None = None
) -> TransactionalProducer:
    """A producer with one commit behind it, which repeats a lost Produce only after a second."""
    producer = TransactionalProducer(
        {
            "bootstrap.servers": proxied.bootstrap_servers,
            "transactional.id": topic,
            "retry.backoff.ms": 1000,
            "retry.backoff.max.ms": 1000,
        },
        protection=protection,
        watch=watch,
    )
    producer.init_transactions(30)
    with producer.transaction(30):
        producer.produce(topic, b"first", partition=0)
    return producer


def commit_with_a_late_twin(
    proxied: Proxied, producer: TransactionalProducer, topic: str
) -> HeldRequest:
    """Commit `held`; the caller sees success, and a second EndTxn(commit) is still on its way."""
    producer.begin_transaction()
    producer.produce(topic, b"held", partition=0)
    producer.flush(10)
    twin = proxied.proxy.hold(END_TXN)
    producer.commit_transaction(30)
    twin.wait(0)
    return twin


def late_commit(proxied: Proxied, producer: TransactionalProducer, topic: str) -> None:
    """Deliver the late commit into the next transaction, which is then aborted."""
    twin = commit_with_a_late_twin(proxied, producer, topic)
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=0)
    producer.flush(10)
    twin.deliver()
    with suppress(KafkaException):
        producer.abort_transaction(30)
    producer.close()


def test_a_late_commit_cannot_commit_the_next_transaction(proxied: Proxied, topic: str) -> None:
    late_commit(proxied, producer_on(proxied, topic, protection=True), topic)
    assert values(proxied, topic) == [b"first", b"held"]


def test_without_the_protection_a_late_commit_shows_an_aborted_record(
    proxied: Proxied, topic: str
) -> None:
    late_commit(proxied, producer_on(proxied, topic, protection=False), topic)
    assert values(proxied, topic) == [b"first", b"held", b"aborted"]


def test_without_a_list_of_sockets_a_late_commit_is_found_all_the_same(
    proxied: Proxied, topic: str, tmp_path: Path
) -> None:
    watch = ConnectionWatch(tmp_path / "no-proc")
    producer = producer_on(proxied, topic, protection=True, watch=watch)
    late_commit(proxied, producer, topic)
    assert values(proxied, topic) == [b"first", b"held"]


def late_record(proxied: Proxied, producer: TransactionalProducer, topic: str) -> None:
    """Abort while a record is on its way; it arrives in the next transaction.

    It arrives before that one's own first record, whose sequence number it has.
    """
    aborted = proxied.proxy.hold(PRODUCE)
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=0)
    producer.poll(0)
    aborted.wait()
    producer.abort_transaction(30)
    overtaken = proxied.proxy.hold(PRODUCE)
    producer.begin_transaction()
    producer.produce(topic, b"committed", partition=0)
    producer.poll(0)
    overtaken.wait()
    aborted.deliver()
    producer.commit_transaction(30)
    producer.close()


def test_a_record_of_an_aborted_transaction_cannot_arrive_in_the_next(
    proxied: Proxied, topic: str
) -> None:
    late_record(proxied, producer_on(proxied, topic, protection=True), topic)
    assert values(proxied, topic) == [b"first", b"committed"]


def test_without_the_protection_a_late_record_takes_the_place_of_a_later_one(
    proxied: Proxied, topic: str
) -> None:
    late_record(proxied, producer_on(proxied, topic, protection=False), topic)
    assert values(proxied, topic) == [b"first", b"aborted"]


def test_a_commit_over_a_broken_connection_recycles_before_it_returns(
    proxied: Proxied, topic: str
) -> None:
    producer = producer_on(proxied, topic, protection=True)
    before = producer.produce
    with producer.transaction(30):
        producer.produce(topic, b"quiet", partition=0)
    assert producer.produce == before, "a commit without a fault must not recycle"
    commit_with_a_late_twin(proxied, producer, topic)
    assert producer.state is State.READY
    assert producer.produce != before
    producer.close()
