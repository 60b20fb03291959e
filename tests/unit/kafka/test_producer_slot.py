"""A worker's producers share its deadlines: waits for a hanging broker do not add up."""

from __future__ import annotations

from typing import Any

import pytest

from eosframework.errors import OutcomeUnknown, Retriable
from eosframework.kafka.client.throttling import Deadline
from eosframework.kafka.producer.output_topics import OutputTopics
from eosframework.kafka.producer.producer_slot import ProducerSlot
from eosframework.kafka.taxonomy import Call
from eosframework.records import Position
from eosframework.transactions.ports import Commit


class Producer:
    """Stands for a producer, and notes when it is closed."""

    transactional_id = "app:sub:0"

    def __init__(self) -> None:
        self.closed = 0
        self.calls = 0

    def close(self, timeout: float) -> None:
        assert self.calls == 0, "it is closed while a call of it runs"
        self.closed += 1


def output() -> Any:
    return ProducerSlot(lambda: Producer(), 30, OutputTopics({}, []))  # pyright: ignore[reportArgumentType]


def test_a_step_whose_turn_comes_after_the_deadline_does_nothing() -> None:
    done: list[int] = []
    late = Deadline(0)
    own = output()
    error = own.attempt(own.producer, lambda _: done.append(1), late, Call.COMMIT)
    assert isinstance(error, OutcomeUnknown)
    error = own.attempt(own.producer, lambda _: done.append(1), late, Call.INIT)
    assert isinstance(error, Retriable)
    assert not done


POINTS = ("before its turn", "before the call", "in the call", "after the call", "at its end")


@pytest.mark.parametrize("point", POINTS)
def test_an_abandoned_producer_is_closed_once_and_never_while_a_call_of_it_runs(
    point: str,
) -> None:
    own = output()
    old = own.producer
    used: list[Any] = []

    def arrive(here: str) -> None:
        if here == point:
            own.abandon()

    def step(producer: Any) -> None:
        arrive("before the call")
        producer.calls += 1
        used.append(producer)
        arrive("in the call")
        producer.calls -= 1
        arrive("after the call")

    arrive("before its turn")
    error = own.attempt(old, step, Deadline(30), Call.COMMIT)
    arrive("at its end")
    assert own.producer is not old
    assert (old.closed, own.producer.closed) == (1, 0)
    assert used == ([] if point == "before its turn" else [old])
    assert (error is None) == (point != "before its turn")


def test_only_the_current_producer_can_be_sending_offsets_for_too_long() -> None:
    own = output()
    seen: list[bool] = []

    def send_offsets(*_: object) -> None:
        seen.append(own.sends_offsets_for(0))
        own.abandon()
        seen.append(own.sends_offsets_for(0))

    own.producer.send_offsets_to_transaction = send_offsets
    own.send(own.producer, Commit(own, [Position("in", 0, 1)], None))
    assert seen == [True, False]
    assert not own.sends_offsets_for(0)
