"""Aggregates of grouped tables are those of Kafka Streams, result by result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import pytest

from tests.comparison.both_sides import BothSides
from tests.comparison.flights import Fed, inputs
from tests.comparison.grouped import OUTPUTS, history
from tests.comparison.rules import Output, by_key
from tests.conftest import TOLD, KafkaService

FLIGHTS = 10_000


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_the_same_changes_give_the_groups_of_kafka_streams(
    kafka: KafkaService,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    seed: int,
) -> None:
    flights = inputs(FLIGHTS, seed)
    grouped = list(_rows(flights["departed"]))
    fed = {
        "grouped": [*grouped, *history(seed, max(at for _, _, at in grouped) + 86_400_000)],
        "others": flights["rows"],
    }
    both = BothSides(
        kafka.bootstrap_servers,
        unique_name("grouped"),
        tmp_path,
        fed,
        {"groups": ["grouped", "others"]},
        Path(__file__).with_name("grouped.py"),
    )
    outputs = [f"groups.{output}" for output in OUTPUTS]
    both.create_topics(outputs, outputs)
    both.feed()
    both.run_theirs(outputs)
    both.run_ours()
    counted = 0
    for output in outputs:
        ours, theirs = by_key(both.ours(output)), by_key(both.theirs(output))
        assert ours.keys() == theirs.keys()
        for key, results in theirs.items():
            assert ours[key][-1] == results[-1], f"{output}: last result of {key}"
            assert _changes(ours[key]) == _changes(results), f"{output}: {key}"
            counted += len(results)
    assert counted > 50_000
    record_property(TOLD, f"{counted:,} results compared")


def _rows(departed: Sequence[Fed]) -> Iterator[Fed]:
    """Give the departures of the year's first flights a distance, and some of them no group."""
    for key, value, at in departed:
        if value is not None:
            n = value["n"]
            value = {"n": n, "to": value["to"] if n % 11 else None, "miles": 100 * (n % 23)}
        yield key, value, at


def _changes(results: Sequence[Output]) -> list[Output]:
    """Leave out repetitions of a result, and deletions of what is not there."""
    runs = [next(iter(run)) for _, run in groupby(results, key=lambda result: result.value)]
    return [result for n, result in enumerate(runs) if n or result.value is not None]
