"""Batches of rows as what tasks run."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from eosframework.application.backfill_jobs import WRITER_HEADER
from eosframework.spark.session import spark_rows as rows
from eosframework.spark.session.spark_rows import runs

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(*found: tuple[str, int, int | None], headers: Any = None) -> pa.RecordBatch:
    """Rows of a topic, a partition and an offset each; what else they hold follows from that."""
    numbers = range(len(found))
    return pa.record_batch(
        {
            "topic": pa.array([topic for topic, _, _ in found], pa.string()),
            "partition": pa.array([partition for _, partition, _ in found], pa.int32()),
            "offset": pa.array([offset for _, _, offset in found], pa.int64()),
            "timestamp": pa.array([1000 + n for n in numbers], pa.int64()),
            "key": pa.array([b"k%d" % n for n in numbers], pa.binary()),
            "value": pa.array([b"v%d" % n if n % 3 else None for n in numbers], pa.binary()),
            "headers": pa.array(headers or [None] * len(found), HEADERS),
        }
    )


def drained(batches: list[pa.RecordBatch]) -> list[tuple[int, list[tuple[str, int, list[int]]]]]:
    """By task: topic, partition and offsets of each run."""
    return [
        (task, [(source.topic, source.partition, [m.offset() for m in run]) for source, run in its])
        for task, its in runs(batches)
    ]


def test_each_row_is_a_message_with_all_that_a_task_asks_of_one() -> None:
    found = batch(("t", 3, 7), ("t", 3, 9), headers=[None, [{"key": "h", "value": None}]])

    ((task, its),) = ((task, [m for _, run in its for m in run]) for task, its in runs([found]))

    assert task == 3
    assert [
        (m.topic(), m.partition(), m.offset(), m.key(), m.value(), m.timestamp(), m.headers())
        for m in its
    ] == [
        ("t", 3, 7, b"k0", None, (1, 1000), None),
        ("t", 3, 9, b"k1", b"v1", (1, 1001), [("h", None)]),
    ]


def test_rows_come_task_by_task_and_in_their_order_across_batches() -> None:
    found = drained(
        [
            batch(("a", 0, 1), ("a", 0, 2), ("b", 0, 5)),
            batch(),
            batch(("b", 0, 6), ("a", 0, 3), ("a", 2, 0)),
            batch(("a", 2, 1)),
        ]
    )
    assert found == [
        (0, [("a", 0, [1, 2]), ("b", 0, [5]), ("b", 0, [6]), ("a", 0, [3])]),
        (2, [("a", 2, [0]), ("a", 2, [1])]),
    ]


def test_rows_without_an_offset_are_counted_by_topic_and_task() -> None:
    found = drained(
        [
            batch(("a", 0, None), ("b", 0, None), ("a", 0, None), ("c", 0, 40)),
            batch(("a", 0, None), ("a", 1, None), ("b", 1, None)),
        ]
    )
    assert found == [
        (0, [("a", 0, [0]), ("b", 0, [0]), ("a", 0, [1]), ("c", 0, [40]), ("a", 0, [2])]),
        (1, [("a", 1, [0]), ("b", 1, [0])]),
    ]


def test_a_task_that_leaves_its_rows_does_not_disturb_the_next() -> None:
    tasks = runs([batch(("a", 0, None), ("a", 0, None)), batch(("a", 0, None), ("a", 1, None))])

    assert next(tasks)[0] == 0
    task, its = next(tasks)

    assert (task, [m.offset() for _, run in its for m in run]) == (1, [0])


def test_long_runs_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "RUN_RECORDS", 2)

    found = drained([batch(*(("a", 0, None) for _ in range(5)))])

    assert found == [(0, [("a", 0, [0, 1]), ("a", 0, [2, 3]), ("a", 0, [4])])]


def test_who_wrote_a_record_of_an_own_topic_is_not_among_its_headers() -> None:
    mark = {"key": WRITER_HEADER, "value": b"late/0"}
    other = {"key": "h", "value": b"1"}
    found = batch(
        ("own", 0, 0), ("own", 0, 1), ("others", 0, 0), headers=[[mark], [other, mark], [mark]]
    )

    headers = [
        message.headers()
        for _, its in runs([found], own_topics=frozenset({"own"}))
        for _, run in its
        for message in run
    ]

    assert headers == [None, [("h", b"1")], [(WRITER_HEADER, b"late/0")]]
