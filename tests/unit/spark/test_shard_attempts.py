"""The decisions of an attempt at a shard; the control topic and the brokers are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.config import BackfillSettings, Settings
from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    InstanceFenced,
    OutcomeUnknown,
    RunError,
    TaskFenced,
    TransactionAborted,
    TransactionError,
)
from eosframework.kafka.admin.metadata import SizeLimits
from eosframework.spark.sinks.kafka.shard_attempt import MODULUS, ShardRows, ShardSpec
from eosframework.spark.sinks.kafka.shards import ShardTask
from eosframework.spark.sinks.kafka.sink_log import open_check
from eosframework.spark.sinks.sink_entry import (
    BatchIdentity,
    ShardProgress,
    SinkBatch,
    batch_key,
    shard_key,
)
from eosframework.transactions.ports import Commit, Committed, Output
from eosframework.transactions.task_attempts import TaskAttempt
from tests.support.memory.faulty_kafka import FaultyOutput
from tests.support.memory.journal import MemoryJournal
from tests.support.memory.scripted_kafka import Broker, MemoryOutputs
from tests.unit.spark.backfill.attempts import Clock

BATCH = BatchIdentity(query="q", number=7, range="r")
NEXT = 3
"""The sequence of the batch."""
KEY = shard_key("out", 1)
DRIVER: dict[str, Any] = {"shards": 2, "stage": "stage", "attempt": "driver", "written_at": 0}


Row = tuple[Output, int]
"""A record and its hash."""


def rows(count: int, first: int = 0) -> list[Row]:
    return [
        (("out", b"%d" % n, b"k", -1, None, None, 0, None), (n + 1) * 2**61)
        for n in range(first, first + count)
    ]


class World:
    """What outlasts an attempt."""

    def __init__(self, count: int = 50) -> None:
        self.broker = Broker()
        self.journal = MemoryJournal(self.broker)
        self.clock = Clock()
        self.rows = rows(count)
        self.outputs = MemoryOutputs(self.broker)
        self.record(SinkBatch(sequence=NEXT, batch=BATCH, **DRIVER))

    def record(self, batch: SinkBatch) -> None:
        """Write an entry as the driver does."""
        self.journal.commit(batch_key("out"), batch.to_entry())

    def run(
        self,
        number: int = 0,
        found: Sequence[Row] | None = None,
        size: int = 7,
        *,
        staged: bool = True,
        chunk_records: int = 10,
        chunk_bytes: int = 2**20,
    ) -> ShardProgress:
        given = self.rows if found is None else found

        def pieces() -> Iterator[ShardRows]:
            for first in range(0, len(given), size):
                piece = given[first : first + size]
                yield ShardRows([output for output, _ in piece], [hashed for _, hashed in piece])

        stage = "stage" if staged else None
        batch = SinkBatch(sequence=NEXT, batch=BATCH, **{**DRIVER, "stage": stage})
        backfill = BackfillSettings(stall_seconds=20, chunk_records=chunk_records)
        attempt: TaskAttempt[ShardProgress] = TaskAttempt(
            self.outputs,
            self.journal,
            Settings(backfill=backfill),
            number,
            logger="eosframework.spark",
            lost="",
            checks=open_check("out", batch),
            clock=self.clock,
            sleep=self.clock.sleep,
        )
        spec = ShardSpec(
            application="app",
            sink="out",
            settings=Settings(backfill=backfill),
            batch=batch,
            since=0,
            before={},
            topic="out",
            topics=("out",),
            limits=SizeLimits(),
            run="",
        )
        task = ShardTask(spec, attempt)
        try:
            task.take([1])
            for shard in task._taken.values():
                shard._chunk_bytes = shard._bytes_left = chunk_bytes
            assert task.write(1, pieces()) == self.done.rows
            return self.done
        finally:
            task.close()

    @property
    def done(self) -> ShardProgress:
        """The committed progress."""
        [entry] = self.journal.settled([KEY]).values()
        return ShardProgress.from_entry(entry)

    def transactions(self) -> int:
        """Number of committed entries of the shard."""
        return sum(output[2] == KEY.encode() for output in self.broker.visible)

    def written(self) -> list[int]:
        return [int(o[1] or b"") for o in self.broker.visible if o[0] == "out"]

    def write(self, **changes: Any) -> None:
        """Commit progress as another attempt would."""
        given: dict[str, Any] = {
            "sequence": NEXT,
            "batch": BATCH,
            "attempt": "another",
            "written_at": 0,
        }
        self.journal.commit(KEY, ShardProgress(**{**given, **changes}).to_entry())


def test_a_shard_is_written_in_chunks_and_is_complete_with_the_last_one() -> None:
    world = World()
    done = world.run()
    assert world.written() == list(range(50))
    assert (done.rows, done.complete) == (50, True)
    assert done.digest == sum(hashed for _, hashed in world.rows) % MODULUS
    assert world.transactions() == 5, "a transaction for each chunk, and none more"


@pytest.mark.parametrize("size", [1, 9, 10, 11, 100])
def test_pieces_of_any_size_give_the_same(size: int) -> None:
    world = World()
    assert world.run(size=size).rows == 50
    assert world.written() == list(range(50))


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 20, 1000])
def test_a_chunk_ends_with_the_row_that_reaches_its_size(chunk_bytes: int) -> None:
    world = World()
    assert world.run(size=50, chunk_bytes=chunk_bytes, chunk_records=1000).rows == 50
    assert world.written() == list(range(50))
    expected = filled = 0
    for n in range(50):
        filled += len(str(n))
        if filled >= chunk_bytes or n == 49:
            expected, filled = expected + 1, 0
    assert world.transactions() == expected


def test_an_attempt_resumes_in_the_middle() -> None:
    world = World()
    world.broker.visible += [output for output, _ in world.rows[:20]]
    digest = sum(hashed for _, hashed in world.rows[:20]) % MODULUS
    world.write(rows=20, digest=digest, ended=True)
    assert world.run(1).rows == 50
    assert world.written() == list(range(50))
    assert world.clock.slept == [], "the first attempt has ended"


def test_a_successor_waits_and_returns_what_the_first_one_completed() -> None:
    world = World()
    world.clock.events[5] = lambda: world.write(rows=50, complete=True)
    assert world.run(1).attempt == "another"
    assert not world.broker.calls, "it never took the id"


def test_a_silent_attempt_is_taken_over() -> None:
    world = World()
    assert world.run(1).rows == 50
    assert sum(world.clock.slept) >= 20


@pytest.mark.parametrize("staged", [True, False])
def test_a_complete_shard_is_not_written_again(staged: bool) -> None:
    world = World()
    first = world.run()
    assert world.run(staged=staged) == first
    assert world.written() == list(range(50))


@pytest.mark.parametrize(
    "found", [rows(50, 1), rows(49), rows(51), [*rows(20), *rows(30, 30)], rows(5)]
)
def test_rows_that_changed_under_a_complete_shard_are_refused(found: list[Row]) -> None:
    world = World()
    world.run()
    with pytest.raises(RunError, match="the rows computed now are others: the plan is not"):
        world.run(found=found, staged=False)
    assert world.written() == list(range(50))


def test_rows_that_changed_before_the_resume_position_are_refused() -> None:
    world = World()
    world.write(rows=20, digest=1, ended=True)
    with pytest.raises(RunError, match="20 rows of batch 7 of query q are committed"):
        world.run(1)
    assert world.written() == []


def test_an_attempt_at_a_batch_that_is_over_writes_nothing() -> None:
    world = World()
    world.record(SinkBatch(sequence=NEXT, batch=BATCH, complete=True, **DRIVER))
    with pytest.raises(InstanceFenced, match="complete"):
        world.run()
    assert world.written() == []


def test_progress_of_a_later_batch_ends_the_attempt() -> None:
    world = World()
    world.write(sequence=NEXT + 1, complete=True)
    for number in (0, 1):
        with pytest.raises(InstanceFenced, match="taken over"):
            world.run(number)
    assert world.written() == []


def test_a_record_that_the_brokers_reject_is_named_and_the_rows_before_it_are_written() -> None:
    world = World()
    world.broker.deliver_fault = lambda o: DataRejected("too large") if o[1] == b"33" else None
    with pytest.raises(
        RunError, match=r"refuses its row 33, with key b'k'.*resumes from the stage at this row"
    ):
        world.run()
    assert world.written() == list(range(33))
    world.broker.deliver_fault = lambda output: None
    assert world.run(1).rows == 50
    assert world.written() == list(range(50))
    assert sum(world.clock.slept) == 0, "the first attempt announced its end"


def test_a_throttled_shard_writes_fewer_rows_in_a_transaction_and_more_than_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit, throttled = FaultyOutput.commit, [5.0]

    def slow(self: FaultyOutput, part: Commit) -> Committed:
        done = commit(self, part)
        return replace(done, throttled_seconds=throttled.pop() if throttled else 0.0)

    monkeypatch.setattr(FaultyOutput, "commit", slow)
    world = World()
    assert world.run().rows == 50
    assert not throttled
    assert world.written() == list(range(50))
    assert world.transactions() == 1 + 4 * 2, "ten rows, then six and four of each chunk"


FAULTS: list[tuple[TransactionError | None, bool]] = [
    (None, True),
    (OutcomeUnknown("no answer"), True),
    (OutcomeUnknown("no answer"), False),
    (TransactionAborted("aborted"), False),
    (TaskFenced("fenced"), False),
]


@given(st.lists(st.sampled_from(range(len(FAULTS))), max_size=8), st.integers(1, 3))
def test_whatever_commits_answer_rows_are_written_once(plan: list[int], attempts: int) -> None:
    world = World()
    world.broker.commit_faults = [FAULTS[one] for one in plan]
    done: ShardProgress | None = None
    for number in range(attempts + len(plan)):
        try:
            done = world.run(number)
            break
        except (InstanceFenced, ClusterUnreachable):
            continue
    assert done is not None
    assert (done.rows, done.complete) == (50, True)
    assert world.written() == list(range(50))
