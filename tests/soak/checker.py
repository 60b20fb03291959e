"""Finds what must not be in a history.

What makes a call's outputs illegitimate: its process called the function for the same input
again, or a later owner of the transactional.id did. Both only happen after a look at the committed
offsets that did not cover the input, so the earlier call had been given up by then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.soak.effects import expected_effects, expected_totals, is_dead
from tests.soak.history import History, Input, Lane, Outcome, Producer, Seen


class Kind(StrEnum):
    """A way in which exactly once can fail."""

    ABORTED_READ = "aborted read"
    TORN = "torn transaction"
    LOST = "lost write"
    DUPLICATE = "duplicate"
    REORDERED = "order violation"
    WENT_BACK = "offset going back"
    HANGING = "hanging transaction"
    DISAGREEMENT = "readers disagree"
    UNEXPECTED = "unexpected output"
    WRONG_STATE = "wrong state"


@dataclass(frozen=True)
class Anomaly:
    """One thing that must not be."""

    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


def check(history: History) -> list[Anomaly]:
    """Return every anomaly of a run that was left to process its whole input."""
    index = _Index(history)
    checks = (
        _unexpected,
        _lost_and_doubled,
        _wrong_dead_letters,
        _aborted_reads,
        _superseded_calls,
        _superseded_owners,
        _torn_calls,
        _torn_offsets,
        _reordered,
        _went_back,
        _hanging,
        _disagreements,
        _wrong_totals,
    )
    return [anomaly for one in checks for anomaly in one(index)]


class _Index:
    """A history, with what several checks look up."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.producers: dict[tuple[Lane, int], tuple[Producer, Outcome]] = {
            ((batch.side, batch.partition), offset): (batch.producer, batch.outcome)
            for batch in history.written
            for offset in range(batch.first, batch.last + 1)
        }
        self.visible: dict[Input, list[Seen]] = defaultdict(list)
        for seen in history.committed:
            self.visible[seen.input].append(seen)
        self.last_call: dict[tuple[str, Input], int] = {
            (process, called): number
            for process, calls in history.journals.items()
            for number, called in enumerate(calls, 1)
        }

    def number(self, place: Input) -> int | None:
        numbers = self.history.inputs.get(place.partition, ())
        return numbers[place.offset] if 0 <= place.offset < len(numbers) else None

    def producer(self, seen: Seen) -> Producer | None:
        known = self.producers.get((seen.lane, seen.offset))
        return known and known[0]


def _unexpected(index: _Index) -> Iterator[Anomaly]:
    for seen in index.history.committed:
        number = index.number(seen.input)
        effects = [] if number is None else expected_effects(number)
        if seen.index >= len(effects) or effects[seen.index].side != seen.side:
            yield Anomaly(Kind.UNEXPECTED, f"{seen} says output {seen.index} of {seen.input}")


def _lost_and_doubled(index: _Index) -> Iterator[Anomaly]:
    for partition, numbers in index.history.inputs.items():
        for offset, number in enumerate(numbers):
            place = Input(partition, offset)
            visible = index.visible.get(place, [])
            found = Counter(seen.index for seen in visible)
            for output in range(len(expected_effects(number))):
                if not found[output]:
                    yield Anomaly(Kind.LOST, f"output {output} of {place} is not there")
                elif found[output] > 1:
                    where = ", ".join(str(seen) for seen in visible if seen.index == output)
                    yield Anomaly(Kind.DUPLICATE, f"output {output} of {place} is at {where}")


def _wrong_dead_letters(index: _Index) -> Iterator[Anomaly]:
    times = Counter(index.history.dead)
    for partition, numbers in index.history.inputs.items():
        for offset, number in enumerate(numbers):
            place = Input(partition, offset)
            found, expected = times.pop(place, 0), int(is_dead(number))
            if found != expected:
                more = Kind.DUPLICATE if expected else Kind.UNEXPECTED
                kind = Kind.LOST if found < expected else more
                yield Anomaly(kind, f"{place} has {found} dead letters, expected {expected}")
    for place in times:
        yield Anomaly(Kind.UNEXPECTED, f"a dead letter is of {place}, which is not there")


def _aborted_reads(index: _Index) -> Iterator[Anomaly]:
    """A reader got what no marker has committed."""
    for reader, got in (
        ("the concurrent reader", index.history.concurrent),
        ("the final reader", index.history.committed),
    ):
        for seen in got:
            _, outcome = index.producers.get((seen.lane, seen.offset), (None, "not in the log"))
            if outcome is not Outcome.COMMITTED:
                yield Anomaly(Kind.ABORTED_READ, f"{reader} got {seen}, which is {outcome}")


def _superseded_calls(index: _Index) -> Iterator[Anomaly]:
    """Visible is what the process itself has given up and called again."""
    for seen in index.history.committed:
        process, _, number = seen.attempt.partition(".")
        last = index.last_call.get((process, seen.input))
        if last is None:
            yield Anomaly(Kind.UNEXPECTED, f"{seen} names call {seen.attempt}, which nobody made")
        elif last > int(number):
            yield Anomaly(
                Kind.ABORTED_READ,
                f"{seen} is of call {seen.attempt} for {seen.input}, which was given up: call "
                f"{process}.{last} followed",
            )


def _superseded_owners(index: _Index) -> Iterator[Anomaly]:
    """Visible is what a later owner of the transactional.id has taken for undone."""
    latest: dict[tuple[Input, int], int] = {}
    for seen in index.history.uncommitted:
        if (producer := index.producer(seen)) is not None:
            known = latest.get((seen.input, producer.id), -1)
            latest[seen.input, producer.id] = max(known, producer.epoch)
    for seen in index.history.committed:
        if (producer := index.producer(seen)) is None:
            continue
        last = latest.get((seen.input, producer.id), producer.epoch)
        if producer.epoch < last:
            yield Anomaly(
                Kind.ABORTED_READ,
                f"{seen} of {seen.input} was written in epoch {producer.epoch}, and the owner of "
                f"epoch {last} wrote it again",
            )


