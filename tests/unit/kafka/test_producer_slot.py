"""A worker's producers share its deadlines: waits for a hanging broker do not add up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from eosframework.errors import OutcomeUnknown, Retriable
from eosframework.kafka.client.deadline import Deadline
from eosframework.kafka.producer.output_topics import OutputTopics
from eosframework.kafka.producer.producer_slot import ProducerSlot
from eosframework.kafka.taxonomy import Call
from eosframework.processing.ports import Commit
from eosframework.records import Position


class Producer(SimpleNamespace):
    """Stands for a producer, and notes when it is closed."""

    closed = False
    transactional_id = "app:sub:0"

    def close(self, timeout: float) -> None:
        self.closed = True

    def __hash__(self) -> int:
        return object.__hash__(self)


def output() -> Any:
    return ProducerSlot(lambda: Producer(), 30, OutputTopics({}, []))  # pyright: ignore[reportArgumentType]


def test_a_step_whose_turn_comes_after_the_deadline_does_nothing() -> None:
    done: list[int] = []
    late = Deadline(0)
    error = output().attempt(lambda: done.append(1), late, Call.COMMIT)
    assert isinstance(error, OutcomeUnknown)
    error = output().attempt(lambda: done.append(1), late, Call.INIT)
    assert isinstance(error, Retriable)
    assert not done


def test_a_producer_left_behind_is_closed_when_its_call_returns_after_all() -> None:
    own = output()
    old = own.producer
    assert own.attempt(own.abandon, Deadline(30), Call.COMMIT) is None
    assert own.producer is not old
    assert old.closed
    assert not own.producer.closed


def test_only_the_current_producer_can_be_sending_offsets_for_too_long() -> None:
    own = output()
    seen: list[bool] = []

    def send_offsets(*_: object) -> None:
        seen.append(own.sends_offsets_for(0))
        own.abandon()
        seen.append(own.sends_offsets_for(0))

    own.producer.send_offsets_to_transaction = send_offsets
    own.send(Commit(own, [Position("in", 0, 1)], None))
    assert seen == [True, False]
    assert not own.sends_offsets_for(0)
