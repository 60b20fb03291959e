"""The steps of recorded ownership, as docs/model/ownership.pml proves them.

    K0  read the entries of one's own ids, then init these ids
    K1  add an entry for each task, under a new token; wait for the acknowledgement
    K2  read the topic to its end
    K3  init every other id of an entry for the same input
    K4  remove exactly the entries that were read before an init of their id: those of other ids
        found in K2, those of one's own ids found in K0
    K5  read the stable committed offsets
    K6  after every further init of one's own id: write an entry for each of its tasks under a new
        token, in place of the earlier one, before anything else is written

A release removes one's own entry, after a clean commit. The inits are calls of the producers, K5 of
the consumer; the others are here.

So every id that may write for an input is listed. That a worker which lost its partitions cannot
commit, although it inits its id and lists itself anew, follows from the group: offsets are sent
under the membership of the assignment (`InputLog.membership`), which the group has ended.

Without the init before the entry, a taker removes the entry of an id that is inited afterwards.
Without K6, an owner whose id was fenced resumes although its entry was removed. Without the reading
in K0, a process that crashes again and again leaves an entry each time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eosframework.transactions.ownership.entries import (
    Claim,
    Entry,
    Stored,
    by_input,
    parse,
)


class OwnershipLog(Protocol):
    """The ownership topic of an application."""

    @property
    def topic(self) -> str:
        """Its name."""
        ...

    def write(self, values: Mapping[bytes, bytes | None]) -> None:
        """Write a record for each key, outside any transaction; None removes the record.

        Returns when all in-sync replicas have them.

        Raises:
            Retriable: they were not acknowledged in time; they may arrive later.
        """
        ...

    def read(self) -> Stored:
        """Return all records that were written before this call and are not removed.

        Raises:
            Retriable: they could not be read in time.
            RunError: the topic is not the one that the application has recorded.
        """
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """The content of the topic, as one process with claims sees it (K2).

    Args:
        removed: claims whose entry is gone.
        others: entries of other processes about the inputs of the claims.
    """

    removed: tuple[Claim, ...]
    others: tuple[Entry, ...]


def read_ids(log: OwnershipLog, ids: Collection[str]) -> frozenset[bytes]:
    """Return the keys of the entries of some ids, before these are inited (K0)."""
    entries = parse(log.read(), log.topic)
    return frozenset(e.claim.key for e in entries if e.claim.transactional_id in ids)


def add(log: OwnershipLog, claims: Sequence[Claim], instead_of: Iterable[Claim] = ()) -> None:
    """Add an entry for each claim, and remove earlier ones, with one request (K1, K6)."""
    removed: dict[bytes, bytes | None] = dict.fromkeys(claim.key for claim in instead_of)
    log.write({claim.key: claim.value for claim in claims} | removed)


def look(log: OwnershipLog, claims: Sequence[Claim]) -> Found:
    """Read the topic to its end, and find the entries of other processes (K2)."""
    entries = parse(log.read(), log.topic)
    keys = {entry.claim.key for entry in entries}
    own = {claim.key for claim in claims}
    entries_by_input = by_input(entries)
    others = {
        entry.claim.key: entry
        for claim in claims
        for partition in claim.inputs
        for entry in entries_by_input.get(partition, ())
        if entry.claim.key not in own
    }
    removed = tuple(claim for claim in claims if claim.key not in keys)
    return Found(removed, tuple(others.values()))


def remove(log: OwnershipLog, claims: Sequence[Claim]) -> None:
    """Remove exactly these entries: those that were fenced (K4), or one's own (release)."""
    if claims:
        log.write(dict.fromkeys((claim.key for claim in claims), None))
