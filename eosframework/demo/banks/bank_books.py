"""The invariant between two banks at every moment, checked on consecutive snapshots.

A transfer is debited at one bank, is in transit, and is credited at the other. No snapshot covers
both banks, so the books of one are taken between two of the other's:

    first (bank Y, t1)   between (bank X, t2)   last (bank Y, t3),   t1 < t2 < t3

A credited transfer was debited earlier, and ledgers only grow, so

    C1  credits(Y, t1) ⊆ debits(X, t2)
    C2  credits(X, t2) ⊆ debits(Y, t3)
    C3  debits(Y, t1)  ⊆ debits(Y, t3)

and the transfers in transit, seen from these moments, are the two set differences. In each sample
the total equals the opening total, to the cent:

    M   balance(X, t2) + balance(Y, t1) - Σ(debits(Y, t3) ∖ debits(Y, t1))
        + Σ(debits(X, t2) ∖ credits(Y, t1)) + Σ(debits(Y, t3) ∖ credits(X, t2))  =  start

Proof. In each snapshot of a bank, balance = opening - Σ debits + Σ credits. With C1 to C3 the sum
of a difference is the difference of the sums, and M becomes

    opening(X) - Σ debits(X, t2) + Σ credits(X, t2)
    + opening(Y) - Σ debits(Y, t1) + Σ credits(Y, t1) - Σ debits(Y, t3) + Σ debits(Y, t1)
    + Σ debits(X, t2) - Σ credits(Y, t1) + Σ debits(Y, t3) - Σ credits(X, t2)
    = opening(X) + opening(Y).

Two snapshots are not enough: the later one may contain credits of transfers that the earlier one
had not debited yet. The differences are of *ids*, so a transfer credited twice is surplus money,
and not one debit fewer in transit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NAMED = 3
"""Number of wrong ids that a finding lists."""


@dataclass(frozen=True, slots=True)
class Books:
    """One snapshot of a bank.

    Args:
        balance: sum over all accounts.
        debits: amounts of debited transfers by id.
        credits: amounts of credited transfers by id.
    """

    bank: str
    balance: int
    debits: Mapping[str, int]
    credits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """The result of three snapshots.

    Args:
        on_the_way: amounts of transfers in transit, by id.
        money: total in both banks and in transit.
        findings: violations of the invariant.
    """

    debited: int
    credited: int
    on_the_way: Mapping[str, int]
    money: int
    findings: tuple[str, ...]


def examine(first: Books, between: Books, last: Books, start: int) -> Sample:
    """Check the invariant on three consecutive snapshots.

    Args:
        first: of one bank.
        between: of the other, taken later.
        last: of the first one again, taken later still.
        start: opening total of both banks.
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
    """Return a finding for ids of `inner` that `outer` lacks."""
    wrong = sorted(inner.keys() - outer.keys())
    if not wrong:
        return []
    named = ", ".join(wrong[:NAMED]) + (", …" if len(wrong) > NAMED else "")
    return [f"{len(wrong)} transfers {what} and not debited at {bank}: {named}"]
