"""The final check of all transfers, by the ledgers of both banks, with none in transit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple


class Entry(NamedTuple):
    """A line of a ledger."""

    id: str
    debited: str
    credited: str
    amount: int


@dataclass(frozen=True, slots=True)
class Ledgers:
    """A bank at rest.

    Args:
        accounts: balances by account.
        debits: outgoing transfers, in order.
        credits: incoming transfers, in order.
    """

    accounts: Mapping[str, int]
    debits: Sequence[Entry]
    credits: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison of the ledgers of two banks.

    Args:
        transfers: number of debited transfers.
        lost: ids debited and not credited, or confirmed to a teller and in no ledger.
        duplicated: ids credited more than once.
        invented: ids credited without an equal debit.
        reordered: accounts whose transfers were credited in another order than debited.
        misbooked: accounts whose balance differs from opening balance, debits and credits.
        money: total of both banks.
    """

    transfers: int
    lost: Sequence[str]
    duplicated: Sequence[str]
    invented: Sequence[str]
    reordered: Sequence[str]
    misbooked: Sequence[str]
    money: int

    @property
    def clean(self) -> bool:
        """True if each transfer took effect once, and in order."""
        return not any(names for names in self.wrong().values())

    def wrong(self) -> dict[str, Sequence[str]]:
        """Return the faults by kind."""
        return {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "invented": self.invented,
            "reordered": self.reordered,
            "misbooked": self.misbooked,
        }


def judge(
    banks: tuple[Ledgers, Ledgers], opening: Mapping[str, int], confirmed: Set[str]
) -> Verdict:
    """Compare the ledgers of two banks with each other, and with their balances.

    Args:
        banks: both.
        opening: opening balances of all accounts of both.
        confirmed: ids confirmed to a teller.
    """
    debited = {entry.id: entry for bank in banks for entry in bank.debits}
    credited = Counter(entry.id for bank in banks for entry in bank.credits)
    invented = {
        entry.id
        for sender, receiver in (banks, banks[::-1])
        for entry in set(receiver.credits) - set(sender.debits)
    }
    accounts = {account: balance for bank in banks for account, balance in bank.accounts.items()}
    return Verdict(
        transfers=len(debited),
        lost=sorted((debited.keys() | confirmed) - credited.keys()),
        duplicated=sorted(id_ for id_, times in credited.items() if times > 1),
        invented=sorted(invented),
        reordered=[*_reordered(*banks), *_reordered(*banks[::-1])],
        misbooked=_misbooked(accounts, opening, banks),
        money=sum(accounts.values()),
    )


def _reordered(sender: Ledgers, receiver: Ledgers) -> list[str]:
    """Return the accounts whose transfers changed order in transit."""
    place = {entry.id: number for number, entry in enumerate(sender.debits)}
    arrived: dict[str, list[int]] = defaultdict(list)
    for entry in receiver.credits:
        if entry.id in place:
            arrived[entry.debited].append(place[entry.id])
    return sorted(account for account, order in arrived.items() if order != sorted(order))


def _misbooked(
    accounts: Mapping[str, int], opening: Mapping[str, int], banks: tuple[Ledgers, Ledgers]
) -> list[str]:
    expected = Counter(opening)
    for bank in banks:
        for entry in bank.debits:
            expected[entry.debited] -= entry.amount
        for entry in bank.credits:
            expected[entry.credited] += entry.amount
    known = {*accounts, *expected}
    return sorted(name for name in known if accounts.get(name) != expected[name])
