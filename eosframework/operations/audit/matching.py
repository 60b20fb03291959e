"""The matching of found records with equal expected ones, oldest first."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from eosframework.operations.audit.ledger import BUCKETS, Ledger

NONE = -1


@dataclass(slots=True)
class Matching:
    """Pairs of found and expected records.

    Args:
        origin: by found record, the index of the expected one.
        found_as: by expected record, the index of the found one.
        alike: by expected record, whether another expected one equals it.
        copies: found records equal to an expected one that already has a match, with its index.
        unexplained: found records equal to no expected one.
    """

    origin: array[int]
    found_as: array[int]
    alike: bytearray
    copies: dict[int, int] = field(default_factory=dict[int, int])
    unexplained: list[int] = field(default_factory=list[int])

    @property
    def matched(self) -> int:
        """Number of found records with a match."""
        return len(self.origin) - self.origin.count(NONE)

    def explain(self, found: Ledger, digests: Iterable[bytes]) -> None:
        """Remove copies that equal outputs of other input records, one for each output."""
        wanted: dict[bytes, list[int]] = {}
        for index in self.copies:
            wanted.setdefault(found.digest(index), []).append(index)
        for digest, count in Counter(d for d in digests if d in wanted).items():
            for index in wanted[digest][:count]:
                self.alike[self.copies.pop(index)] = 1


def match(expected: Ledger, found: Ledger) -> Matching:
    """Match the found records with the expected ones."""
    matching = Matching(
        origin=array("q", [NONE]) * len(found),
        found_as=array("q", [NONE]) * len(expected),
        alike=bytearray(len(expected)),
    )
    for bucket in range(BUCKETS):
        _match_bucket(bucket, expected, found, matching)
    matching.unexplained.sort()
    return matching


def _match_bucket(bucket: int, expected: Ledger, found: Ledger, matching: Matching) -> None:
    waiting: dict[bytes, list[int]] = {}
    for index in expected.bucket(bucket):
        waiting.setdefault(expected.digest(index), []).append(index)
    for alike in waiting.values():
        if len(alike) > 1:
            for index in alike:
                matching.alike[index] = 1
    taken: dict[bytes, int] = {}
    for index in found.bucket(bucket):
        digest = found.digest(index)
        alike = waiting.get(digest)
        if alike is None:
            matching.unexplained.append(index)
            continue
        count = taken.get(digest, 0)
        if count == len(alike):
            matching.copies[index] = alike[-1]
            continue
        taken[digest] = count + 1
        matching.origin[index] = alike[count]
        matching.found_as[alike[count]] = index
