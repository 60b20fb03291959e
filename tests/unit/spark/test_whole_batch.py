"""Small batches in one transaction; the control topic and the brokers are in memory."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.config import BackfillSettings, Settings
from eosframework.engine.task.receipts import HEADER_RECEIPT, Receipt
from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    InstanceFenced,
    OutcomeUnknown,
    TaskFenced,
    TransactionAborted,
    TransactionError,
)
from eosframework.spark.sinks.kafka.driver import MOST_TRANSACTIONS, commit_whole, outputs_of
from eosframework.spark.sinks.kafka.sink_log import batch_claim
from eosframework.spark.sinks.sink_entry import BatchIdentity, SinkBatch, batch_key
from eosframework.transactions.ports import Output
from eosframework.transactions.task_attempts import TaskAttempt
from tests.support.memory.journal import MemoryJournal
from tests.support.memory.scripted_kafka import Broker, MemoryOutputs
from tests.unit.spark.backfill.attempts import Clock


def batch(number: int, attempt: str = "this", **changes: object) -> SinkBatch:
    identity = BatchIdentity(query="q", number=number, range="r")
    made = SinkBatch(
        sequence=number + 1,
        batch=identity,
        shards=2,
        stage=None,
        attempt=attempt,
        written_at=number,
    )
    return made.model_copy(update={"complete": True, **changes})


def rows(number: int, count: int = 20) -> list[Output]:
    return [
        ("out", b"%d" % (100 * number + n), b"k", -1, None, None, 0, None) for n in range(count)
    ]


class World:
    """What outlasts a driver."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.outputs = MemoryOutputs(self.broker)
        self.journal = MemoryJournal(self.broker)
        self.clock = Clock()

    def own(self) -> Driver:
        return Driver(self)

    def last(self) -> SinkBatch | None:
        """The committed entry."""
        entry = self.journal.settled([batch_key("out")]).get(batch_key("out"))
        return None if entry is None else SinkBatch.from_entry(entry)

    def written(self) -> Counter[int]:
        return Counter(int(o[1] or b"") for o in self.broker.visible if o[0] == "out")


class Driver:
    """A driver that owns the sink."""

    def __init__(self, world: World) -> None:
        self.attempt: TaskAttempt[SinkBatch] = TaskAttempt(
            world.outputs,
            world.journal,
            Settings(backfill=BackfillSettings(stall_seconds=20)),
            0,
            logger="eosframework.spark",
            lost="",
            clock=world.clock,
            sleep=world.clock.sleep,
        )
        _, [self.owned] = self.attempt.take([batch_claim("app", "out")])

    def commit(self, number: int, of: int | None = None) -> bool:
        """Commit a batch with the rows of a number."""
        entry = batch(number, self.attempt.name)
        return commit_whole(self.attempt, self.owned, rows(number if of is None else of), entry)


FAULTS: list[tuple[TransactionError | None, bool]] = [
    (None, True),
    (OutcomeUnknown("no answer"), True),
    (OutcomeUnknown("no answer"), False),
    (TransactionAborted("aborted"), False),
    (TaskFenced("fenced"), False),
    (DataRejected("too large"), False),
]


@given(st.lists(st.sampled_from(range(len(FAULTS))), max_size=12), st.integers(1, 4))
def test_whatever_commits_answer_each_batch_is_written_once_with_its_entry(
    plan: list[int], batches: int
) -> None:
    """A driver whose sink fails is replaced; a batch that did not fit is offered again."""
    world = World()
    owner = world.own()
    world.broker.commit_faults = [FAULTS[one] for one in plan]
    number = 0
    while number < batches:
        try:
            done = owner.commit(number)
        except (InstanceFenced, ClusterUnreachable):
            owner = world.own()
            known = owner.owned.known
            done = known is not None and known.batch.number == number
        found = world.last()
        assert done == (found is not None and found.batch.number == number)
        expected = [int(o[1] or b"") for n in range(number + done) for o in rows(n)]
        assert world.written() == Counter(expected), "all rows of a batch, or none"
        number += done


def test_a_driver_that_was_replaced_writes_nothing() -> None:
    world = World()
    first = world.own()
    second = world.own()
    assert second.commit(0)
    with pytest.raises(InstanceFenced):
        first.commit(0, of=7)
    assert world.written() == Counter(range(20))


def test_a_batch_that_does_not_fit_is_given_up_and_the_driver_goes_on() -> None:
    world = World()
    owner = world.own()
    world.broker.deliver_fault = lambda o: DataRejected("large") if o[1] == b"7" else None
    assert not owner.commit(0)
    assert not world.written()
    assert owner.commit(1)
    world.broker.commit_faults = [FAULTS[3]] * MOST_TRANSACTIONS
    assert not owner.commit(2)
    assert owner.commit(3)
    assert set(world.written()) == {*range(100, 120), *range(300, 320)}


def test_records_are_in_the_order_of_their_shards_and_receipts_continue_there() -> None:
    """The second row of shard 0 comes before the rows of shard 1, as with an attempt for each."""
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table(
        {
            "key": [b"b", b"a", b"c", b"d"],
            "value": [b"4", b"1", b"3", b"2"],
            "timestamp": [9, 1, 5, 7],
            "hash": [-1, 5, 6, 7],
            "shard": [1, 0, 1, 0],
        }
    )
    opened = batch(5, complete=False, positions=(10, 100), receipts_since=(4, 0))
    outputs, counts = outputs_of(table, "out", "app", "out", opened)
    assert [o[1] for o in outputs] == [b"1", b"2", b"3", b"4"]
    assert counts == {0: 2, 1: 2}
    receipts = [Receipt.parse(dict(o[7] or ())[HEADER_RECEIPT]) for o in outputs]
    found = [(r.partition, r.offset, r.number) for r in receipts if r is not None]
    assert found == [(0, 10, 6), (0, 11, 7), (1, 100, 100), (1, 101, 101)]
