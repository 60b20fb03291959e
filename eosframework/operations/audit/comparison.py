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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eosframework.operations.audit.ledger import Ledger
from eosframework.operations.audit.matching import NONE, Matching, match
from eosframework.operations.audit.verdict import DETAILS_OF_A_KIND, Detail, Details, Verdict


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
        only_a_part: `expected` is of a part of the input, so that such a record is of another.
        notes: what else a reader of the numbers must know.
    """
    matching = matching or match(expected, found)
    required = len(expected) if required is None else required
    details = Details()
    lost, torn = _missing(expected, matching, required, details)
    uncommitted = _uncommitted(found, matching, ahead, details)
    unexplained = [index for index in matching.unexplained if index not in uncommitted]
    others = 0 if only_a_part else len(unexplained)
    unexpected = 0 if input_trimmed else others
    _say_copies(expected, found, matching, details)
    for index in unexplained[: DETAILS_OF_A_KIND if unexpected else 0]:
        name = found.name(index)
        details.add(Detail("duplicated", f"{name} comes from no input record", output=name))
    return Verdict(
        input=input_records,
        output=matching.matched + len(matching.copies) if only_a_part else len(found),
        lost=lost,
        duplicated=len(matching.copies) + unexpected,
        reordered=_reordered(expected, found, matching, details),
        torn=torn + len(set(uncommitted.values())),
        unexpected=unexpected,
        untraced=others if input_trimmed else 0,
        details=details.sorted(),
        notes=notes,
    )


def _missing(
    expected: Ledger, matching: Matching, required: int, details: Details
) -> tuple[int, int]:
    """Count outputs that are lost, and input records of which only some are."""
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
            _say_torn(expected.name(start), missing, stop - start, details)
    for run in runs.values():
        details.add(run.lost(expected))
    return lost, torn


def _inputs(expected: Ledger, required: int) -> Iterator[tuple[int, int]]:
    """Yield the outputs of each input record, as the first index and one behind the last."""
    start = 0
    for index in range(1, required):
        if expected.place(index) != expected.place(start):
            yield start, index
            start = index
    if required:
        yield start, required


@dataclass(slots=True)
class _Run:
    """Input records in a row that share a fate, as the indexes of their first outputs."""

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


def _say_torn(name: str, missing: int, count: int, details: Details) -> None:
    verb = "is" if missing == 1 else "are"
    details.add(Detail("lost", f"{missing} of {count} outputs of {name} {verb} not there", name))
    details.add(Detail("torn", f"{name}: only a part of its outputs is there", name))


def _say_copies(expected: Ledger, found: Ledger, matching: Matching, details: Details) -> None:
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
    """Yield copies of outputs that follow each other in one input partition, once each."""
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
    """Return the found records that come from input behind the committed positions."""
    if ahead is None or not matching.unexplained:
        return {}
    wanted = {found.digest(index): index for index in reversed(matching.unexplained)}
    uncommitted: dict[int, tuple[int, int]] = {}
    for index in range(len(ahead)):
        place = wanted.pop(ahead.digest(index), None)
        if place is not None:
            uncommitted[place] = ahead.place(index)
            name, output = ahead.name(index), found.name(place)
            text = f"{output} is there, but the position behind its input {name} is not committed"
            details.add(Detail("torn", text, name, output=output))
    return uncommitted


def _reordered(expected: Ledger, found: Ledger, matching: Matching, details: Details) -> int:
    latest: dict[tuple[int, int], int] = {}
    reordered = 0
    for index, origin in enumerate(matching.origin):
        if origin == NONE or matching.alike[origin]:
            continue
        input_partition, offset = expected.place(origin)
        lane = (input_partition, found.place(index)[0])
        before = latest.get(lane, NONE)
        if offset >= before:
            latest[lane] = offset
            continue
        reordered += 1
        name, output = expected.name(origin), found.name(index)
        text = (
            f"{output}, the output of {name}, comes after an output of "
            f"{expected.partition(input_partition)}@{before}"
        )
        details.add(Detail("reordered", text, name, output=output))
    return reordered
