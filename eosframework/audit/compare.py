"""Compares what must be in the outputs with what is, record by record.

1. match      each found record with an expected one that is equal, oldest first
2. lost       expected ones without a match
   duplicated found ones without a match
   torn       input records of which some outputs have a match and others have not, and found
              records that come from input whose position is not committed
   reordered  matched ones that come after one of a later input record, by input partition and
              output partition

Equal records cannot be told apart, so those expected more than once are counted but say nothing
about order.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from eosframework.audit.ledger import BUCKETS, Ledger
from eosframework.audit.verdict import Examples, Verdict

_NONE = -1


@dataclass(slots=True)
class Matching:
    """Which found record is which expected one.

    Args:
        origin: by found record, the index of the expected one.
        found_as: by expected record, the index of the found one.
        alike: by expected record, whether another expected one equals it.
        copies: found records that equal an expected one which has its match already, each with
            the index of that one.
        unexplained: found records that equal no expected one.
    """

    origin: array[int]
    found_as: array[int]
    alike: bytearray
    copies: dict[int, int] = field(default_factory=dict[int, int])
    unexplained: list[int] = field(default_factory=list[int])


def match(expected: Ledger, found: Ledger) -> Matching:
    """Match the found records with the expected ones (step 1)."""
    matching = Matching(
        origin=array("q", [_NONE]) * len(found),
        found_as=array("q", [_NONE]) * len(expected),
        alike=bytearray(len(expected)),
    )
    for bucket in range(BUCKETS):
        _match_bucket(bucket, expected, found, matching)
    matching.unexplained.sort()
    return matching


def compare(
    expected: Ledger,
    found: Ledger,
    matching: Matching | None = None,
    *,
    input_records: int,
    required: int | None = None,
    ahead: Ledger | None = None,
    input_trimmed: bool = False,
    notes: tuple[str, ...] = (),
) -> Verdict:
    """Return the verdict (step 2).

    Args:
        expected: the outputs of the input, in its order.
        found: the records of the output topics, each partition in its order.
        matching: as `match` returns it. None: match now.
        input_records: how many input records `expected` comes from.
        required: how many of `expected` must be there, from its start; the others are of
            records that were processed while the audit ran. None: all.
        ahead: outputs of input records behind the committed positions.
        input_trimmed: the input no longer has its first records, so that a found record that
            equals no expected one says nothing.
        notes: what else a reader of the numbers must know.
    """
    matching = matching or match(expected, found)
    required = len(expected) if required is None else required
    examples = Examples()
    lost, torn = _missing(expected, matching, required, examples)
    uncommitted = _uncommitted(found, matching, ahead, examples)
    unexplained = [index for index in matching.unexplained if index not in uncommitted]
    duplicated = _copies(expected, found, matching, examples)
    if not input_trimmed:
        duplicated += len(unexplained)
        for index in unexplained[:10]:
            examples.add("duplicated", f"{found.name(index)} comes from no input record")
    return Verdict(
        input=input_records,
        output=len(found),
        lost=lost,
        duplicated=duplicated,
        reordered=_reordered(expected, found, matching, examples),
        torn=torn + len(set(uncommitted.values())),
        untraced=len(unexplained) if input_trimmed else 0,
        examples=tuple(examples.sorted()),
        notes=notes,
    )


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


def _missing(
    expected: Ledger, matching: Matching, required: int, examples: Examples
) -> tuple[int, int]:
    """Count outputs that are lost, and input records of which only some are."""
    lost = 0
    torn: set[tuple[int, int]] = set()
    for index in range(required):
        if matching.found_as[index] != _NONE:
            continue
        lost += 1
        examples.add("lost", f"an output of {expected.name(index)} is not there")
        place = expected.place(index)
        sibling = None if place in torn else _visible_sibling(expected, matching, index, required)
        if sibling is not None:
            torn.add(place)
            examples.add("torn", f"{expected.name(index)}: only a part of its outputs is there")
    return lost, len(torn)


def _visible_sibling(expected: Ledger, matching: Matching, index: int, required: int) -> int | None:
    """Return an output of the same input record that is there; siblings are neighbours."""
    place = expected.place(index)
    for step in (-1, 1):
        other = index + step
        while 0 <= other < required and expected.place(other) == place:
            if matching.found_as[other] != _NONE:
                return other
            other += step
    return None


def _copies(expected: Ledger, found: Ledger, matching: Matching, examples: Examples) -> int:
    for index, original in sorted(matching.copies.items())[:10]:
        first = matching.found_as[original]
        examples.add(
            "duplicated",
            f"{found.name(index)} repeats {found.name(first)}, the output of "
            f"{expected.name(original)}",
        )
    return len(matching.copies)


def _uncommitted(
    found: Ledger, matching: Matching, ahead: Ledger | None, examples: Examples
) -> Mapping[int, tuple[int, int]]:
    """Return the found records that come from input behind the committed positions."""
    if ahead is None or not matching.unexplained:
        return {}
    wanted = {found.digest(index): index for index in reversed(matching.unexplained)}
    uncommitted: dict[int, tuple[int, int]] = {}
    for index in range(len(ahead)):
        place = wanted.pop(ahead.digest(index), None)
        if place is not None:
            uncommitted[place] = ahead.place(index)
            examples.add(
                "torn",
                f"{found.name(place)} is there, but the position behind its input "
                f"{ahead.name(index)} is not committed",
            )
    return uncommitted


def _reordered(expected: Ledger, found: Ledger, matching: Matching, examples: Examples) -> int:
    latest: dict[tuple[int, int], int] = {}
    reordered = 0
    for index, origin in enumerate(matching.origin):
        if origin == _NONE or matching.alike[origin]:
            continue
        input_partition, offset = expected.place(origin)
        lane = (input_partition, found.place(index)[0])
        before = latest.get(lane, _NONE)
        if offset >= before:
            latest[lane] = offset
            continue
        reordered += 1
        examples.add(
            "reordered",
            f"{found.name(index)}, the output of {expected.name(origin)}, comes after an output "
            f"of {expected.partition(input_partition)}@{before}",
        )
    return reordered
