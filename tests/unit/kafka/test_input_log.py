"""Ends of partitions in one fetch with what makes them meaningless; no broker answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, Message

from eosframework.kafka.consumer.group import GroupSettings
from eosframework.kafka.consumer.input_log import KafkaInputLog
from eosframework.records import Position, TopicPartition

A = TopicPartition("a", 0)

Consume = Callable[..., list[Message]]


@pytest.fixture
def log() -> Iterator[KafkaInputLog]:
    log = KafkaInputLog({"bootstrap.servers": "127.0.0.1:1"}, GroupSettings("group"))
    yield log
    log.close(leave=False)


def found(offset: int, code: int) -> Message:
    """What librdkafka returns in place of a message."""
    return Message(topic=A.topic, partition=A.partition, offset=offset, error=KafkaError(code))


def fetched(log: KafkaInputLog, monkeypatch: pytest.MonkeyPatch, consume: Consume) -> None:
    monkeypatch.setattr(log, "_consume", consume)
    assert log.fetch(100, 0).ends in ({}, {A: 10})


def rewound(log: KafkaInputLog, offset: int) -> int | None:
    return log._past_markers(Position(A.topic, A.partition, offset)).offset


def test_markers_that_were_read_are_passed_by_a_rewind(
    log: KafkaInputLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log._note_starts([Position(A.topic, A.partition, 9)])
    fetched(log, monkeypatch, lambda *_: [found(10, KafkaError._PARTITION_EOF)])
    assert rewound(log, 9) == 10


def test_an_end_that_was_read_before_an_assignment_passes_no_record(
    log: KafkaInputLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def consume(*_: object) -> list[Message]:
        log._note_starts([Position(A.topic, A.partition, 5)])  # By a callback of this call.
        return [found(10, KafkaError._PARTITION_EOF)]

    fetched(log, monkeypatch, consume)
    assert rewound(log, 5) == 5


def test_the_end_after_a_batch_that_cannot_be_read_is_not_reached(
    log: KafkaInputLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log._note_starts([Position(A.topic, A.partition, 5)])
    both = [found(7, KafkaError._BAD_MSG), found(10, KafkaError._PARTITION_EOF)]
    monkeypatch.setattr(log, "_consume", lambda *_: both)
    result = log.fetch(100, 0)
    assert result.unreadable.keys() == {A}
    assert not result.ends
    assert rewound(log, 7) == 7
