"""The table writer's decisions, on ports in memory; tests/faults runs it on a real database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from eosframework.errors import DatabaseUnavailable, InstanceFenced, PositionLost, RecordFailed
from eosframework.postgres.tables.table_ports import Batch, Written
from eosframework.postgres.tables.write_cycle import TableWriter, TableWriterOptions
from eosframework.process.signals import handled
from eosframework.records import Position, TopicPartition
from eosframework.serialization.serdes import JSON, STRING, Serde
from eosframework.topology.graph.graph import Function, Policy, SinkTable, TableMode, TableSink
from tests.support.faults.raising import RAISED, row
from tests.support.memory.scripted_kafka import P0, Broker, MemoryLog
from tests.unit.engine.test_worker import Clock
from tests.unit.postgres.tables.memory import MemoryStore

P1 = TopicPartition("in", 1)


def table(
    name: str = "t",
    *,
    mode: TableMode = TableMode.APPEND,
    keys: tuple[str, ...] = (),
    row: Any = None,
    on_error: Policy = Policy.FAIL,
) -> SinkTable:
    function = None if row is None else Function("row", row)
    return SinkTable(f"s.to({name})", name, mode, keys, function, None, on_error)


class Run:
    """A table writer on a log and a store in memory."""

    def __init__(self, broker: Broker, store: MemoryStore, *tables: SinkTable, **of: Any) -> None:
        self.broker, self.store = broker, store
        self.log = MemoryLog(broker)
        self.told: list[Position] = []
        on_error = of.get("on_error", Policy.FAIL)
        table_sink = TableSink(
            "s", "in", STRING, of.get("value", JSON), tables or (table(),), on_error
        )
        options = TableWriterOptions(
            commit_interval_seconds=0.1,
            longest_interval_seconds=10,
            longest_pause_seconds=5,
            heartbeat_interval_seconds=1,
            batch_records=10,
            batch_rows=1000,
            leave_on_stop=True,
        )

        def start(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
            first: int = of.get("start", 0)
            return dict.fromkeys(partitions, first)

        self.worker = TableWriter(
            "app",
            [table_sink],
            self.log,
            store,
            options,
            start=start,
            commit_to_group=self.told.extend,
            clock=Clock(),
        )

    def to_the_end(self) -> list[Any]:
        self.worker.run(until_caught_up=True)
        return self.store.rows.get("t", [])


def rows(*numbers: int) -> list[dict[str, int]]:
    return [{"n": n} for n in numbers]


def broker_with(*values: Any) -> Broker:
    broker = Broker()
    broker.fill(0, *values)
    return broker


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_rows_and_position_are_written_together(store: MemoryStore) -> None:
    run = Run(broker_with(*rows(*range(25))), store)
    assert run.to_the_end() == rows(*range(25))
    assert store.positions == {P0: 25}
    assert run.told[-1] == Position("in", 0, 25)
    assert store.calls[0] == "claim"
    assert store.calls[-1] == "close"


def test_it_goes_on_where_the_database_is_and_not_where_the_group_is(store: MemoryStore) -> None:
    broker = broker_with(*rows(*range(25)))
    broker.positions[P0] = Position("in", 0, 3)
    store.positions[P0] = 20
    run = Run(broker, store)
    assert run.to_the_end() == rows(*range(20, 25))
    assert run.told == [Position("in", 0, 20), Position("in", 0, 25)]


def test_where_a_partition_starts_is_stored_although_nothing_comes(store: MemoryStore) -> None:
    Run(broker_with(*rows(1, 2)), store, start=2).to_the_end()
    assert store.positions == {P0: 2}


def test_a_database_that_went_back_is_filled_again_before_it_counts_as_caught_up() -> None:
    class GoesBack(MemoryStore):
        def write(self, batches: Sequence[Batch]) -> Written:
            if len(self.epochs) == self.epochs.get(P0) and run.worker.tasks[P0].end_reached:
                self.positions[P0] = 5
                self.rows["t"] = self.rows["t"][:5]
                raise DatabaseUnavailable("a standby takes over")
            return super().write(batches)

    store = GoesBack(positions={P0: 0})
    run = Run(broker_with(*rows(*range(25))), store)
    assert run.to_the_end() == rows(*range(25))
    assert store.epochs == {P0: 2}


@pytest.mark.parametrize("done", [True, False])
def test_an_unknown_outcome_is_claimed_not_guessed(store: MemoryStore, done: bool) -> None:
    store.write_faults = [None, (DatabaseUnavailable("cut in COMMIT"), done)]
    run = Run(broker_with(*rows(*range(25))), store)
    assert run.to_the_end() == rows(*range(25))
    assert store.epochs == {P0: 2}
    view = run.worker.view()
    assert view.counts.database_retries == 1
    assert (view.measured.read, view.measured.written) == ({"in": 25}, {"t": 25})


def test_a_database_that_is_away_is_waited_for(store: MemoryStore) -> None:
    store.claim_faults = [DatabaseUnavailable("no answer")] * 8
    assert Run(broker_with(*rows(1, 2)), store).to_the_end() == rows(1, 2)


def test_an_overtaken_partition_is_left_and_the_others_are_written(store: MemoryStore) -> None:
    broker = broker_with(*rows(1))
    broker.fill(1, *rows(2))
    run = Run(broker, store)
    write = store.write

    def overtaken_once(batches: Any) -> Any:
        if store.calls.count("write") == 0:
            store.epochs[P0] += 1
        return write(batches)

    store.write = overtaken_once
    assert sorted(run.to_the_end(), key=lambda row: row["n"]) == rows(1, 2)
    assert run.worker.counts.fences == 1
    assert store.rows["t"][0] == {"n": 2}, "the partition that was still its own came first"


def test_a_rival_ends_the_table_writer(store: MemoryStore) -> None:
    run = Run(broker_with(*rows(1)), store)
    write = store.write

    def overtaken(batches: Any) -> Any:
        store.epochs[P0] += 1
        return write(batches)

    store.write = overtaken
    with pytest.raises(InstanceFenced, match="claimed by another process 3 times"):
        run.to_the_end()
    assert store.rows == {}


def test_a_refused_row_ends_the_table_writer_after_what_comes_before_it(store: MemoryStore) -> None:
    store.refuses = lambda row: row == {"n": 7}
    broker = broker_with(*rows(*range(10)))
    broker.fill(1, *rows(50, 51))
    with pytest.raises(RecordFailed, match="refused"):
        Run(broker, store).to_the_end()
    assert store.rows["t"] == [*rows(*range(7)), *rows(50, 51)]
    assert store.positions == {P0: 7, P1: 2}


def test_a_first_row_that_is_refused_ends_the_table_writer(store: MemoryStore) -> None:
    store.refuses = lambda row: True
    with pytest.raises(RecordFailed, match="refused"):
        Run(broker_with(*rows(1, 2)), store).to_the_end()
    assert store.rows["t"] == []
    assert store.positions == {P0: 0}


def test_a_position_that_is_gone_from_the_log_is_refused(store: MemoryStore) -> None:
    store.positions[P0] = 3
    run = Run(broker_with(*rows(*range(9))), store)
    run.log.beginning_offsets = lambda partitions: dict.fromkeys(partitions, 5)
    with pytest.raises(PositionLost, match="the log begins at 5"):
        run.to_the_end()


def test_several_tables_take_a_record_or_none_does(store: MemoryStore) -> None:
    def half(record: Any) -> Any:
        if record.value["n"] == 2:
            raise ValueError("two")
        return [{"half": record.value["n"] / 2}] * 2

    with pytest.raises(RecordFailed, match=r"in\[0\]@2 gives no row for table h: ValueError: two"):
        Run(broker_with(*rows(0, 1, 2, 3)), store, table(), table("h", row=half)).to_the_end()
    assert store.rows == {"t": rows(0, 1), "h": [{"half": 0.0}] * 2 + [{"half": 0.5}] * 2}


def test_what_gives_no_row_goes_the_way_of_its_table(store: MemoryStore) -> None:
    def refuse(record: Any) -> Any:
        raise ValueError("never")

    skip = table("skip", row=refuse, on_error=Policy.SKIP)
    dead = table("dead", row=refuse, on_error=Policy.DEAD_LETTER)
    run = Run(broker_with(*rows(1, 2)), store, table(), skip, dead)
    assert run.to_the_end() == rows(1, 2)
    assert [(row.table, row.origin.offset(), row.error) for row in store.refused] == [
        ("dead", 0, "ValueError: never"),
        ("dead", 1, "ValueError: never"),
    ]


def test_a_row_function_that_raises_no_exception_ends_no_writer(store: MemoryStore) -> None:
    run = Run(broker_with(*rows(*range(9))), store, table(row=row, on_error=Policy.DEAD_LETTER))
    with handled(lambda *_: None):
        assert run.to_the_end() == [{"n": n} for n in range(9) if n not in RAISED]
    assert store.positions == {P0: 9}


def test_a_record_that_does_not_decode_goes_the_way_of_its_source(store: MemoryStore) -> None:
    broker = broker_with(*rows(1))
    broker.put(0, b"{")
    assert Run(broker, store, on_error=Policy.DEAD_LETTER).to_the_end() == rows(1)
    assert [row.origin.offset() for row in store.refused] == [1]


def test_a_decoder_that_says_stop_ends_no_more_than_its_record(store: MemoryStore) -> None:
    def decode(data: bytes) -> Any:
        if data == b"2":
            raise StopIteration
        return {"n": int(data)}

    value = Serde("numbers", None, decode)
    run = Run(broker_with(1, 2, 3), store, value=value, on_error=Policy.DEAD_LETTER)
    assert run.to_the_end() == rows(1, 3)
    assert [row.origin.offset() for row in store.refused] == [1]


def test_a_null_value_deletes_the_row_of_its_key(store: MemoryStore) -> None:
    broker = broker_with(*rows(1))
    broker.put(0, None)
    upsert = table(mode=TableMode.UPSERT_DELETE, keys=("id",))
    assert Run(broker, store, upsert).to_the_end() == [{"n": 1}, ("deleted", {"id": "k"})]


@pytest.mark.parametrize("let_go", [MemoryLog.revoke, MemoryLog.lose])
def test_what_a_rebalance_took_and_brings_back_is_not_caught_up(
    store: MemoryStore, let_go: Any
) -> None:
    run = Run(broker_with(*rows(*range(25))), store)
    given = run.log.next  # The one that follows when it subscribes brings the partition back.
    given += [lambda: run.log.assign(P0), lambda: None, lambda: let_go(run.log, P0), lambda: None]
    assert run.to_the_end() == rows(*range(25))


def test_revoked_partitions_are_written_and_lost_ones_are_not(store: MemoryStore) -> None:
    for give_up, expected in ((MemoryLog.revoke, 10), (MemoryLog.lose, 0)):
        store = MemoryStore()
        run = Run(broker_with(*rows(*range(10))), store)
        run.worker._pace._due = 1e9
        original = run.log.fetch

        def fetch(
            limit: int,
            seconds: float,
            run: Run = run,
            give_up: Any = give_up,
            original: Any = original,
        ) -> Any:
            if any(task.records for task in run.worker.tasks.values()):
                give_up(run.log, P0)
                run.worker.stop()
            return original(limit, seconds)

        run.log.fetch = fetch  # pyright: ignore[reportAttributeAccessIssue]
        run.worker.run()
        assert len(store.rows.get("t", [])) == expected
