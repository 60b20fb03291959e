"""Rows of backfill jobs: their number, and what an audit says of those that it does not judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from eosframework.application.backfill_jobs import JobRange
from eosframework.errors import StartRefused
from eosframework.operations.audit.audit_logs import JobRows, ProcessedInput, notes_on_jobs
from eosframework.records import Position, TopicPartition

KEYED = TopicPartition("shop-keyed-repartition", 1)
ROWS = JobRange(
    "history",
    KEYED,
    first=5,
    end=30,
    position=Position(*KEYED, 20, "eos1;3;99;r1;0;12;19"),
    in_rows=True,
    of_files=False,
    complete=True,
    is_cut_over=False,
    has_receipts=True,
)


@dataclass
class StubLogs:
    """A log that begins at `first` and has a number of records in any range."""

    records: int
    first: int = 0

    def firsts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.first)

    def read(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], what: str
    ) -> Iterator[tuple[TopicPartition, list[None]]]:
        assert all(bounds == (5, 30) for bounds in ranges.values())
        yield from ((p, [None] * self.records) for p in ranges)


def rows(one: JobRange = ROWS, *, is_whole: bool = True, receipts: bool = True) -> JobRows:
    return JobRows(ProcessedInput({}, [one]), is_whole, receipts)


def compared(records: int, first: int = 0, one: JobRange = ROWS) -> tuple[int, int, list[str]]:
    logs: Any = StubLogs(records, first)
    verdict = rows(one).compare_with_log(logs)
    texts = [detail.text for detail in verdict.details]
    return verdict.lost, verdict.duplicated, [*texts, *verdict.notes]


def test_a_task_has_as_many_rows_as_its_internal_topic_has_records() -> None:
    assert compared(20) == (0, 0, [])
    missed = (
        "job history missed: shop-keyed-repartition[1] has 23 records from @5 to before @30, and "
        "the task processed 20 rows"
    )
    assert compared(23) == (3, 0, [missed])
    lost, duplicated, [text] = compared(19)
    assert (lost, duplicated, "got too many" in text) == (0, 1, True)


def test_rows_that_cannot_be_compared_with_the_log_are_named() -> None:
    lost, duplicated, [note] = compared(3, first=6)
    assert (lost, duplicated) == (0, 0)
    assert note.startswith("shop-keyed-repartition[1] begins at offset 6")
    assert compared(3, one=replace(ROWS, complete=False)) == (0, 0, [])
    assert compared(3, one=replace(ROWS, of_files=True)) == (0, 0, [])


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (rows(replace(ROWS, has_receipts=False)), "processed without receipts"),
        (rows(receipts=False), "functions cannot judge rows"),
        (rows(is_whole=False), "rows are judged only without --from and --to"),
    ],
)
def test_rows_that_are_not_judged_are_named_with_the_reason(found: JobRows, reason: str) -> None:
    assert (found.judged, found.left_out) == ([], list(found.processed.rows))
    [note] = found.notes()
    assert note.startswith("20 rows of backfill.history:shop-keyed-repartition[1]: not judged; ")
    assert reason in note
    assert all(span.start == span.end for span in found.spans(found.processed))


def test_rows_without_receipts_are_refused_where_only_receipts_may_judge() -> None:
    rows().refuse_left_out()
    with pytest.raises(StartRefused, match=r"the 20 rows of backfill\.history:"):
        rows(replace(ROWS, has_receipts=False)).refuse_left_out()


def test_an_unfinished_job_is_named_with_its_positions() -> None:
    half = replace(ROWS, complete=False)
    assert list(notes_on_jobs([ROWS])) == []
    assert list(notes_on_jobs([half, replace(half, in_rows=False)])) == [
        "job history is not complete: it is judged up to "
        "backfill.history:shop-keyed-repartition[1]@20, shop-keyed-repartition[1]@20"
    ]
