"""Measurements of a transaction count once, when it is known to be committed."""

from __future__ import annotations

from typing import Any

from eosframework.engine.histograms import Histogram
from eosframework.engine.task.measurements import Measures, TransactionMeasures


def outputs(*topics: str) -> list[Any]:
    return [(topic, b"", None, -1, None, None, 0, None) for topic in topics]


def through(flow: TransactionMeasures) -> None:
    flow.read("in", 3)
    flow.wrote(outputs("a", "b", "a"))


def test_what_was_committed_counts_by_topic() -> None:
    measures = Measures()
    flow = TransactionMeasures(measures)
    through(flow)
    assert not measures.read
    flow.committed()
    through(flow)
    flow.committed()
    assert measures.read == {"in": 6}
    assert measures.written == {"a": 4, "b": 2}


def test_what_was_dropped_does_not_count() -> None:
    measures = Measures()
    flow = TransactionMeasures(measures)
    through(flow)
    flow.dropped()
    flow.settled(committed=False)
    flow.settled(committed=True)
    flow.committed()
    assert not measures.read
    assert not measures.written


def test_what_turns_out_to_be_committed_counts_once() -> None:
    measures = Measures()
    flow = TransactionMeasures(measures)
    through(flow)
    flow.dropped()
    flow.dropped()
    flow.settled(committed=True)
    flow.settled(committed=True)
    assert measures.read == {"in": 3}
    assert measures.written == {"a": 2, "b": 1}


def test_a_snapshot_does_not_change_any_more() -> None:
    measures = Measures()
    flow = TransactionMeasures(measures)
    through(flow)
    flow.committed()
    before = measures.snapshot()
    through(flow)
    flow.committed()
    assert before.read == {"in": 3}


def test_a_distribution_counts_by_classes_and_adds_up() -> None:
    distribution = Histogram((1.0, 10.0))
    for value in (0.0, 1.0, 1.5, 10.0, 11.0):
        distribution.add(value)
    found = distribution.snapshot()
    assert (found.counts, found.total) == ((2, 2, 1), 23.5)
