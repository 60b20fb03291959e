"""The verdict over two ledgers at rest: each way in which they can be wrong is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eosframework.demo.bank import Entry, Ledgers, Verdict, judge

OPENING = {"a.1": 100, "a.2": 100, "b.1": 100, "b.2": 100}
SENT = [Entry("t1", "a.1", "b.1", 10), Entry("t2", "a.1", "b.2", 5), Entry("t3", "a.2", "b.1", 1)]
BACK = [Entry("t4", "b.1", "a.2", 40)]
CONFIRMED = {"t1", "t2", "t3", "t4"}

A = Ledgers({"a.1": 85, "a.2": 139}, SENT, BACK)
B = Ledgers({"b.1": 71, "b.2": 105}, BACK, [SENT[0], SENT[2], SENT[1]])


def wrong(a: Ledgers = A, b: Ledgers = B, confirmed: set[str] = CONFIRMED) -> dict[str, list[str]]:
    verdict = judge((a, b), OPENING, confirmed)
    return {kind: list(names) for kind, names in verdict.wrong().items() if names}


def test_ledgers_that_fit_are_clean() -> None:
    assert judge((A, B), OPENING, CONFIRMED) == Verdict(4, [], [], [], [], [], 400)
    assert judge((A, B), OPENING, CONFIRMED).clean


def test_transfers_of_other_accounts_may_overtake() -> None:
    assert wrong(b=replace(B, credits=[SENT[2], SENT[0], SENT[1]])) == {}


def test_transfers_of_one_account_may_not() -> None:
    assert wrong(b=replace(B, credits=[SENT[1], SENT[0], SENT[2]])) == {"reordered": ["a.1"]}


def test_a_transfer_that_did_not_arrive_is_lost() -> None:
    b = Ledgers({"b.1": 71, "b.2": 100}, BACK, [SENT[0], SENT[2]])
    assert wrong(b=b) == {"lost": ["t2"]}


def test_a_transfer_that_was_confirmed_and_that_no_ledger_knows_is_lost() -> None:
    assert wrong(confirmed={*CONFIRMED, "t5"}) == {"lost": ["t5"]}


def test_a_transfer_that_arrived_twice_is_found() -> None:
    b = Ledgers({"b.1": 72, "b.2": 105}, BACK, [*B.credits, SENT[2]])
    assert wrong(b=b) == {"duplicated": ["t3"]}


@pytest.mark.parametrize("entry", [Entry("t9", "a.1", "b.2", 5), Entry("t2", "a.1", "b.2", 6)])
def test_a_transfer_that_nobody_sent_like_that_is_invented(entry: Entry) -> None:
    b = Ledgers({"b.1": 71, "b.2": 105 - 5 + entry.amount}, BACK, [SENT[0], SENT[2], entry])
    assert wrong(b=b)["invented"] == [entry.id]


def test_a_balance_that_its_ledger_does_not_explain_is_found() -> None:
    assert wrong(a=replace(A, accounts={"a.1": 84, "a.2": 139})) == {"misbooked": ["a.1"]}
    assert wrong(a=replace(A, accounts={"a.2": 139})) == {"misbooked": ["a.1"]}


def test_a_refused_transfer_that_is_debited_is_found() -> None:
    verdict = judge((A, B), OPENING, CONFIRMED - {"t2"}, {"t2", "t9"})
    assert list(verdict.invented) == ["t2"]
