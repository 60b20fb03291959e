"""Rejected results of a transaction are found by trying it in parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.task.late_results import LateResults
from eosframework.engine.task.transaction_bisect import Bisection, RejectedTransaction
from eosframework.errors import DataRejected, RunError
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import OnError

P = TopicPartition("in", 0)
NODE: Any = SimpleNamespace(name="window", on_error=OnError())
DEAD = -1
"""Stands for a dead letter in the outputs."""


class Transaction:
    """A record with late results; a broker rejects some of the outputs.

    Args:
        results: how many there are.
        refused: numbers of parts; part 0 is the record's own output.
        by_clock: there is no record.
        late: refused when they are delivered, not when they are produced.
    """

    def __init__(
        self, results: int, refused: set[int], *, by_clock: bool = False, late: bool = True
    ) -> None:
        self.results = LateResults()
        self.count = results
        self.refused = set(refused)
        self.by_clock = by_clock
        self.late = late
        self.dead: list[int] = []
        self.sent: list[int] = []
        self.attempts = 0

    def attempt(self, bisection: Bisection | None) -> DataRejected | None:
        self.attempts += 1
        self.results.begin(bisection and bisection.trial_of(None if self.by_clock else (P, 7)))
        self.dead, self.sent = [], []
        out: list[Any] = [] if self.by_clock else [0]
        try:
            for number in self.results.of(NODE, range(1, self.count + 1), out, self.failed):  # type: ignore[arg-type]
                out.append(number)
            if self.results.trial is None:
                self.produce(out)
            else:
                self.results.hand_out(out, self.produce, self.deliver)
            self.deliver()
        except DataRejected as error:
            return error
        return None

    def failed(self, site: Any, message: Any, error: Exception, out: list[Any]) -> None:
        assert site.name == "window"
        self.dead.append(message)
        out.append(DEAD)

    def produce(self, outputs: Any) -> None:
        self.sent += outputs
        if not self.late:
            self.deliver()

    def deliver(self) -> None:
        if self.refused.intersection(self.sent):
            raise DataRejected("too large")

    def refusal(self, error: DataRejected) -> RejectedTransaction:
        position = 7 if self.by_clock else 8
        return RejectedTransaction(
            int(not self.by_clock), {P: position}, {P: 7}, self.results, error
        )


def commit(transaction: Transaction) -> None:
    """Try until nothing is refused; no record is to blame."""
    bisection: Bisection | None = None
    while error := transaction.attempt(bisection):
        bisection = Bisection.after(bisection, transaction.refusal(error))
        assert bisection.culprit(P) is None


@given(st.integers(1, 200), st.booleans(), st.booleans(), st.data())
def test_each_refused_result_is_found_and_all_others_go_out(
    results: int, by_clock: bool, late: bool, data: st.DataObject
) -> None:
    refused = data.draw(st.sets(st.integers(1, results), max_size=5))
    transaction = Transaction(results, refused, by_clock=by_clock, late=late)
    commit(transaction)
    assert set(transaction.dead) == refused
    assert set(range(1, results + 1)) - refused <= set(transaction.sent)
    assert transaction.attempts <= 2 + 4 * len(refused)


@given(st.integers(0, 40), st.booleans())
def test_a_record_whose_own_output_is_refused_is_at_fault_itself(results: int, late: bool) -> None:
    transaction = Transaction(results, {0}, late=late)
    bisection: Bisection | None = None
    while bisection is None or bisection.culprit(P) is None:
        error = transaction.attempt(bisection)
        assert error is not None
        bisection = Bisection.after(bisection, transaction.refusal(error))
    assert transaction.attempts == 2


def test_a_result_whose_dead_letter_is_refused_too_says_so() -> None:
    transaction = Transaction(3, {2, DEAD})
    with pytest.raises(RunError, match=r"so was its dead letter.*raise max\.message\.bytes"):
        commit(transaction)


def test_a_trial_is_of_the_transaction_that_begins_with_the_same_record() -> None:
    transaction = Transaction(3, {2})
    error = transaction.attempt(None)
    assert error is not None
    bisection = Bisection.after(None, transaction.refusal(error))
    assert bisection.trial_of((P, 7)) is not None
    assert bisection.trial_of((P, 8)) is None
    assert bisection.trial_of(None) is None
