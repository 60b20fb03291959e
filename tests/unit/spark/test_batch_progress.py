"""The progress of a batch in the driver's log."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from eosframework.errors import ClusterUnreachable
from eosframework.spark.sinks.kafka import batch_progress
from eosframework.spark.sinks.sink_entry import BatchIdentity, ShardProgress, SinkBatch

BATCH = BatchIdentity(query="q", number=7, range="")
OPEN = SinkBatch(sequence=1, batch=BATCH, shards=3, stage=None, attempt="a", written_at=0)


def progress(rows: int, *, complete: bool) -> ShardProgress:
    return ShardProgress(
        sequence=1, batch=BATCH, rows=rows, complete=complete, attempt="a", written_at=0
    )


def test_a_long_batch_is_reported_and_brokers_that_do_not_answer_end_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: Iterator[dict[int, ShardProgress] | None] = iter(
        [None, {0: progress(5, complete=True), 2: progress(3, complete=False)}]
    )

    def read() -> dict[int, ShardProgress]:
        found = next(answers, {})
        if found is None:
            raise ClusterUnreachable("no broker answered")
        return found

    monkeypatch.setattr(batch_progress, "REPORT_SECONDS", 0.01)
    with capture_logs() as logs, batch_progress.reported("kafka_out", OPEN, read):
        deadline = time.monotonic() + 10
        while len(logs) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    first, second = logs[:2]
    assert first["event"] == "batch_progress_unknown"
    assert second == {
        "event": "batch_progress",
        "log_level": "info",
        "sink": "kafka_out",
        "batch": "batch 7 of query q",
        "shards": 3,
        "shards_complete": 1,
        "rows_committed": 8,
    }
