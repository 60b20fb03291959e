"""What has to come of the inputs of a task, in plain Python; it shares no code with the product."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

Seen = tuple[str, str, Any, int]
"""An input: topic, key, value, timestamp."""

Sent = tuple[str, str, Any]
"""An output: topic, key, value."""


@dataclass
class Expected:
    """What has to be there.

    Args:
        states: by store, values by key; a store that is not named is not compared.
    """

    sent: list[Sent] = field(default_factory=list[Sent])
    states: dict[str, dict[Any, Any]] = field(default_factory=dict[str, dict[Any, Any]])


Model = Callable[..., Expected]
"""Takes the inputs of a task, and the outputs that brokers refuse."""


def plain(inputs: Sequence[Seen], refused: Collection[Sent] = ()) -> Expected:
    """Keep what is not 0, double it; 13 is a dead letter."""
    found = Expected()
    for _, key, value, _ in inputs:
        if value == 13 or ("out", key, 2 * value) in refused:
            found.sent.append(("dead", key, value))
        elif value != 0:
            found.sent.append(("out", key, 2 * value))
    return found


def counts(inputs: Sequence[Seen], refused: Collection[Sent] = ()) -> Expected:
    """Count; whatever would make a key's third is a dead letter, and not counted."""
    found = Expected()
    state: dict[str, int] = {}
    for _, key, value, _ in inputs:
        count = state.get(key, 0) + 1
        if (count == 3 and key.startswith("b")) or ("out", key, count) in refused:
            found.sent.append(("dead", key, value))
        else:
            state[key] = count
            found.sent.append(("out", key, count))
    found.states["counts"] = dict(state)
    return found


def moved(inputs: Sequence[Seen]) -> Expected:
    """Each word goes on under itself."""
    return Expected([("words", value, value) for _, _, value, _ in inputs])


def tallies(values: Iterable[str]) -> dict[str, int]:
    """Return how often there is each."""
    state: dict[str, int] = defaultdict(int)
    for value in values:
        state[value] += 1
    return dict(state)


def windows(
    inputs: Sequence[Seen],
    refused: Collection[Sent] = (),
    closings: Mapping[int, bool] | None = None,
) -> Expected:
    """Count in windows of 10 ms with 5 ms of grace; a result that is refused is a dead letter.

    Args:
        inputs: of one task.
        refused: results.
        closings: after so many inputs the clock closes all that is open.
    """
    found = Expected()
    state: dict[tuple[int, str], int] = {}
    now = floor = 0
    for number, (_, key, value, at) in enumerate(inputs, 1):
        now = max(now, at)
        start = at // 10 * 10
        if start + 15 <= max(now, floor):
            found.sent.append(("late", key, value))
        else:
            state[start, key] = state.get((start, key), 0) + 1
        _close(found, state, now, refused)
        if closings and closings.get(number):
            floor = max([floor, *(start + 15 for start, _ in state)])
            _close(found, state, floor, refused)
    found.states["w"] = dict(state)
    return found


def _close(
    found: Expected, state: dict[tuple[int, str], int], now: int, refused: Collection[Sent]
) -> None:
    for start, key in sorted(window for window in state if window[0] + 15 <= now):
        result = ("out", key, [start, start + 10, state.pop((start, key))])
        found.sent.append(result if result not in refused else ("dead", key, None))


def silences(inputs: Sequence[Seen], refused: Collection[Sent] = ()) -> Expected:
    """After 100 ms without a record of a key it goes on how many there were; `boom` is skipped.

    Of a timer whose result is refused nothing takes effect, but that it came due.
    """
    found = Expected()
    heard: dict[str, dict[str, int]] = {}
    vain: set[tuple[int, str]] = set()

    def fire() -> None:
        for until, due in sorted({(h["until"], k) for k, h in heard.items()} - vain):
            result = ("out", due, {"records": heard[due]["n"], "at": until})
            if until > now:
                break
            if result in refused:
                vain.add((until, due))
                continue
            del heard[due]
            found.sent.append(result)

    now = 0
    for _, key, value, at in inputs:
        now = max(now, at)
        fire()
        if value != "boom":
            before = heard.get(key, {"n": 0})
            heard[key] = {"n": before["n"] + 1, "until": at + 100}
            fire()
    found.states["p.heard"] = heard
    return found


def firsts(inputs: Sequence[Seen], _refused: Collection[Sent] = ()) -> Expected:
    """Of records less than 100 ms apart the first goes on."""
    found = Expected()
    went: dict[str, list[int]] = defaultdict(list)
    now = 0
    for _, key, value, at in inputs:
        now = max(now, at)
        if at + 100 <= now:
            found.sent.append(("late", key, value))
        elif all(abs(at - other) >= 100 for other in went[key]):
            went[key].append(at)
            found.sent.append(("out", key, value))
    return found


def pairs(inputs: Sequence[Seen], _refused: Collection[Sent] = ()) -> Expected:
    """Orders and payments within 10 ms of each other, with 2 ms of grace; both go on alone."""
    found = Expected()
    seen: list[list[Any]] = []
    now = 0
    for topic, key, value, at in inputs:
        now = max(now, at)
        left = topic == "orders"
        if at + 13 > now:
            met = False
            for other in sorted(seen, key=lambda other: other[3]):
                near = abs(other[3] - at) <= 10 and other[3] + 13 > now
                if other[0] != left and other[1] == key and near:
                    pair = [value, other[2]] if left else [other[2], value]
                    found.sent.append(("out", key, pair))
                    other[4] = met = True
            seen.append([left, key, value, at, met])
        over = [other for other in seen if not other[4] and other[3] + 13 <= now]
        for other in sorted(over, key=lambda other: (other[3], not other[0], other[1])):
            other[4] = True
            pair = [other[2], None] if other[0] else [None, other[2]]
            found.sent.append(("out", other[1], pair))
    return found


def priced(inputs: Sequence[Seen], refused: Collection[Sent] = ()) -> Expected:
    """Each order with the tier that its customer has."""
    found = Expected()
    tiers: dict[str, Any] = {}
    for topic, key, value, _ in inputs:
        if topic == "tiers":
            tiers[key] = value
            if value is None:
                del tiers[key]
        else:
            result = ("out", key, [value, tiers.get(key)])
            found.sent.append(result if result not in refused else ("dead", key, value))
    return found


def stories(inputs: Sequence[Seen], refused: Collection[Sent] = ()) -> Expected:
    """All values of a key in the order of their times."""
    found = Expected()
    state: dict[str, list[Any]] = {}
    for _, key, value, _ in inputs:
        story = [*state.get(key, []), value]
        if ("out", key, story) in refused:
            found.sent.append(("dead", key, value))
        else:
            state[key] = story
            found.sent.append(("out", key, story))
    found.states["stories"] = state
    return found


def recent(inputs: Sequence[Seen], _refused: Collection[Sent] = ()) -> Expected:
    """Counts that are forgotten 50 ms after their last record."""
    found = Expected()
    state: dict[str, tuple[int, int]] = {}
    now = 0
    for _, key, _, at in inputs:
        now = max(now, at)
        count, latest = state.get(key, (0, at))
        if latest + 50 < now:
            count, latest = 0, at
        state[key] = count + 1, max(latest, at)
        found.sent.append(("out", key, count + 1))
    return found


def value_of(data: bytes | None) -> Any:
    """Return a JSON value."""
    return None if data is None else orjson.loads(data)
