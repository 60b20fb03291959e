"""What an audit learns of backfill jobs from the control topic."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eosframework.application.backfill_jobs import JobRange, job_ranges
from eosframework.application.journal import KafkaJournal
from eosframework.errors import ControlTopicDamaged
from eosframework.operations.audit.audit_logs import origin_of
from eosframework.records import Position, TopicPartition
from eosframework.spark.job.job_entry import (
    Files,
    Job,
    OffsetRange,
    TaskProgress,
    cutover_key,
    ends_key,
    task_key,
    to_entries,
)

JOB = Job(
    application="shop",
    name="history",
    fingerprint={},
    receipts=True,
    created_at=0,
    ranges={
        "orders": (OffsetRange(first=10, end=100), OffsetRange(first=0, end=7)),
        "stands": (OffsetRange(first=4, end=4),),
    },
    files={"stands": Files(format="json", partitions=1, partitioner="murmur2", split_bytes=1)},
    own_starts={"shop-keyed-repartition": (3,)},
)


class StubLog:
    """A control log with the entries of a test."""

    topic = "shop-control"

    def __init__(self, entries: dict[str, Any]) -> None:
        self.entries = entries

    def settled_under(self, prefix: str) -> dict[str, Any]:
        return {key: entry for key, entry in self.entries.items() if key.startswith(prefix)}


def progress(numberings: dict[str, str], *, complete: bool = False, **offsets: int) -> Any:
    positions = {name.replace("__", "/").replace("_", "-"): n for name, n in offsets.items()}
    return TaskProgress(
        positions=positions,
        metadata="eos1;3;99",
        numberings=numberings,
        complete=complete,
        attempt="a",
        written_at=0,
    ).to_entry()


def ranges(entries: dict[str, Any]) -> dict[TopicPartition, JobRange]:
    return {one.partition: one for one in job_ranges(cast("KafkaJournal", StubLog(entries)))}


def test_progress_is_the_position_of_a_partition_with_the_numbering_of_its_receipts() -> None:
    entries = to_entries(JOB) | {
        task_key("history", "first", 0): progress({"orders/0": "r1;10;5;40"}, orders__0=42),
        task_key("history", "keyed", 0): progress(
            {"shop-keyed-repartition/0": "r1;0;9;8"}, complete=True, shop_keyed_repartition__0=9
        ),
    }
    found = ranges(entries)
    orders, begun = found[TopicPartition("orders", 0)], found[TopicPartition("orders", 1)]
    assert orders.position == Position("orders", 0, 42, "eos1;3;99;r1;10;5;40")
    assert (orders.first, orders.end, orders.complete, orders.in_rows) == (10, 100, False, False)
    assert begun.position == Position("orders", 1, 0, "eos1;0;0;r1;0;0;")

    keyed = found[TopicPartition("shop-keyed-repartition", 0)]
    assert (keyed.offset, keyed.end, keyed.complete) == (9, None, True)
    assert (keyed.in_rows, keyed.of_files) == (True, False)
    name = "backfill.history:shop-keyed-repartition"
    assert origin_of(keyed) == TopicPartition(name, 0)
    files = found[TopicPartition("stands", 0)]
    assert (files.offset, files.end, files.in_rows, files.of_files) == (0, 4, True, True)

    ended = {ends_key("history", "shop-keyed-repartition"): [60], cutover_key("history"): {"at": 1}}
    keyed = ranges(entries | ended)[TopicPartition("shop-keyed-repartition", 0)]
    assert (keyed.end, keyed.is_cut_over) == (60, True)


def test_a_job_without_receipts_has_no_numbering() -> None:
    plain = JOB.model_copy(update={"receipts": False})
    found = ranges(to_entries(plain) | {task_key("history", "a", 0): progress({}, orders__0=42)})
    assert found[TopicPartition("orders", 0)].position.metadata == "eos1;3;99"
    assert ranges({}) == {}


def test_an_entry_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ControlTopicDamaged, match=r"a key under 'backfill/'"):
        ranges(to_entries(JOB) | {task_key("history", "first", 0): {"positions": 5}})
