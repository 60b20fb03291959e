"""The examiner's rules: they hold for every honest history, and for no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.demo.bank import Books, examine

OPENING = 1000
START = 2 * OPENING

X, Y = 0, 1


@dataclass
class Banks:
    """Two banks, and what may happen to them."""

    balances: list[int] = field(default_factory=lambda: [OPENING, OPENING])
    debits: list[dict[str, int]] = field(default_factory=lambda: [{}, {}])
    credits: list[dict[str, int]] = field(default_factory=lambda: [{}, {}])

    def debit(self, bank: int, amount: int) -> None:
        self.debits[bank][f"{bank}.{len(self.debits[bank])}"] = amount
        self.balances[bank] -= amount

    def credit(self, bank: int, chosen: int) -> None:
        """Credit one of those that are on the way, if any is."""
        sent = self.debits[1 - bank]
        on_the_way = [id_ for id_ in sent if id_ not in self.credits[bank]]
        if on_the_way:
            id_ = on_the_way[chosen % len(on_the_way)]
            self.credits[bank][id_] = sent[id_]
            self.balances[bank] += sent[id_]

    def books(self, bank: int) -> Books:
        credits_ = dict(self.credits[bank])
        return Books("XY"[bank], self.balances[bank], dict(self.debits[bank]), credits_)


Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(st.sampled_from(["debit", "credit"]), st.sampled_from([X, Y]), st.integers(1, 50)),
    max_size=30,
)


def run(banks: Banks, history: Sequence[Step]) -> None:
    for what, bank, number in history:
        getattr(banks, what)(bank, number)


@given(before=steps, early=steps, late=steps, middle=st.sampled_from([X, Y]))
def test_all_money_is_there_whatever_happens_between_the_snapshots(
    before: list[Step], early: list[Step], late: list[Step], middle: int
) -> None:
    banks = Banks()
    run(banks, before)
    first = banks.books(1 - middle)
    run(banks, early)
    between = banks.books(middle)
    run(banks, late)
    sample = examine(first, between, banks.books(1 - middle), START)
    assert sample.findings == ()
    assert sample.money == START


@given(history=steps)
def test_what_is_on_the_way_at_rest_is_what_was_debited_and_not_credited(
    history: list[Step],
) -> None:
    banks = Banks()
    run(banks, history)
    sample = examine(banks.books(Y), banks.books(X), banks.books(Y), START)
    assert sum(banks.balances) + sum(sample.on_the_way.values()) == START
    assert sample.debited - sample.credited == len(sample.on_the_way)


@pytest.fixture
def banks() -> Banks:
    """Two transfers arrived, one each way, and one is on its way to X."""
    made = Banks()
    run(made, [("debit", X, 7), ("credit", Y, 0), ("debit", Y, 20), ("credit", X, 0)])
    made.debit(Y, 3)
    return made


def seen(banks: Banks, **changes: object) -> str:
    """What the examiner says of Y, X and Y again, with X's books changed."""
    between = replace(banks.books(X), **changes)
    return "; ".join(examine(banks.books(Y), between, banks.books(Y), START).findings)


def test_an_honest_history_has_no_findings(banks: Banks) -> None:
    assert seen(banks) == ""


@pytest.mark.parametrize(("cents", "word"), [(-1, "missing"), (1, "too much")])
def test_a_cent_taken_or_added_is_found(banks: Banks, cents: int, word: str) -> None:
    assert seen(banks, balance=banks.balances[X] + cents).startswith(f"1 {word}: ")


def test_a_transfer_credited_twice_is_money_too_much(banks: Banks) -> None:
    assert seen(banks, balance=banks.balances[X] + 20).startswith("20 too much")


def test_a_credit_without_its_money_is_missing_money(banks: Banks) -> None:
    late = {**banks.credits[X], "1.1": 3}
    assert seen(banks, credits=late).startswith("3 missing")


def test_a_credit_that_nobody_debited_is_found_although_the_balance_fits(banks: Banks) -> None:
    found = seen(banks, credits={**banks.credits[X], "forged": 5}, balance=banks.balances[X] + 5)
    assert "1 transfers credited at X and not debited at Y: forged" in found
    assert "5 too much" in found


def test_a_debit_that_vanished_after_it_was_credited_is_found(banks: Banks) -> None:
    found = seen(banks, debits={}, balance=banks.balances[X] + 7)
    assert "1 transfers credited at Y and not debited at X: 0.0" in found


def test_a_ledger_that_forgets_is_found(banks: Banks) -> None:
    first = banks.books(Y)
    last = replace(first, debits={"1.0": 20}, balance=first.balance + 3)
    found = examine(first, banks.books(X), last, START).findings
    assert "1 transfers debited at Y before and not debited at Y: 1.1" in "; ".join(found)
