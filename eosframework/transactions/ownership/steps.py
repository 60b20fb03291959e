"""The steps of recorded ownership, as docs/model/ownership.pml proves them.

    K1  add an entry for each task, under a new token; wait for the acknowledgement
    K0  init one's own ids: a process with one of these ids and an earlier entry is fenced; one that
        inits it afterwards sees a later entry
    K2  read the topic to its end. If one's entry is gone, or a later one is there: give up
    K3  init every other id of an earlier entry
    K4  remove exactly the entries found in K2
    K5  read the stable committed offsets
    K6  after every further init of one's own id: read the topic. A task whose entry is gone or not
        the latest is claimed anew

A release removes one's own entry, after a clean commit. K0 and K3 are calls of the producers, K5 of
the consumer; the others are here.

Without K1 before K2, two takers do not see each other. Without the order of entries, a taker that
was suspended after K1 fences and removes its successor. Without K6, an owner whose id was fenced
resumes although its entry was removed, and the next taker does not find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
        superseded: claims whose entry is gone, or is not the latest of its input.
        earlier: entries before one's own, of the other claims' inputs.
    """

    superseded: tuple[Claim, ...]
    earlier: tuple[Entry, ...]

    def ids(self, own: Iterable[str]) -> list[str]:
        """Return the ids to init (K3): those of earlier entries that K0 has not inited.

        Args:
            own: the ids inited in K0.
        """
        return sorted({entry.claim.transactional_id for entry in self.earlier} - set(own))


def add(log: OwnershipLog, claims: Sequence[Claim]) -> None:
    """Add an entry for each claim, with one request (K1)."""
    log.write({claim.key: claim.value for claim in claims})


def look(log: OwnershipLog, claims: Sequence[Claim]) -> Found:
    """Read the topic to its end, and compare each claim with the other entries (K2, K6)."""
    entries = parse(log.read(), log.topic)
    offsets = {entry.claim.key: entry.offset for entry in entries}
    rivals = by_input(entries)
    superseded: list[Claim] = []
    earlier: dict[bytes, Entry] = {}
    for claim in claims:
        own = offsets.get(claim.key)
        others = [entry for partition in claim.inputs for entry in rivals.get(partition, ())]
        if own is None or any(entry.offset > own for entry in others):
            superseded.append(claim)
        else:
            earlier.update({e.claim.key: e for e in others if e.offset < own})
    return Found(tuple(superseded), tuple(earlier.values()))


def remove(log: OwnershipLog, claims: Sequence[Claim]) -> None:
    """Remove exactly these entries: those that were fenced (K4), or one's own (release)."""
    if claims:
        log.write(dict.fromkeys((claim.key for claim in claims), None))
