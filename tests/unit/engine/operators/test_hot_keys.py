"""One hot key: the work of keyed operators is linear in the records, whatever their times are.

Work is counted, not timed: lines of the framework's code that are run, and bytes that are put into
stores and written to changelogs. Entries are made small, so that few records need many of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest

from eosframework import session, sliding
from eosframework.engine.failures.failure_handler import FailureHandler, Site
from eosframework.engine.operators import history
from eosframework.engine.operators import stream_joins as waiting
from eosframework.engine.operators.store_transaction import (
    EncodedTransaction,
    Limits,
    ValueTransaction,
)
from eosframework.engine.task import task_windows
from eosframework.topology.dsl.builder import Topology
from eosframework.transactions.ports import Message
from tests.support.applications.one_task import OneTask, compiled_task
from tests.unit.engine.operators.hot_keys import CASES, HotKey, either

TOLERATED = 1.35
"""Factor by which a record's share may grow with four times the records: searches take longer."""

COUNTED = ("/eosframework/engine/operators/", "/eosframework/engine/", "<topology ")


@dataclass
class Work:
    """The work done."""

    lines: int = 0
    put_bytes: int = 0
    written_bytes: int = 0

    def per_record(self, records: int) -> dict[str, float]:
        return {name: amount / records for name, amount in vars(self).items()}


@contextmanager
def counted(work: Work) -> Iterator[None]:
    """Count lines of the framework and bytes that are put, within the block."""

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        return line if any(part in name for part in COUNTED) else None

    def line(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        work.lines += event == "line"
        return line

    def putting(put: Callable[..., None]) -> Callable[..., None]:
        def counting(own: Any, key: bytes, entry: Any) -> None:
            value = entry[0]
            work.put_bytes += len(value) if isinstance(value, bytes) else 1
            put(own, key, entry)

        return counting

    before = sys.gettrace()
    with pytest.MonkeyPatch.context() as patch:
        for kind in (ValueTransaction, EncodedTransaction):
            patch.setattr(kind, "put", putting(kind.put))
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(before)


def done(case: HotKey, records: int) -> tuple[Work, int]:
    """Return what a task does for so many records, and how many outputs they have."""
    app = Topology("app")
    case.build(app)
    task = OneTask(compiled_task(app))
    outputs, work = 0, Work()
    with counted(work):
        for row in case.rows(records):
            outputs += len(task.send(*row))
        outputs += len(task.commit())
    work.written_bytes = task.changelog_bytes
    return work, outputs


@pytest.mark.parametrize("name", CASES)
def test_work_and_bytes_for_the_records_of_one_key_are_linear(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    monkeypatch.setattr(waiting, "_PIECE_BYTES", case.entry_bytes)
    monkeypatch.setattr(waiting, "_SPAN_BYTES", case.entry_bytes)
    monkeypatch.setattr(history, "CHUNK_BYTES", case.entry_bytes)
    for bound in ("MOST_STEPS", "MOST_BYTES", "MOST_SECONDS"):
        monkeypatch.setattr(task_windows, bound, 10**12)
    # In one transaction: what it changed before must not cost anything later on.
    work, outputs = done(case, case.records)
    more, more_outputs = done(case, 4 * case.records)
    assert outputs >= case.results(case.records)
    assert more_outputs >= case.results(4 * case.records)
    before, after = work.per_record(case.records), more.per_record(4 * case.records)
    allowed = {kind: amount * TOLERATED + 1 for kind, amount in before.items()}
    assert {kind: amount for kind, amount in after.items() if amount > allowed[kind]} == {}, before


def limited(
    build: Callable[[Topology], object], records: int, size_bytes: int
) -> tuple[OneTask, KeepingFailures]:
    """A task whose records may have so many partners, or keys so many windows."""
    app = Topology("app")
    build(app)
    task = OneTask(compiled_task(app), limits=Limits(records, size_bytes))
    task.failures = failures = KeepingFailures()
    return task, failures


class KeepingFailures(FailureHandler):
    """Skips what fails, and remembers which records these were, and why."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: list[tuple[bytes | None, str, str]] = []

    def __call__(self, site: Site, message: Message, error: BaseException, out: Any) -> None:
        super().__call__(site, message, error, out)
        self.failed.append((message.key(), site.name, str(error)))


def joined(app: Topology) -> object:
    left = app.stream("in", key=str, value="json")
    right = app.stream("other", key=str, value="json")
    skipped = left.on_error("skip")
    return skipped.join_within(right, either, "1s", how="outer").to("out", value="json")


@pytest.mark.parametrize(("records", "size_bytes"), [(5, 1000), (1000, 11)])
def test_a_record_that_would_meet_too_many_fails_and_no_other_one(
    records: int, size_bytes: int
) -> None:
    task, failures = limited(joined, records, size_bytes)
    for number in range(6):
        assert task.send("in", "hot", number, 1) == []
    for number in range(5):
        task.send("in", "warm", number, 1)
    assert task.send("other", "hot", 9, 1) == []
    assert len(task.send("other", "warm", 9, 1)) == 5
    [(key, step, error)] = failures.failed
    assert key == b"hot"
    assert "join" in step
    assert "worker.hot_key_limit" in error
    # As if it had never been: its partners met nothing, and later ones do not meet it.
    alone = task.send("in", "end", 0, 10_000)
    assert [(out[1], out[2]) for out in alone] == [("hot", [number, None]) for number in range(6)]


@pytest.mark.parametrize("window", [session("5ms"), sliding("5ms")])
def test_a_record_that_would_give_its_key_too_many_windows_fails_and_no_other_one(
    window: Any,
) -> None:
    def counted_by_window(app: Topology) -> object:
        stream = app.stream("in", key=str, value="json").on_error("skip")
        return stream.group_by_key().window(window, grace="1h").count().to("out", value="json")

    task, failures = limited(counted_by_window, 10, 10**6)
    for number in range(12):
        task.send("in", "hot", number, number * 1000)
    assert len(task.send("in", "cold", 1, 12_000)) == 1
    # The key may grow within an existing window.
    assert len(task.send("in", "hot", 2, 1000)) == 1
    assert {key for key, _, _ in failures.failed} == {b"hot"}
    assert len(failures.failed) == 2
    assert "more than 10 windows" in failures.failed[0][2]
