"""The order in which a task runs the records of its topics, with the stream time of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.comparison.flights import Fed


class Arrival(NamedTuple):
    """A record as a task sees it.

    Args:
        topic: its input topic.
        key: of the record.
        value: of the record; None deletes a row.
        at: event time in milliseconds.
        stream_time: of the task, with this record.
    """

    topic: str
    key: str
    value: Any
    at: int
    stream_time: int


def arrivals(inputs: Mapping[str, Sequence[Fed]], *topics: str) -> Iterator[Arrival]:
    """Yield the records of topics: of their next ones always that with the least event time."""
    positions = dict.fromkeys(topics, 0)
    stream_time = -1
    while heads := [(inputs[t][n][2], t) for t, n in positions.items() if n < len(inputs[t])]:
        _, topic = min(heads)
        key, value, at = inputs[topic][positions[topic]]
        positions[topic] += 1
        stream_time = max(stream_time, at)
        yield Arrival(topic, key, value, at, stream_time)
