"""Bisection finds a rejected output, and commits everything else on the way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.task.late_results import LateResults
from eosframework.engine.task.transaction_bisect import Bisection, RejectedTransaction
from eosframework.errors import DataRejected, RecordFailed, RunError
from eosframework.records import TopicPartition

P = TopicPartition("in", 0)


def refused(records: int, position: int, committed: int) -> RejectedTransaction:
    error = DataRejected("too large")
    return RejectedTransaction(records, {P: position}, {P: committed}, LateResults(), error)


@given(st.integers(1, 300), st.data())
def test_every_poison_record_is_found_and_the_rest_committed(
    size: int, data: st.DataObject
) -> None:
    poison = data.draw(st.sets(st.integers(0, size - 1)))
    bisection: Bisection | None = None
    committed, found, transactions = 0, set(), 0
    while committed < size:
        transactions += 1
        limit = size if bisection is None else bisection.limit
        end = min(size, committed + limit)
        culprit = bisection.culprit(P) if bisection else None
        dead = {culprit.offset} if culprit else set()
        if (poison - dead).intersection(range(committed, end)):
            bisection = Bisection.after(bisection, refused(end - committed, end, committed))
        else:
            found |= dead
            committed = end
            bisection = bisection.widened({P: committed}) if bisection else None
    assert found == poison
    assert transactions <= 1 + (3 * size.bit_length() + 3) * (len(poison) + 1)


def test_a_refused_dead_letter_is_said() -> None:
    known = Bisection.after(None, refused(1, 8, 7))
    again = Bisection.after(known, refused(1, 8, 7))
    culprit = again.culprit(P)
    assert culprit is not None
    assert culprit.error.is_of_dead_letter, "the next one has the smallest form"
    with pytest.raises(RecordFailed, match=r"in\[0\]@7.*dead letter.*max\.message\.bytes"):
        Bisection.after(again, refused(1, 8, 7))


def test_what_stores_change_when_the_clock_closes_windows_is_no_records_fault() -> None:
    with pytest.raises(RunError, match=r"close_when_idle.*too large"):
        Bisection.after(None, refused(0, 8, 8))


def test_another_record_than_the_known_one_is_refused_for_itself() -> None:
    """The known one was committed all the same, by a transaction without an answer."""
    known = Bisection.after(Bisection(2, {P: 10}), refused(1, 8, 7))
    left = known.left({P: 8})
    assert left is not None
    culprit = Bisection.after(left, refused(1, 9, 8)).culprit(P)
    assert culprit is not None
    assert culprit.offset == 8


def test_what_is_found_to_be_committed_to_the_end_is_replayed_no_more() -> None:
    assert Bisection(2, {P: 10}).left({P: 10}) is None
    assert Bisection(2, {P: 10}).left({P: 9}) == Bisection(2, {P: 10})
