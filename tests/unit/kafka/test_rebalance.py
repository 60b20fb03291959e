"""No exception of a call inside a rebalance callback passes through librdkafka."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from structlog.testing import capture_logs

from eosframework.kafka.consumer.rebalance import Rebalancing

ENDED = KafkaException(KafkaError(KafkaError._STATE))
CLOSING = RuntimeError("Consumer group metadata not available")


class Closing:
    """A consumer whose calls fail, as those of one that is closing may."""

    def __init__(self, error: Exception, *failing: str) -> None:
        self._error, self._failing = error, failing
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> bytes:
            self.calls.append(name)
            if name in self._failing:
                raise self._error
            return b""

        return call


class Listener:
    """Counts what it is given."""

    def __init__(self) -> None:
        self.taken = 0

    def assigned(self, partitions: list[Any]) -> list[Any]:
        self.taken += 1
        return []

    def revoked(self, partitions: list[Any]) -> None: ...

    def lost(self, partitions: list[Any]) -> None: ...


def test_an_assignment_to_a_consumer_that_closes_is_declined() -> None:
    listener, consumer = Listener(), Closing(CLOSING, "consumer_group_metadata")
    rebalancing = Rebalancing(listener)
    with capture_logs() as logs:
        rebalancing.assigned(consumer, [TopicPartition("in", 0)])  # type: ignore[arg-type]
    assert [log["event"] for log in logs] == ["assignment_lapsed"]
    assert (listener.taken, consumer.calls) == (0, ["consumer_group_metadata", "assign"])
    rebalancing.raise_pending()


@pytest.mark.parametrize("error", [ENDED, CLOSING])
@pytest.mark.parametrize("callback", ["revoked", "lost"])
def test_partitions_of_a_consumer_that_closes_are_let_go(error: Exception, callback: str) -> None:
    rebalancing = Rebalancing(Listener())
    with capture_logs() as logs:
        getattr(rebalancing, callback)(Closing(error, "unassign"), [TopicPartition("in", 0)])
    assert [log["event"] for log in logs] == ["partitions_not_released"]
    rebalancing.raise_pending()
