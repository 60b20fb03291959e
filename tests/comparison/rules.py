"""The documented differences: each rule takes one out of what Kafka Streams sent.

A rule says which records differ from the inputs and from documented behaviour, and changes nothing
else, so what no rule explains stays a difference. It returns how often it applied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.comparison import sliding
from tests.comparison.arrivals import arrivals
from tests.comparison.flights import HOUR_MS, Fed
from tests.comparison.sessions import GAP_MS, GRACE_MS, Session, SessionReference, is_kept

WINDOW_MS = HOUR_MS
RETENTION_MS = 90 * 24 * HOUR_MS
"""Of the stores in java/Windows.java."""


class Output(NamedTuple):
    """A record of an output topic, its value decoded and its timestamp in milliseconds."""

    key: str
    value: Any
    at: int


Inputs = Mapping[str, Sequence[Fed]]


@dataclass(frozen=True)
class Sides:
    """What a rule may know.

    Args:
        inputs: the records of each input topic.
        ours: the records of an output topic of this framework, in their order.
        theirs: the same of Kafka Streams, as former rules left it.
    """

    inputs: Inputs
    ours: Sequence[Output]
    theirs: Sequence[Output]


_COUNTED: dict[int | None, tuple[Inputs, SessionReference]] = {}
"""By retention, with the inputs that were counted."""

Changed = tuple[list[Output], int]
Rule = Callable[[Sides], Changed]


def windows_forgotten_before_they_close(sides: Sides) -> Changed:
    """Add the windows that `onWindowClose` loses when one record moves stream time far.

    By default a store keeps windows for their size and grace (TimeWindowedKStreamImpl). Closed
    windows are read from it (KIP-825) after the record was written to it, which dropped segments.
    """
    retention_ms = WINDOW_MS + GRACE_MS
    times = _stream_times(sides.inputs)
    lost: list[Output] = []
    for output in sides.ours:
        start: int = output.value["start"]
        closing = times[bisect_left(times, start + retention_ms)]
        # The time of the store is the start of the window that the record was put into.
        if not is_kept(start, closing - closing % WINDOW_MS, retention_ms):
            lost.append(output)
    return [*sides.theirs, *lost], len(lost)


def sessions_forgotten_before_they_close(sides: Sides) -> Changed:
    """Add the sessions that `onWindowClose` loses: as windows, by their ends, after gap and grace.

    Late records join closed sessions only as long as the store has them.
    """
    flights = list(arrivals(sides.inputs, "few"))
    theirs, ours = SessionReference(GAP_MS + GRACE_MS), SessionReference(None)
    theirs.count(flights)
    ours.count(flights)
    return replaced(sides.theirs, _outputs(theirs.closed), _outputs(ours.closed))


def late_records_missing_in_sliding_windows(sides: Sides) -> Changed:
    """Add the late records that windows lack which are made from one that has closed (KIP-450)."""
    flights = list(arrivals(sides.inputs, "flights"))
    before = _by_window(sliding.by_kafka_streams(flights))
    after = _by_window(sliding.by_definition(flights))
    given: dict[tuple[str, int], list[Output]] = defaultdict(list)
    for output in sides.theirs:
        given[output.key, output.value["start"]].append(output)
    is_update = len(given) < len(sides.theirs)
    results: list[Output] = []
    applied = 0
    for window in {**given, **after}:
        outputs = given.get(window, [])
        former, wanted = before.get(window, []), after.get(window, [])
        if not is_update:
            former, wanted = former[-1:], wanted[-1:]
        if outputs == former != wanted:
            outputs = wanted
            applied += 1
        results += outputs
    return results, applied


def _by_window(updates: Sequence[sliding.Update]) -> dict[tuple[str, int], list[Output]]:
    found: dict[tuple[str, int], list[Output]] = defaultdict(list)
    for key, start, (records, at) in updates:
        value = {"start": start, "end": start + sliding.SIZE_MS, "value": records}
        found[key, start].append(Output(key, value, at))
    return found


def null_before_an_unchanged_session(sides: Sides) -> Changed:
    """Drop the null that precedes a session whose bounds a record did not change.

    `KStreamSessionWindowAggregate` removes each session that a record joins, and forwards the
    removal, before it writes the merged one (KIP-94).
    """
    kept: list[Output] = []
    removed: dict[str, list[Output]] = defaultdict(list)
    for output in sides.theirs:
        if output.value["value"] is None:
            removed[output.key].append(output)
            continue
        nulls = removed.pop(output.key, [])
        kept += [null for null in nulls if _bounds(null) != _bounds(output)]
        kept.append(output)
    left = sum(len(nulls) for nulls in removed.values())
    assert left == 0, f"{left} removals of sessions are followed by no session"
    return kept, len(sides.theirs) - len(kept)


def late_records_join_closed_sessions(sides: Sides) -> Changed:
    """Keep sessions as they closed.

    A record that is late for a session, but not for the one that it would become, joins it if the
    store still has it (KAFKA-8289 defines when a session closes, by its merged end).
    """
    theirs = _sessions(sides.inputs, RETENTION_MS)
    ours = _sessions(sides.inputs, None)
    is_update = any(output.value["value"] is None for output in sides.theirs)
    return replaced(
        sides.theirs,
        _outputs(theirs.updates if is_update else theirs.closed),
        _outputs(ours.updates if is_update else ours.closed),
    )


def sessions_suppressed_before_they_close(sides: Sides) -> Changed:
    """Drop sessions that `suppress` sends although a record joined them afterwards.

    It sends a session when stream time reaches the end, gap and grace; records join until stream
    time exceeds them (KAFKA-8289 corrected this for aggregates). It comes before
    `late_records_join_closed_sessions`, which knows the results of a key as a whole: one key may
    have both. So the sessions that late records make are no sessions that were sent early.
    """
    times = {arrival.stream_time for arrival in arrivals(sides.inputs, "flights")}
    closed = _sessions(sides.inputs, RETENTION_MS).closed
    known = set(map(_result, [*sides.ours, *_outputs(closed)]))
    kept = [
        output
        for output in sides.theirs
        if _result(output) in known or output.value["end"] + GAP_MS + GRACE_MS not in times
    ]
    return kept, len(sides.theirs) - len(kept)


def deletions_of_absent_rows(sides: Sides) -> Changed:
    """Drop results that repeat the former one of their key.

    A null for a row that does not exist changes nothing, but joins of tables forward it, or the
    result with the other side's row, again (KIP-557, emit on change, was disabled: KAFKA-12508).
    """
    kept: list[Output] = []
    last: dict[str, Any] = {}
    for output in sides.theirs:
        if output.value != last.get(output.key):
            last[output.key] = output.value
            kept.append(output)
    return kept, len(sides.theirs) - len(kept)


def _stream_times(inputs: Inputs) -> list[int]:
    return [arrival.stream_time for arrival in arrivals(inputs, "few")]


def _sessions(inputs: Inputs, retention_ms: int | None) -> SessionReference:
    """Count the flights in sessions, once for each retention."""
    made = _COUNTED.get(retention_ms)
    if made is None or made[0] is not inputs:
        reference = SessionReference(retention_ms)
        reference.count(arrivals(inputs, "flights"))
        made = _COUNTED[retention_ms] = inputs, reference
    return made[1]


def _outputs(sessions: Sequence[Session]) -> list[Output]:
    return [
        Output(key, {"start": start, "end": end, "value": count}, end)
        for key, start, end, count in sessions
    ]


def _result(output: Output) -> tuple[str, int, int, int]:
    """Return a session with its number of records: one that joins may leave its bounds."""
    return output.key, *_bounds(output), output.value["value"]


def _bounds(output: Output) -> tuple[int, int]:
    return output.value["start"], output.value["end"]


def replaced(theirs: Sequence[Output], before: list[Output], after: list[Output]) -> Changed:
    """Replace the results of keys that are exactly those before the rule by those after it.

    Returns:
        The results, and how many of them differ.
    """
    given, expected, wanted = by_key(theirs), by_key(before), by_key(after)
    results: list[Output] = []
    applied = 0
    for key in {**given, **wanted}:
        outputs, former = given.get(key, []), expected.get(key, [])
        if outputs == former != wanted.get(key, []):
            outputs = wanted[key]
            applied += (counted(outputs) - counted(former)).total()
        results += outputs
    return results, applied


def counted(outputs: Iterable[Output]) -> Counter[str]:
    """Return how often each result occurs; their values cannot be hashed."""
    return Counter(map(repr, outputs))


def by_key(outputs: Sequence[Output]) -> dict[str, list[Output]]:
    """Return the results of each key, in their order."""
    found: dict[str, list[Output]] = defaultdict(list)
    for output in outputs:
        found[output.key].append(output)
    return found
