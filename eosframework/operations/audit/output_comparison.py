"""The comparison of expected outputs with the records found.

1. match      each found record with an equal expected one, oldest first
2. lost       expected outputs without a match
   duplicated found records without a match
   torn       input records with some outputs matched and others not, and found records of input
              whose offset is not committed
   reordered  matched records that follow one of a later input record, by input partition and
              output partition

Equal records cannot be distinguished, so records expected more than once are counted but not
checked for order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eosframework.operations.audit.audit_verdict import DETAILS_OF_A_KIND, Detail, Details, Verdict
from eosframework.operations.audit.digest_ledger import BUCKETS, Ledger
from eosframework.records import TopicPartition


def compare(
    expected: Ledger,
    found: Ledger,
    matching: Matching | None = None,
    *,
    input_records: int,
    required: int | None = None,
    ahead: Ledger | None = None,
    input_trimmed: bool = False,
    only_a_part: bool = False,
    borders: Mapping[TopicPartition, Sequence[int]] | None = None,
    notes: tuple[str, ...] = (),
) -> Verdict:
    """Return the verdict (step 2).

    Args:
        expected: the outputs of the input, in input order.
        found: the records of the output topics, each partition in order.
        matching: result of `match`. None: match now.
        input_records: number of input records of `expected`.
        required: leading part of `expected` that must exist; the rest belongs to records processed
            while the audit ran. None: all.
        ahead: outputs of input records from the committed offsets on.
        input_trimmed: the input lost its first records, so a found record without an equal expected
            one proves nothing.
        only_a_part: `expected` covers a part of the input; such a record belongs to another part.
        borders: by input partition, ascending offsets at which another stretch of input begins; the
            order between outputs of different stretches is free. None: there is one stretch.
        notes: remarks for readers of the counts.
    """
    matching = matching or match(expected, found)
    required = len(expected) if required is None else required
    details = Details()
    lost, torn = _missing(expected, matching, required, details)
    uncommitted = _uncommitted(found, matching, ahead, details)
    unexplained = [index for index in matching.unexplained if index not in uncommitted]
    others = 0 if only_a_part else len(unexplained)
    unexpected = 0 if input_trimmed else others
    _report_copies(expected, found, matching, details)
    for index in unexplained[: DETAILS_OF_A_KIND if unexpected else 0]:
        name = found.name(index)
        details.add(Detail("duplicated", f"{name} comes from no input record", output=name))
    return Verdict(
        input=input_records,
        output=matching.matched + len(matching.copies) if only_a_part else len(found),
        lost=lost,
        duplicated=len(matching.copies) + unexpected,
        reordered=_reordered(expected, found, matching, details, borders or {}),
        torn=torn + len(set(uncommitted.values())),
        unexpected=unexpected,
        untraced=others if input_trimmed else 0,
        details=details.sorted(),
        notes=notes,
    )


def _missing(
    expected: Ledger, matching: Matching, required: int, details: Details
) -> tuple[int, int]:
    """Count lost outputs, and input records with only some outputs lost."""
    lost = torn = 0
    runs: dict[int, _Run] = {}
    for start, stop in _inputs(expected, required):
        partition = expected.place(start)[0]
        missing = sum(matching.found_as[index] == NONE for index in range(start, stop))
        lost += missing
        if missing == stop - start:
            runs.setdefault(partition, _Run(start)).add(start, missing)
            continue
        if partition in runs:
            details.add(runs.pop(partition).lost(expected))
        if missing:
            torn += 1
            _report_torn(expected.name(start), missing, stop - start, details)
    for run in runs.values():
        details.add(run.lost(expected))
    return lost, torn


def _inputs(expected: Ledger, required: int) -> Iterator[tuple[int, int]]:
    """Yield the outputs of each input record, as the first index and the one after the last."""
    start = 0
    for index in range(1, required):
        if expected.place(index) != expected.place(start):
            yield start, index
            start = index
    if required:
        yield start, required


@dataclass(slots=True)
class _Run:
    """Consecutive input records that lost all outputs, as the indexes of their first outputs."""

    first: int
    last: int = 0
    inputs: int = 0
    outputs: int = 0

    def add(self, index: int, outputs: int) -> None:
        self.last = index
        self.inputs += 1
        self.outputs += outputs

    def lost(self, expected: Ledger) -> Detail:
        name = expected.name(self.first)
        if self.inputs == 1:
            what = (
                f"all {self.outputs:,} outputs of {name} are"
                if self.outputs > 1
                else (f"the output of {name} is")
            )
            return Detail("lost", f"{what} not there", name)
        through = expected.name(self.last)
        text = (
            f"all {self.outputs:,} outputs of {self.inputs:,} input records in a row, {name} to "
            f"{through}, are not there"
        )
        return Detail("lost", text, name, through)


def _report_torn(name: str, missing: int, count: int, details: Details) -> None:
    verb = "is" if missing == 1 else "are"
    details.add(Detail("lost", f"{missing} of {count} outputs of {name} {verb} not there", name))
    details.add(Detail("torn", f"{name}: only a part of its outputs is there", name))


def _report_copies(expected: Ledger, found: Ledger, matching: Matching, details: Details) -> None:
    copies = sorted(matching.copies.items(), key=lambda item: (item[1], item[0]))
    for run in _runs_of_copies(copies, expected):
        index, original = run[0]
        name, place = expected.name(original), found.name(index)
        if expected.place(original) == expected.place(run[-1][1]):
            for index, original in run:
                first = found.name(matching.found_as[original])
                text = f"{found.name(index)} repeats {first}, the output of {name}"
                details.add(Detail("duplicated", text, name, output=found.name(index)))
            continue
        through = expected.name(run[-1][1])
        text = f"all {len(run):,} outputs of {name} to {through} are there again, from {place} on"
        details.add(Detail("duplicated", text, name, through, place))


def _runs_of_copies(
    copies: list[tuple[int, int]], expected: Ledger
) -> Iterator[list[tuple[int, int]]]:
    """Yield runs of copies whose originals follow each other in one input partition."""
    run: list[tuple[int, int]] = []
    for copy in copies:
        if run and (
            copy[1] != run[-1][1] + 1 or expected.place(copy[1])[0] != expected.place(run[-1][1])[0]
        ):
            yield run
            run = []
        run.append(copy)
    if run:
        yield run


def _uncommitted(
    found: Ledger, matching: Matching, ahead: Ledger | None, details: Details
) -> Mapping[int, tuple[int, int]]:
    """Return the found records of input from the committed offsets on."""
    if ahead is None or not matching.unexplained:
        return {}
    wanted = {found.digest(index): index for index in reversed(matching.unexplained)}
    uncommitted: dict[int, tuple[int, int]] = {}
    for index in range(len(ahead)):
        place = wanted.pop(ahead.digest(index), None)
        if place is not None:
            uncommitted[place] = ahead.place(index)
            name, output = ahead.name(index), found.name(place)
            text = f"{output} is visible, but the offset after its input {name} is not committed"
            details.add(Detail("torn", text, name, output=output))
    return uncommitted


def _reordered(
    expected: Ledger,
    found: Ledger,
    matching: Matching,
    details: Details,
    borders: Mapping[TopicPartition, Sequence[int]],
) -> int:
    latest: dict[tuple[int, int, int], int] = {}
    reordered = 0
    for index, origin in enumerate(matching.origin):
        if origin == NONE or matching.alike[origin]:
            continue
        input_partition, offset = expected.place(origin)
        stretch = bisect_right(borders.get(expected.partition(input_partition), ()), offset)
        route = (input_partition, stretch, found.place(index)[0])
        before = latest.get(route, NONE)
        if offset >= before:
            latest[route] = offset
            continue
        reordered += 1
        name, output = expected.name(origin), found.name(index)
        text = (
            f"{output}, the output of {name}, comes after an output of "
            f"{expected.partition(input_partition)}@{before}"
        )
        details.add(Detail("reordered", text, name, output=output))
    return reordered


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
