"""The states of a transactional producer."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from eosframework.kafka.producer.producer_states import (
    MOVES,
    BadTransition,
    Event,
    ProducerState,
    StateTable,
)


def test_every_state_says_what_each_event_leads_to_or_refuses_it() -> None:
    assert set(MOVES) == set(ProducerState)
    for moves in MOVES.values():
        assert set(moves) <= set(Event)


@given(st.lists(st.sampled_from(Event)))
def test_a_refused_event_changes_nothing_and_names_the_producer(events: list[Event]) -> None:
    table = StateTable("app:part:0")
    for event in events:
        before = table.state
        if event in MOVES[before]:
            table.move(event)
            assert table.state is MOVES[before][event]
            continue
        with pytest.raises(BadTransition, match="app:part:0") as raised:
            table.move(event)
        assert raised.value.args[0].code() == KafkaError._STATE
        assert table.state is before


def test_a_transaction_begins_only_where_no_frame_can_be_in_flight() -> None:
    assert [state for state in ProducerState if Event.BEGUN in MOVES[state]] == [
        ProducerState.READY
    ]


def test_only_recycling_or_closing_leads_out_of_fenced_and_failed() -> None:
    for state in (ProducerState.FENCED, ProducerState.FAILED):
        leads_out = {event for event, target in MOVES[state].items() if target is not state}
        assert Event.RECYCLED in leads_out
        assert leads_out <= {Event.RECYCLED, Event.CLOSED, Event.FENCED, Event.FAILED}


def test_an_unconfirmed_commit_never_counts_as_ready() -> None:
    assert MOVES[ProducerState.IN_TRANSACTION][Event.COMMIT_SENT] is ProducerState.UNDECIDED
    ready = [
        event
        for event, target in MOVES[ProducerState.UNDECIDED].items()
        if target is ProducerState.READY
    ]
    assert ready == [Event.RECYCLED]
