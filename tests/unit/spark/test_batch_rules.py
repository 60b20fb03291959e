"""The batches that a sink accepts, over all sequences that crashes of drivers can offer."""

from __future__ import annotations

from typing import Any

import pytest

from eosframework.errors import StartRefused
from eosframework.spark.sinks.sink_entry import (
    BatchIdentity,
    Decision,
    SinkBatch,
    decide,
    mark_of,
    refuse_other_options,
)


def batch(number: int = 7, query: str = "q", range_: str = "r7") -> BatchIdentity:
    return BatchIdentity(query=query, number=number, range=range_)


def last(**changes: Any) -> SinkBatch:
    given: dict[str, Any] = {
        "sequence": 3,
        "batch": batch(),
        "shards": 8,
        "stage": "s",
        "complete": True,
        "attempt": "a",
        "written_at": 0,
    }
    return SinkBatch(**{**given, **changes})


@pytest.mark.parametrize(
    ("known", "offered", "decision"),
    [
        (None, batch(0), Decision.NEW),
        (None, batch(57), Decision.NEW),
        (last(), batch(), Decision.SKIP),
        (last(), batch(8, range_="r8"), Decision.NEW),
        (last(complete=False), batch(), Decision.RESUME),
    ],
)
def test_the_last_batch_and_the_next_one_are_accepted(
    known: SinkBatch | None, offered: BatchIdentity, decision: Decision
) -> None:
    assert decide("delays", known, offered, None) is decision


@pytest.mark.parametrize(
    ("known", "offered", "reason"),
    [
        (last(), batch(range_="other"), "with another source range"),
        (last(), batch(6), "restored from a copy"),
        (last(), batch(9), "expected batch 7 or 8"),
        (last(), batch(0, "other"), "the checkpoint was deleted or exchanged, or two queries"),
        (last(), batch(8, "other"), "the checkpoint was deleted or exchanged, or two queries"),
        (last(complete=False), batch(8), "the rest would be lost"),
        (last(complete=False), batch(7, "other"), "the rest would be lost"),
        (last(complete=False), batch(range_="other"), "the rest would be lost"),
    ],
)
def test_any_other_batch_is_refused_with_the_ways_on(
    known: SinkBatch, offered: BatchIdentity, reason: str
) -> None:
    with pytest.raises(StartRefused, match=reason) as refused:
        decide("delays", known, offered, None)
    text = str(refused.value)
    assert "Nothing was written" in text
    assert "follows='q@7'" in text
    assert decide("delays", known, offered, mark_of(known)) is Decision.NEW
    with pytest.raises(StartRefused):
        decide("delays", known, offered, "q@6")


def test_a_mark_does_not_repeat_the_batch_that_it_names() -> None:
    assert decide("delays", last(), batch(), "q@7") is Decision.SKIP
    assert decide("delays", last(complete=False), batch(), "q@7") is Decision.RESUME


def test_a_batch_continues_from_its_stage_with_the_options_that_it_had() -> None:
    assert decide("delays", last(), batch(8), None) is Decision.NEW
    refuse_other_options("delays", last(complete=False), 8, "fail")
    with pytest.raises(StartRefused, match="Run with shards=8 until a batch is complete"):
        refuse_other_options("delays", last(complete=False), 4, "fail")
    with pytest.raises(StartRefused, match="Run with on_error=skip until a batch is complete"):
        refuse_other_options("delays", last(complete=False, on_error="skip"), 8, "fail")
