"""The documented differences of joins of two streams; see rules.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.comparison.arrivals import Arrival, arrivals
from tests.comparison.flights import HOUR_MS
from tests.comparison.rules import Changed, Inputs, Output, Sides, by_key

GRACE_MS = 2 * HOUR_MS
REACH_MS = {"left": 8 * HOUR_MS, "right": 0}
"""How far after a record of each side the other one's may be."""

TOPICS = {"departures": "left", "landings": "right"}


class Met(NamedTuple):
    """A record of one side, by its number."""

    side: str
    number: int


def pairs_after_an_interval(sides: Sides) -> Changed:
    """Drop pairs of which one record's interval and grace had passed when the other one came.

    Kafka Streams does not drop late records (KAFKA-16123), and keeps those of both sides for the
    whole interval and the grace. A record that is not late itself, and whose only pairs these were,
    goes on alone.
    """
    seen = _seen(sides.inputs)
    kept: list[Output] = []
    dropped: list[Output] = []
    for output in sides.theirs:
        records = _records(output)
        now = max(seen[record].stream_time for record in records)
        is_over = len(records) == 2 and any(_over(r, seen[r], now) for r in records)
        (dropped if is_over else kept).append(output)
    goes_alone = _sides_alone(sides.ours)
    end = max(arrival.stream_time for arrival in seen.values())
    sent = {record for output in kept for record in _records(output)}
    for output in dropped:
        for record in _records(output):
            arrival = seen[record]
            was_late = _over(record, arrival, arrival.stream_time)
            if record not in sent and not was_late and _over(record, arrival, end):
                sent.add(record)
                if record.side in goes_alone:
                    value = {"left": None, "right": None, record.side: arrival.value}
                    kept.append(Output(arrival.key, value, arrival.at))
    return kept, len(dropped)


def late_records_alone(sides: Sides) -> Changed:
    """Drop records that go on alone although they were late (KAFKA-16123)."""
    seen = _seen(sides.inputs)
    kept: list[Output] = []
    for output in sides.theirs:
        first, *others = _records(output)
        arrival = seen[first]
        if others or not _over(first, arrival, arrival.stream_time):
            kept.append(output)
    return kept, len(sides.theirs) - len(kept)


def alone_at_once_and_paired_afterwards(sides: Sides) -> Changed:
    """Drop records that go on alone before their grace has passed, and are paired afterwards.

    A record further out of order than the interval goes on alone when it arrives (KAFKA-19536).
    """
    seen = _seen(sides.inputs)
    paired = {r for output in sides.theirs if len(_records(output)) == 2 for r in _records(output)}
    kept: list[Output] = []
    for output in sides.theirs:
        first, *others = _records(output)
        arrival = seen[first]
        is_past = arrival.at + REACH_MS[first.side] < arrival.stream_time
        if others or first not in paired or not is_past:
            kept.append(output)
    return kept, len(sides.theirs) - len(kept)


def alone_before_others(sides: Sides) -> Changed:
    """Let records without a pair go on when their grace has passed, after that record's own pairs.

    Kafka Streams sends them before the pairs of the record that moved stream time
    (`KStreamKStreamJoin.process`), and those of KAFKA-19536 at once. Pairs keep their order.
    """
    results: list[Output] = []
    moved = 0
    ours = by_key(sides.ours)
    for key, outputs in by_key(sides.theirs).items():
        wanted = ours.get(key, [])
        same_records = sorted(map(repr, outputs)) == sorted(map(repr, wanted))
        if outputs != wanted and same_records and _pairs(outputs) == _pairs(wanted):
            moved += 1
            outputs = wanted
        results += outputs
    return results, moved


def _seen(inputs: Inputs) -> Mapping[Met, Arrival]:
    return {
        Met(TOPICS[arrival.topic], arrival.value["n"]): arrival
        for arrival in arrivals(inputs, *TOPICS)
    }


def _records(output: Output) -> list[Met]:
    return [Met(side, output.value[side]["n"]) for side in REACH_MS if output.value[side]]


def _pairs(outputs: list[Output]) -> list[Output]:
    return [output for output in outputs if len(_records(output)) == 2]


def _over(record: Met, arrival: Arrival, now: int) -> bool:
    """Return whether a record can no longer have a pair at a stream time."""
    return arrival.at + REACH_MS[record.side] + GRACE_MS < now


def _sides_alone(outputs: Sequence[Output]) -> set[str]:
    """Return the sides whose records a join sends without a pair."""
    found = (_records(output) for output in outputs)
    return {records[0].side for records in found if len(records) == 1}
