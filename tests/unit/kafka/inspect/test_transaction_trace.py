"""States become transactions, and markers find the transaction that they ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.kafka.inspect.formats import StateValue, TxnState
from eosframework.kafka.inspect.log_scan import DatedMarker, Span, match
from eosframework.kafka.inspect.transaction_trace import Stated, split
from eosframework.records import TopicPartition

OUT, OTHER = TopicPartition("out", 0), TopicPartition("other", 1)


def value(state: TxnState, *partitions: TopicPartition, producer_id: int = 7) -> StateValue:
    return StateValue(producer_id, 0, 60_000, state, partitions, 0, 1_000)


def stated(*values: StateValue | None) -> list[Stated]:
    return [(offset, 1_000 + offset, entry) for offset, entry in enumerate(values)]


def test_a_transaction_lasts_from_its_first_partition_to_its_completion() -> None:
    transactions = split(
        stated(
            value(TxnState.EMPTY),
            value(TxnState.ONGOING, OUT),
            value(TxnState.ONGOING, OTHER, OUT),
            value(TxnState.PREPARE_COMMIT, OTHER, OUT),
            value(TxnState.COMPLETE_COMMIT),
            value(TxnState.ONGOING, OUT),
        )
    )
    committed, still_open = transactions
    assert [c.state for c in committed.changes[:2]] == [
        TxnState.EMPTY,
        TxnState.ONGOING,
    ]
    assert [c.joined for c in committed.changes] == [(), (OUT,), (OTHER,), (), ()]
    assert (committed.is_committed, committed.partitions) == (True, (OTHER, OUT))
    assert (still_open.is_committed, still_open.state) == (None, TxnState.ONGOING)


def test_what_compaction_left_of_a_transaction_still_tells_its_outcome() -> None:
    (transaction,) = split(stated(value(TxnState.COMPLETE_ABORT)))
    assert transaction.is_committed is False
    assert transaction.partitions == ()


def test_a_forgotten_id_ends_what_it_did() -> None:
    first, second = split(stated(value(TxnState.COMPLETE_COMMIT), None))
    assert first.is_committed is True
    assert (second.state, second.producer_id) == (TxnState.DEAD, None)


def test_an_exchanged_producer_id_does_not_hide_who_wrote() -> None:
    (transaction,) = split(
        stated(
            value(TxnState.ONGOING, OUT, producer_id=7),
            value(TxnState.PREPARE_COMMIT, OUT, producer_id=7),
            value(TxnState.COMPLETE_COMMIT, producer_id=8),
        )
    )
    assert transaction.producer_id == 7


gaps = st.lists(
    st.tuples(st.integers(1, 500), st.integers(0, 500), st.booleans()), min_size=1, max_size=30
)


@given(gaps, st.integers(0, 29))
def test_every_marker_finds_its_own_transaction_however_close_they_are(
    gaps: list[tuple[int, int, bool]], untraced: int
) -> None:
    now, spans, markers = 1_000, [], []
    for pause, lasts, committed in gaps:
        decided = now + pause
        now = decided + lasts + 1
        spans.append(Span(7, decided - 1, decided, now, committed))
        markers.append(DatedMarker(7, decided + lasts // 2, committed))
    traced = {key: span for key, span in enumerate(spans) if key >= untraced}
    expected = [key if key in traced else None for key in range(len(spans))]
    assert match(markers, traced, 0) == expected


@pytest.mark.parametrize(
    ("marker", "expected"),
    [
        (DatedMarker(7, 900, True), 0),
        (DatedMarker(7, 2_100, True), 0),
        (DatedMarker(7, 9_000, True), None),
        (DatedMarker(7, 1_500, False), None),
        (DatedMarker(8, 1_500, True), None),
    ],
    ids=["a slow clock", "a fast clock", "too late", "another outcome", "another producer"],
)
def test_clocks_may_differ_a_little_and_nothing_else(
    marker: DatedMarker, expected: int | None
) -> None:
    spans = {0: Span(7, 900, 1_000, 2_000, True)}
    assert match([marker], spans, skew_ms=200) == [expected]


def test_an_open_transaction_has_no_marker() -> None:
    assert match([DatedMarker(7, 5, True)], {0: Span(7, 0, None, None, None)}, 100) == [None]
