"""What must hold between two banks at every moment, judged by snapshots one after the other.

A transfer is debited at one bank, is on its way, and is credited at the other. Nobody can look at
both banks at once, so the books of one are taken between two of the other's:

    first (bank Y, t1)   between (bank X, t2)   last (bank Y, t3),   t1 < t2 < t3

Whatever is credited was debited earlier, and no ledger forgets, so

    C1  credits(Y, t1) ⊆ debits(X, t2)
    C2  credits(X, t2) ⊆ debits(Y, t3)
    C3  debits(Y, t1)  ⊆ debits(Y, t3)

and what is on its way, seen from these moments, is the two set differences. No more and no less
than the money of the start is there, to the cent, in each sample:

    M   balance(X, t2) + balance(Y, t1) - Σ(debits(Y, t3) ∖ debits(Y, t1))
        + Σ(debits(X, t2) ∖ credits(Y, t1)) + Σ(debits(Y, t3) ∖ credits(X, t2))  =  start

Proof. In each snapshot of a bank, balance = opening - Σ debits + Σ credits. With C1 to C3 the sum
of a difference is the difference of the sums, and M becomes

    opening(X) - Σ debits(X, t2) + Σ credits(X, t2)
    + opening(Y) - Σ debits(Y, t1) + Σ credits(Y, t1) - Σ debits(Y, t3) + Σ debits(Y, t1)
    + Σ debits(X, t2) - Σ credits(Y, t1) + Σ debits(Y, t3) - Σ credits(X, t2)
    = opening(X) + opening(Y).

Two snapshots are not enough: seen from the earlier one, the later one may have credited what the
earlier one had not debited yet. The differences are of *ids*, so a transfer credited twice is
money too much, and not a debit fewer on its way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NAMED = 3
"""So many ids are named where some are wrong."""


@dataclass(frozen=True, slots=True)
class Books:
    """A bank as one snapshot shows it.

    Args:
        balance: of all its accounts together.
        debits: amounts by id.
        credits: the same of what arrived.
    """

    bank: str
    balance: int
    debits: Mapping[str, int]
    credits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """What three snapshots showed.

    Args:
        on_the_way: amounts by id.
        money: in both banks and on the way.
        findings: what does not hold.
    """

    debited: int
    credited: int
    on_the_way: Mapping[str, int]
    money: int
    findings: tuple[str, ...]


def examine(first: Books, between: Books, last: Books, start: int) -> Sample:
    """Judge books that were taken one after the other.

    Args:
        first: of one bank.
        between: of the other, taken later.
        last: of the first one again, taken later still.
        start: the money in both banks in the beginning.
    """
    on_the_way = {
        id_: amount
        for sender, receiver in ((between, first), (last, between))
        for id_, amount in sender.debits.items()
        if id_ not in receiver.credits
    }
    meanwhile = sum(amount for id_, amount in last.debits.items() if id_ not in first.debits)
    money = between.balance + first.balance - meanwhile + sum(on_the_way.values())
    findings = [
        *_beyond(first.credits, between.debits, f"credited at {first.bank}", between.bank),
        *_beyond(between.credits, last.debits, f"credited at {between.bank}", last.bank),
        *_beyond(first.debits, last.debits, f"debited at {first.bank} before", last.bank),
    ]
    if money != start:
        findings.append(
            f"{abs(money - start)} {'too much' if money > start else 'missing'}: "
            f"{between.balance} at {between.bank}, {first.balance - meanwhile} at {first.bank} and "
            f"{sum(on_the_way.values())} on the way make {money}, not {start}"
        )
    return Sample(
        debited=len(between.debits) + len(last.debits),
        credited=len(between.credits) + len(last.credits),
        on_the_way=on_the_way,
        money=money,
        findings=tuple(findings),
    )


def _beyond(inner: Mapping[str, int], outer: Mapping[str, int], what: str, bank: str) -> list[str]:
    """Say which ids are not where all of them have to be."""
    wrong = sorted(inner.keys() - outer.keys())
    if not wrong:
        return []
    named = ", ".join(wrong[:NAMED]) + (", …" if len(wrong) > NAMED else "")
    return [f"{len(wrong)} transfers {what} and not debited at {bank}: {named}"]
