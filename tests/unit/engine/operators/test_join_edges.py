"""Tables and joins where something is missing, fails, or is over."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from eosframework.engine.restoration.global_tables import HELD_SECONDS, GlobalTables
from eosframework.errors import ClusterUnreachable, PositionLost, RecordFailed, RunError
from eosframework.records import TopicPartition
from eosframework.testing import Sent
from eosframework.topology.dsl.builder import Topology
from tests.support.applications.one_task import OneTask, compiled_task


def both(left: Any, right: Any) -> list[Any]:
    return [left, right]


def refuse_nine(left: Any, right: Any) -> list[Any]:
    if left == 9 and right is None:
        raise ValueError("nine does not go alone")
    return [left, right]


def met(by: Any = both, on_error: Any = "fail", **options: Any) -> OneTask:
    app = Topology("app")
    left = app.stream("left", key=str, value="json").on_error(on_error)
    right = app.stream("right", key=str, value="json")
    left.join_within(right, by, **{"within": "10ms", "how": "left", **options}).to(
        "out", value="json"
    )
    return OneTask(compiled_task(app))


def test_a_left_record_without_a_key_goes_on_alone_and_others_are_passed_over() -> None:
    task = met()
    assert task.send("left", None, 1, 1) == [("out", None, [1, None], 1)]
    assert task.send("right", None, 1, 0) == []
    assert task.send("left", "a", None, 0) == []
    assert task.send("right", "a", None, 0) == []
    assert task.send("left", "b", 1, 1000) == []


def test_a_record_that_is_late_meets_nothing_and_is_counted() -> None:
    task = met()
    task.send("right", "a", 1, 100)
    assert task.send("left", "a", 2, 89) == []
    assert task.state.late.count == 1
    assert task.send("left", "a", 3, 90) == [("out", "a", [3, 1], 100)]
    task = met(late="late")
    task.send("right", "a", 1, 100)
    assert task.send("left", "a", 2, 89) == [("late", "a", 2, 89)]
    assert "late" in task.part.sink_topics


def test_a_record_that_fails_alone_is_skipped_and_holds_up_no_other() -> None:
    task = met(refuse_nine, "skip")
    task.send("left", "a", 9, 0)
    task.send("left", "b", 1, 1)
    assert task.send("left", "c", 2, 100) == [("out", "b", [1, None], 1)]
    assert task.failures.skipped == 1
    assert task.send("left", "c", 3, 200) == [("out", "c", [2, None], 100)]


def test_a_record_that_fails_alone_stops_the_task_behind_the_one_that_moved_time() -> None:
    task = met(refuse_nine)
    task.send("left", "a", 9, 0)
    with pytest.raises(RecordFailed) as failed:
        task.send("left", "b", 1, 100)
    assert failed.value.offset == 2
    task.commit()
    task.restart()
    with pytest.raises(RecordFailed):
        task.send("left", "b", 2, 101)


def test_records_of_one_time_that_go_on_alone_do_so_once_each_although_one_fails() -> None:
    task = met(refuse_nine)
    for value in (1, 9, 2):
        task.send("left", "a", value, 1)
    with pytest.raises(RecordFailed):
        task.send("left", "b", 3, 100)
    assert task.before_failure() == [("out", "a", [1, None], 1)]
    task.commit()
    task.restart()
    with pytest.raises(RecordFailed, match="nine does not go alone"):
        task.send("left", "b", 4, 101)
    assert task.before_failure() == []


def test_what_is_over_leaves_the_store() -> None:
    for how in ("inner", "left", "outer"):
        task = met(how=how, grace="5ms")
        for time in range(0, 500, 5):
            task.send("left" if time % 2 else "right", str(time % 3), time, time)
        task.commit()
        (held,) = task.held().values()
        assert len(held) > 3
        task.send("left", "z", 0, 10_000)
        task.commit()
        task.send("left", "z", 0, 20_000)
        task.commit()
        (held,) = task.held().values()
        assert len(held) == (2 if how == "inner" else 3)


def test_no_entry_outgrows_what_a_broker_takes_however_much_waits_for_a_key() -> None:
    task = met(within="1h", how="inner")
    for number in range(4000):
        task.send("left", "a", "x" * 20, number)
    task.commit()
    (held,) = task.held().values()
    assert max(map(len, held.values())) < 20_000
    assert len(task.send("right", "a", 1, 4000)) == 4000

    app = Topology("app")
    table = app.table("table", key=str, value="json", history="1h")
    app.stream("stream", key=str, value="json").join(table, both).to("out", value="json")
    task = OneTask(compiled_task(app))
    for number in range(4000):
        task.send("table", "a", number, number if number % 100 else number // 2)
    task.commit()
    (held,) = task.held().values()
    assert max(map(len, held.values())) < 40_000
    assert len(held) > 3
    assert task.send("stream", "a", 1, 2222)[0][2] == [1, 2222]


def test_a_store_of_another_interval_is_refused_with_what_to_do() -> None:
    task = met()
    task.send("left", "a", 1, 0)
    task.commit()
    other = met(within="20ms")
    other.stores = task.stores
    other.restart()
    with pytest.raises(RunError, match=r"before 10ms.*declares a join.* 20ms.*store: NAME"):
        other.send("left", "a", 1, 0)


def test_a_table_keeps_nothing_of_what_its_history_is_over() -> None:
    app = Topology("app")
    table = app.table("table", key=str, value="json", history="1s")
    stream = app.stream("stream", key=str, value="json")
    stream.join(table, both, how="left").to("out", value="json")
    task = OneTask(compiled_task(app))
    for time in range(0, 10_000, 10):
        task.send("table", "a", time, time)
        task.send("table", "b", None if time == 9_990 else time, time)
    task.commit()
    (held,) = task.held().values()
    assert sum(len(data) for data in held.values()) < 2 * 120 * 40
    task.send("stream", "a", 1, 50_000)
    task.commit()
    (held,) = task.held().values()
    assert list(held) == [b"ka"]
    assert task.send("stream", "a", 1, 50_001) == [("out", "a", [1, 9_990], 50_001)]
    assert task.send("stream", "b", 1, 50_001) == [("out", "b", [1, None], 50_001)]


@pytest.mark.parametrize(
    ("deleted", "row", "now", "found"),
    [
        (9_000, 8_500, 10_600, None),
        (9_000, 9_100, 10_600, 2),
        (9_000, 8_500, 11_001, 2),
    ],
)
def test_a_deletion_outlasts_the_history_by_another_one(
    deleted: int, row: int, now: int, found: int | None
) -> None:
    app = Topology("app")
    table = app.table("table", key=str, value="json", history="1s")
    stream = app.stream("stream", key=str, value="json")
    stream.join(table, both, how="left").to("out", value="json")
    task = OneTask(compiled_task(app))
    task.send("table", "a", 1, 8_000)
    task.send("table", "a", None, deleted)
    task.send("stream", "b", 0, now)
    task.commit()
    task.send("table", "a", 2, row)
    task.commit()
    assert task.send("stream", "a", 0, now) == [("out", "a", [0, found], now)]


def test_a_deletion_has_the_time_of_its_record_where_a_function_gives_the_others_theirs() -> None:
    app = Topology("app")
    table = app.table("t", key=str, value="json", history="1h", timestamp=lambda row: row["at"])
    app.stream("stream", key=str, value="json").join(table, both).to("out", value="json")
    task = OneTask(compiled_task(app))
    task.send("t", "a", {"at": 10}, 99)
    task.send("t", "a", None, 20)
    assert task.send("stream", "a", 1, 19) == [("out", "a", [1, {"at": 10}], 19)]
    assert task.send("stream", "a", 1, 20) == []


def test_an_aggregate_is_looked_up_and_joined_as_the_table_that_it_is() -> None:
    app = Topology("app")
    clicks = app.stream("clicks", key=str, value="json")
    counts = clicks.group_by_key().count().filter(lambda count: count > 1)
    names = app.table("names", key=str, value="json")
    names.join(counts, both).to("both", value="json")
    visits = app.stream("visits", key=str, value="json")
    visits.join(counts, both, how="left").to("visits.out", value="json")
    task = OneTask(compiled_task(app))
    assert task.send("names", "a", "Ann", 0) == []
    assert task.send("clicks", "a", 1, 1) == []
    assert task.send("visits", "a", "v", 2) == [("visits.out", "a", ["v", None], 2)]
    assert task.send("clicks", "a", 1, 3) == [("both", "a", ["Ann", 2], 3)]
    assert task.send("visits", "a", "v", 4) == [("visits.out", "a", ["v", 2], 4)]
    assert task.send("names", "a", None, 5) == [("both", "a", None, 5)]
    assert task.send("names", "a", None, 6) == []
    assert task.send("clicks", "a", 1, 7) == []


def test_a_function_that_changes_what_it_is_given_changes_no_table() -> None:
    def change(left: Any, right: Any) -> Any:
        right["n"] += left["n"]
        return right

    app = Topology("app")
    table = app.table("table", key=str, value="json")
    other = app.table("other", key=str, value="json")
    stream = app.stream("stream", key=str, value="json")
    stream.join(table, change).to("out", value="json")
    other.join(table, change).to("tables", value="json")
    task = OneTask(compiled_task(app))
    task.send("table", "a", {"n": 1}, 0)
    for _ in range(3):
        assert task.send("stream", "a", {"n": 1}, 1)[0][2] == {"n": 2}
    assert task.send("other", "a", {"n": 10}, 2)[0][2] == {"n": 11}
    assert task.send("other", "a", {"n": 10}, 3)[0][2] == {"n": 11}


def looking_into(table: Any) -> OneTask:
    app = Topology("app")
    airports = app.global_table("airports", key=str, value=int)
    stream = app.stream("stream", key=str, value="json")
    by_key = stream.join(airports, both, key=lambda record: record.value["to"], how="left")
    by_key.to("out", value="json")
    return OneTask(compiled_task(app), {"airports": table})


def test_a_record_finds_a_row_of_a_global_table_by_any_key() -> None:
    rows = {b"JFK": (struct.pack(">q", 1), 0)}
    task = looking_into(rows)
    going, nowhere = {"to": "JFK"}, {"to": None}
    assert task.send("stream", "a", going, 1) == [("out", "a", [going, 1], 1)]
    assert task.send("stream", "a", nowhere, 1) == [("out", "a", [nowhere, None], 1)]
    rows[b"JFK"] = struct.pack(">q", 2), 0
    assert task.send("stream", "a", going, 1) == [("out", "a", [going, 2], 1)]
    del rows[b"JFK"]
    assert task.send("stream", "a", going, 1) == [("out", "a", [going, None], 1)]


class Log:
    """A topic with one partition, whose reader gives what the test says."""

    def __init__(self) -> None:
        self.records: list[Sent] = []
        self.batches = 2
        self.away = False
        self.lost = False
        self.readers = 0
        self.stable: int | None = None
        """The offset at which an open transaction blocks readers."""

    def add(self, key: str | None, value: bytes | None) -> None:
        at = len(self.records)
        encoded = None if key is None else key.encode()
        self.records.append(Sent("t", value, encoded, at, at, None))

    def bounds(self, partitions: Sequence[TopicPartition]) -> Any:
        if self.away:
            raise ClusterUnreachable("no broker answers")
        return {p: (0, self.end) for p in partitions}

    def written_ends(self, partitions: Sequence[TopicPartition]) -> Any:
        if self.away:
            raise ClusterUnreachable("no broker answers")
        return dict.fromkeys(partitions, len(self.records))

    @property
    def end(self) -> int:
        return len(self.records) if self.stable is None else self.stable

    def open(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Any:
        self.readers += 1
        return Reader(self)


class Reader:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._at = 0

    def read(self, seconds: float) -> Mapping[TopicPartition, Sequence[Sent]]:
        if self._log.lost:
            self._log.lost = False
            raise PositionLost("it is gone")
        batch = self._log.records[self._at : min(self._at + self._log.batches, self._log.end)]
        self._at += len(batch)
        return {TopicPartition("t", 0): batch} if batch else {}

    def read_to(self, partition: TopicPartition) -> int:
        return self._at

    def close(self) -> None:
        self._log.readers -= 1


def test_a_global_table_is_complete_before_it_says_so_and_follows_its_topic() -> None:
    log = Log()
    for key, value in (("a", b"1"), ("b", b"2"), ("a", None), (None, b"3"), ("c", b"4")):
        log.add(key, value)
    tables = GlobalTables(log, {"t": 1})
    rows = tables.topics["t"]
    turns = 1
    while not tables.turn():
        assert rows == {}
        turns += 1
    assert turns == 4
    assert rows == {b"b": (b"2", 1), b"c": (b"4", 4)}
    log.add("b", None)
    assert tables.turn()
    assert list(rows) == [b"c"]
    tables.close()
    assert log.readers == 0


def test_a_global_table_waits_for_what_an_open_transaction_hides_and_says_so() -> None:
    log, now = Log(), 0.0
    for key in "abc":
        log.add(key, b"1")
    log.stable = 1
    tables = GlobalTables(log, {"t": 1}, clock=lambda: now)
    with capture_logs() as logs:
        for _ in range(5):
            assert not tables.turn()
            now += HELD_SECONDS / 2
    [event] = logs
    assert (event["event"], event["offsets"]) == ("global_tables_held_back", {"t[0]": 1})
    assert "eosframework txn hanging" in event["advice"]
    log.stable = None
    while not tables.turn():
        pass
    assert len(tables.topics["t"]) == 3


def test_an_empty_global_table_is_complete_at_once() -> None:
    assert GlobalTables(Log(), {"t": 1}).turn()


def test_a_global_table_whose_position_is_gone_is_read_again_and_shows_its_rows_meanwhile() -> None:
    log = Log()
    for number in range(3):
        log.add(str(number), b"old")
    tables = GlobalTables(log, {"t": 1})
    while not tables.turn():
        pass
    log.lost = True
    assert tables.turn()
    log.records = [Sent("t", b"new", str(n).encode(), n, n, None) for n in range(1, 4)]
    seen = set()
    for _ in range(4):
        assert tables.turn()
        seen.add(frozenset(tables.topics["t"]))
    assert seen == {frozenset({b"0", b"1", b"2"}), frozenset({b"1", b"2", b"3"})}
    assert log.readers == 1


def test_a_global_table_waits_for_brokers_that_are_away() -> None:
    log, now = Log(), 0.0
    log.away = True
    tables = GlobalTables(log, {"t": 1}, clock=lambda: now)
    assert not tables.turn()
    log.away = False
    assert not tables.turn()
    now = 2.0
    assert tables.turn()
