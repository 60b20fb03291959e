"""Records behind committed positions are removed, and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from structlog.testing import capture_logs

from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.admin.purging import RecordPurger
from eosframework.records import Position, TopicPartition
from tests.conftest import KafkaService
from tests.support.applications.pipeline import wait_until


class Log:
    """A topic of two partitions with a hundred records in the first."""

    def __init__(self, bootstrap_servers: str, topic: str, **config: str) -> None:
        self.topic = topic
        self.settings = KafkaSettings(bootstrap_servers=bootstrap_servers)
        self.admin = ClusterAdmin(self.settings)
        named = {name.replace("_", "."): value for name, value in config.items()}
        self.admin.create_topics([TopicToCreate(topic, 2, config=named)])
        producer = Producer({"bootstrap.servers": bootstrap_servers})
        for n in range(100):
            producer.produce(topic, b"%d" % n, b"%d" % n, 0)
        assert producer.flush(60) == 0
        self.now = 0.0

    def purger(self, keep_seconds: float = 0.0) -> RecordPurger:
        return RecordPurger(
            self.settings,
            keep_seconds=keep_seconds,
            interval_seconds=10,
            clock=lambda: self.now,
        )

    def first(self) -> int:
        partition = TopicPartition(self.topic, 0)
        return self.admin.log_bounds([partition])[partition][0]

    def wait_for_first(self, offset: int) -> None:
        wait_until(lambda: self.first() >= offset, f"a log that begins at {offset}")
        assert self.first() == offset

    def at(self, offset: int | None) -> list[Position]:
        return [Position(self.topic, 0, offset), Position(self.topic, 1, None)]


@pytest.fixture
def make_log(kafka: KafkaService, unique_name: Callable[[str], str]) -> Callable[..., Log]:
    def make(**config: str) -> Log:
        return Log(kafka.bootstrap_servers, unique_name("purged"), **config)

    return make


def test_what_is_committed_is_removed_once_in_an_interval(make_log: Callable[..., Log]) -> None:
    log = make_log()
    purger = log.purger()
    purger.committed(log.at(40))
    log.wait_for_first(40)
    log.now = 5
    purger.committed(log.at(60))
    log.now = 10
    purger.committed(log.at(50))
    log.wait_for_first(50)


def test_records_stay_as_long_as_positions_may_go_back(make_log: Callable[..., Log]) -> None:
    log = make_log()
    purger = log.purger(keep_seconds=100)
    for log.now, offset in ((0, 30), (50, 60), (90, 70), (101, 80)):
        purger.committed(log.at(offset))
    log.wait_for_first(30)
    log.now = 140
    purger.committed(log.at(20))
    log.now = 239
    purger.committed(log.at(90))
    assert log.first() == 30
    log.now = 300
    purger.committed(log.at(90))
    assert log.first() == 30
    log.now = 400
    purger.committed(log.at(95))
    log.wait_for_first(90)


def test_a_topic_that_refuses_is_told_of_once_and_left(make_log: Callable[..., Log]) -> None:
    log = make_log(cleanup_policy="compact")
    purger = log.purger()
    with capture_logs() as events:
        purger.committed(log.at(40))
        wait_until(lambda: bool(events), "the refusal")
        log.now = 10
        purger.committed(log.at(60))
        [event] = events
    assert event["event"] == "purging_denied"
    assert event["fix"] == "set its cleanup.policy to delete"
    assert log.first() == 0


def test_a_process_that_ends_at_once_has_removed_what_it_committed(
    make_log: Callable[..., Log],
) -> None:
    log = make_log()
    purger = log.purger()
    purger.committed(log.at(40))
    purger.close()
    assert log.first() == 40