def _torn_calls(index: _Index) -> Iterator[Anomaly]:
    """Some outputs of one call are visible, others of it are not."""
    for place, visible in index.visible.items():
        number = index.number(place)
        if number is None:
            continue
        wanted = set(range(len(expected_effects(number))))
        for attempt in {seen.attempt for seen in visible}:
            there = {seen.index for seen in visible if seen.attempt == attempt}
            if there < wanted:
                yield Anomaly(
                    Kind.TORN,
                    f"of call {attempt} for {place} only outputs {sorted(there)} of "
                    f"{sorted(wanted)} are visible",
                )


def _torn_offsets(index: _Index) -> Iterator[Anomaly]:
    """An input's outputs and its offset were not committed by one and the same producer."""
    committed = [o for o in index.history.offsets_written if o.outcome is Outcome.COMMITTED]
    owners: dict[Input, Producer] = {}
    reached: dict[int, int] = defaultdict(int)
    for written in committed:
        partition, end = written.input
        for offset in range(reached[partition], end):
            owners[Input(partition, offset)] = written.producer
        reached[partition] = max(reached[partition], end)
    for partition, numbers in index.history.inputs.items():
        if reached[partition] != len(numbers):
            yield Anomaly(
                Kind.TORN,
                f"input {partition} has {len(numbers)} records, and its committed offset is "
                f"{reached[partition]}",
            )
    for place, visible in index.visible.items():
        owner = owners.get(place)
        for seen in visible:
            producer = index.producer(seen)
            if owner is None:
                yield Anomaly(Kind.TORN, f"{seen} is visible, the offset of {place} is not")
            elif producer is not None and producer != owner:
                yield Anomaly(
                    Kind.TORN,
                    f"{seen} was committed by {producer}, the offset of {place} by {owner}",
                )


def _reordered(index: _Index) -> Iterator[Anomaly]:
    last: dict[tuple[Lane, int], tuple[int, int]] = {}
    for seen in index.history.committed:
        way = seen.lane, seen.input.partition
        place = seen.input.offset, seen.index
        if place < last.get(way, (-1, -1)):
            yield Anomaly(
                Kind.REORDERED,
                f"{seen} is output {seen.index} of {seen.input}; before it is output "
                f"{last[way][1]} of offset {last[way][0]}",
            )
        last[way] = place


def _went_back(index: _Index) -> Iterator[Anomaly]:
    taken = [o for o in index.history.offsets_written if o.outcome is Outcome.COMMITTED]
    yield from _backwards("in the broker's log", [written.input for written in taken])
    yield from _backwards("as the group was asked", index.history.polled)


def _backwards(where: str, offsets: Sequence[Input]) -> Iterator[Anomaly]:
    reached: dict[int, int] = {}
    for partition, offset in offsets:
        if offset < reached.get(partition, 0):
            yield Anomaly(
                Kind.WENT_BACK,
                f"the committed offset of input {partition}, {where}, went from "
                f"{reached[partition]} to {offset}",
            )
        reached[partition] = offset


def _hanging(index: _Index) -> Iterator[Anomaly]:
    for name in index.history.open_transactional_ids:
        yield Anomaly(Kind.HANGING, f"the transaction of {name} is open")
    for batch in index.history.written:
        if batch.outcome is Outcome.OPEN:
            place = f"{batch.side}[{batch.partition}]@{batch.first}"
            yield Anomaly(Kind.HANGING, f"{place} by {batch.producer} has no marker")
    for written in index.history.offsets_written:
        if written.outcome is Outcome.OPEN:
            place = f"offset {written.input.offset} of input {written.input.partition}"
            yield Anomaly(Kind.HANGING, f"{place} by {written.producer} has no marker")


def _disagreements(index: _Index) -> Iterator[Anomaly]:
    final = _by_lane(index.history.committed)
    along = _by_lane(index.history.concurrent)
    decided = _by_lane(
        [
            seen
            for seen in index.history.uncommitted
            if index.producers.get((seen.lane, seen.offset), (None, None))[1] is Outcome.COMMITTED
        ]
    )
    for other, got in (("the concurrent reader", along), ("the log with its markers", decided)):
        for lane in final.keys() | got.keys():
            mine, theirs = final.get(lane, []), got.get(lane, [])
            if mine != theirs:
                at = next(
                    (i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b),
                    min(len(mine), len(theirs)),
                )
                yield Anomaly(
                    Kind.DISAGREEMENT,
                    f"{lane[0]}[{lane[1]}]: the final reader has {len(mine)} records, {other} "
                    f"{len(theirs)}; they differ from record {at} on",
                )


def _wrong_totals(index: _Index) -> Iterator[Anomaly]:
    """An output does not carry the total that the inputs of its key make."""
    totals = {p: expected_totals(numbers) for p, numbers in index.history.inputs.items()}
    for seen in index.history.committed:
        if index.number(seen.input) is None:
            continue
        expected = totals[seen.input.partition][seen.input.offset]
        if seen.total != expected:
            yield Anomaly(
                Kind.WRONG_STATE,
                f"{seen} of {seen.input} carries {seen.total}; its key's inputs make {expected}",
            )


def _by_lane(got: Sequence[Seen]) -> Mapping[Lane, list[Seen]]:
    lanes: dict[Lane, list[Seen]] = defaultdict(list)
    for seen in got:
        lanes[seen.lane].append(seen)
    return lanes
