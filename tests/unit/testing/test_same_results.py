"""The same input gives the same results behind a repartition topic (ADR 20).

Random records, out of order and late, are split over random upstream tasks. Random schedules fetch
from random partitions and announce watermarks at random intervals; records arrive all at once or
bit by bit. The expected results are computed from the input alone: a record counts where its time
of writing allows it. Then one protection after the other is removed, which must show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from eosframework import Topology, session, sliding, tumbling
from eosframework.engine.codegen import compiler, reorder_code, time_code
from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import compile_part
from eosframework.engine.failures.failure_handler import FailureHandler
from eosframework.engine.operators import watermarks as written_time
from eosframework.engine.operators.stream_joins import WaitingRecords
from eosframework.engine.operators.watermarks import WATERMARK_KEY, UpstreamTimes
from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.engine.task.open_state import OpenState
from eosframework.engine.task.receipts import HEADER_RECEIPT, Receipt, ReceiptedOutputs
from eosframework.engine.task.task_windows import TaskWindows, TimedNode
from eosframework.records import Position
from eosframework.state.memory import MemoryState
from eosframework.testing import TopologyTestDriver
from eosframework.testing.stateless_driver import Sent
from eosframework.testing.topology_test_driver import graph_of
from eosframework.topology.dsl.streams import KeyedStream, Stream
from eosframework.topology.graph import timed_topics
from eosframework.topology.graph.graph import Graph, Source
from eosframework.topology.resolve import resolve
from eosframework.topology.spec.join_spec import How
from eosframework.transactions.ports import Output
from tests.support.applications.random_arrivals import (
    END,
    Given,
    driven,
    inputs,
    ran,
    value_of_record,
)

SIZE, GRACE = 10, 4


def key_of(record: Any) -> str:
    """Return the key of a record's value."""
    return record.value["key"]


def number_of(value: Any) -> int:
    """Return a number that identifies the record in a sum."""
    return 3 ** (value["number"] % 30) if value["number"] >= 0 else 0


@cache
def sums() -> Graph:
    """Sums of windows behind a repartition topic."""
    app = Topology("sums")
    keyed = app.stream("left", value="json").group_by(key_of, key=str)
    keyed.window(tumbling(f"{SIZE}ms"), grace=f"{GRACE}ms").sum(number_of, emit="close").to("out")
    return graph_of(app)


def expected_sums(records: Sequence[Given]) -> Counter[tuple[str, int, int]]:
    """Return key, start and sum of each window: of the records for which it was open."""
    found: dict[tuple[str, int], int] = {}
    for record in records:
        start = record.time - record.time % SIZE
        if record.source == "left" and start + SIZE + GRACE > record.written:
            number = number_of({"number": record.number})
            found[record.key, start] = found.get((record.key, start), 0) + number
    return Counter((key, start, value) for (key, start), value in found.items())


def run_sums(records: Sequence[Given], seed: int) -> Counter[tuple[str, int, int]]:
    """Return the same, of a run."""
    return Counter(
        (r.key, r.value.start, r.value.value) for r in ran(sums(), records, seed, ["left"])
    )


@cache
def chains() -> Graph:
    """Sums of windows of the results of windows, each behind a repartition topic."""
    app = Topology("chains")
    keyed = app.stream("left", value="json").group_by(key_of, key=str)
    first = keyed.window(tumbling(f"{SIZE}ms"), grace=f"{GRACE}ms").sum(number_of, emit="close")
    regrouped = first.group_by(half_of, key=str, name="halves")
    regrouped.window(tumbling(f"{SIZE}ms")).sum(value_of, store="all", emit="close").to("out")
    return graph_of(app)


def half_of(record: Any) -> str:
    """Return a key that several keys share."""
    return "all"


def value_of(result: Any) -> int:
    """Return the value of a window."""
    return result.value if hasattr(result, "value") else result["value"]


def expected_chains(records: Sequence[Given]) -> Counter[tuple[str, int, int]]:
    """Return key, start and sum of each window over the results of windows."""
    first: dict[tuple[str, int], tuple[int, int]] = {}
    for record in records:
        start = record.time - record.time % SIZE
        if record.source == "left" and start + SIZE + GRACE > record.written:
            value, latest = first.get((record.key, start), (0, 0))
            number = number_of({"number": record.number})
            first[record.key, start] = value + number, max(latest, record.time)
    found: Counter[int] = Counter()
    for value, at in first.values():
        found[at - at % SIZE] += value
    return Counter(("all", start, value) for start, value in found.items())


def run_chains(records: Sequence[Given], seed: int) -> Counter[tuple[str, int, int]]:
    """Return the same, of a run."""
    found = ran(chains(), records, seed, ["left"])
    return Counter((r.key, r.value.start, r.value.value) for r in found)


@cache
def pairs(how: How) -> Graph:
    """Return a topology that joins two streams, each behind a repartition topic."""
    app = Topology("pairs")
    left, right = (
        app.stream(name, value="json").group_by(key_of, key=str) for name in ("left", "right")
    )
    joined = left.join_within(cast("Any", right), both, f"{SIZE}ms", how=how, grace=f"{GRACE}ms")
    joined.named("joined").to("out", value="json")
    return graph_of(app)


def both(left: Any, right: Any) -> list[int | None]:
    """Return the numbers of both sides."""
    return [value and value["number"] for value in (left, right)]


def expected_pairs(records: Sequence[Given], how: str) -> Counter[tuple[int | None, int | None]]:
    """Return the pairs that were open at the later time of writing, and records without one."""
    reach = SIZE + GRACE
    timely = [r for r in records if r.time + reach >= r.written]
    found: Counter[tuple[int | None, int | None]] = Counter()
    met: set[int] = set()
    for one in (r for r in timely if r.source == "left"):
        for other in (r for r in timely if r.source == "right" and r.key == one.key):
            written = max(one.written, other.written)
            if abs(one.time - other.time) <= SIZE and min(one.time, other.time) + reach >= written:
                found[one.number, other.number] += 1
                met |= {one.number, other.number}
    for record in timely if how == "outer" else ():
        if record.number not in met:
            is_left = record.source == "left"
            found[(record.number, None) if is_left else (None, record.number)] += 1
    return found


def run_pairs(records: Sequence[Given], seed: int, how: How) -> Counter[Any]:
    """Return the same, of a run."""
    found = ran(pairs(how), records, seed, ["left", "right"])
    return Counter(tuple(r.value) for r in found if -1 not in r.value)


def listed(numbers: list[int], value: Any) -> list[int]:
    """Return an aggregate that shows the order in which it got its values."""
    return [*numbers, value["number"]]


def merged(earlier: list[int], later: list[int]) -> list[int]:
    """Return the aggregate of two sessions."""
    return [*earlier, *later]


def identical(value: Any) -> int:
    """Return a value that some records share."""
    return value["number"] % 2


def with_sessions(keyed: KeyedStream) -> Stream:
    """Declare sessions with an aggregate that depends on order."""
    windows = keyed.window(session(f"{SIZE}ms"), grace=f"{GRACE}ms")
    return windows.aggregate(list, listed, merge=merged, emit="close")


def with_sliding(keyed: KeyedStream) -> Stream:
    """Declare sliding windows with an aggregate that depends on order."""
    windows = keyed.window(sliding(f"{SIZE}ms"), grace=f"{GRACE}ms")
    return windows.aggregate(list, listed, emit="close")


def with_deduplication(keyed: KeyedStream) -> Stream:
    """Declare the removal of duplicates."""
    return keyed.deduplicate(f"{SIZE}ms", by=identical)


def with_fold(keyed: KeyedStream) -> Stream:
    """Declare a fold without windows that depends on order."""
    return keyed.aggregate(list, listed, order="time")


def with_expiry(keyed: KeyedStream) -> Stream:
    """Declare a fold whose values expire."""
    return keyed.aggregate(list, listed, order="time", ttl=f"{SIZE}ms")


def with_timers(keyed: KeyedStream) -> Stream:
    """Declare a function that tells of each record without a successor within a time."""
    return keyed.process(awaited, stores={"last": "json"}, on_timer=told)


def awaited(record: Any, context: Any) -> None:
    """Remember a record, and set a timer for it."""
    context.store("last").put(record.key, record.value["number"])
    context.set_timer(record.timestamp + SIZE)


def told(key: str, time: int, context: Any) -> Any:
    """Return the number of the record that was the last one when its timer was due."""
    return [(key, [context.store("last").get(key), time])]


Declare = Callable[[KeyedStream], Stream]

IN_ORDER: list[Declare] = [
    with_sessions,
    with_sliding,
    with_deduplication,
    with_fold,
    with_expiry,
    with_timers,
]
"""Steps whose results depend on the order of their records."""


@cache
def in_order(declare: Declare) -> Graph:
    """Return a topology with a step behind a repartition topic."""
    app = Topology("ordered")
    declare(app.stream("left", value="json").group_by(key_of, key=str)).to("out")
    return graph_of(app)


@cache
def without_repartition(declare: Declare) -> Graph:
    """Return a topology with the same step at the source."""
    app = Topology("plain")
    declare(app.stream("left", key=str, value="json").group_by_key()).to("out")
    return graph_of(app)


def shown(records: Sequence[Any]) -> Counter[str]:
    """Return results by key, without those of the records at the end."""
    texts = (f"{r.key}: {r.value}" for r in records if not r.key.startswith("end"))
    return Counter(texts)


def run_in_order(records: Sequence[Given], seed: int, declare: Declare) -> Counter[str]:
    """Return the results of a run."""
    return shown(ran(in_order(declare), records, seed, ["left"]))


def expected_in_order(records: Sequence[Given], declare: Declare) -> Counter[str]:
    """Return the results of one task without upstream tasks, which gets the sorted records."""
    driver = TopologyTestDriver(without_repartition(declare), partitions=1)
    own = [record for record in records if record.source == "left"]
    for one in sorted(own, key=lambda r: (r.written, r.partition, r.number)):
        value = {"key": one.key, "number": one.number, "time": one.time}
        driver.send("left", value, key=one.key, timestamp=one.time)
    driver.send("left", {"key": "end", "number": -1, "time": END}, key="end", timestamp=END)
    driver.run()
    return shown(driver.read("out"))


HISTORY = 25

Rows = Callable[[Topology], Stream]


def with_history(app: Topology) -> Stream:
    """Declare a table with history."""
    return app.table("right", key=str, value="json", history=f"{HISTORY}ms")


def with_current_rows(app: Topology) -> Stream:
    """Declare a table without history."""
    return app.table("right", key=str, value="json")


@cache
def lookups(rows: Rows, *, is_direct: bool) -> Graph:
    """Return a topology that joins a stream with a table.

    Args:
        rows: declares the table.
        is_direct: there is no repartition topic on the way.
    """
    app = Topology("lookups")
    table = rows(app)
    left = app.stream("left", key=str, value="json")
    keyed = left.group_by_key() if is_direct else left.group_by(key_of, key=str)
    joined = keyed.join(cast("Any", table), both, how="left", order="time")
    joined.named("joined").to("out", value="json")
    return graph_of(app)


def with_rows(records: Sequence[Given]) -> list[Given]:
    """Return the records with those of `right` in the partitions of their keys, as rows."""
    found: list[Given] = []
    kafka = TopologyTestDriver(lookups(with_history, is_direct=True), partitions=3).kafka
    for record in records:
        if record.source == "right":
            place = kafka.partition_for("right", record.key.encode()).partition
            before = [g.time for g in found if (g.source, g.partition) == ("right", place)]
            record = replace(record, partition=place, written=max([record.time, *before]))
        found.append(record)
    return found


def run_lookups(records: Sequence[Given], seed: int, rows: Rows) -> Counter[tuple[int, int]]:
    """Return the numbers of records and of the rows that they found."""
    graph = lookups(rows, is_direct=False)
    found = ran(graph, with_rows(records), seed, ["left", "right"], ["right"])
    return Counter(tuple(r.value) for r in found if -1 not in r.value)


def expected_lookups(records: Sequence[Given], rows: Rows) -> Counter[tuple[int, int]]:
    """Return the same for one task that gets the sorted records."""
    driver = TopologyTestDriver(lookups(rows, is_direct=True), partitions=1)
    for one in sorted(with_rows(records), key=lambda r: (r.written, r.partition, r.number)):
        value = value_of_record(one, ["right"])
        driver.send(one.source, value, key=one.key, timestamp=one.time)
    driver.run()
    return Counter(tuple(r.value) for r in driver.read("out"))


def written_live(driver: TopologyTestDriver, topic: str) -> list[Sent]:
    """Return the records of a topic without watermarks."""
    logs = (driver.kafka.logs[p] for p in driver.kafka.partitions_of(topic))
    found = (message for log in logs for message in log.messages)
    return [message for message in found if message.key() != WATERMARK_KEY]


def outputs_of_a_backfill(driver: TopologyTestDriver, graph: Graph) -> Counter[Any]:
    """Return key and value of each output of a backfill of a repartition topic, by its order.

    Each output has a receipt, those of windows that a record closes before it is run as well.
    """
    [topic] = graph.repartition_topics
    context = CompileContext(
        receipts=True,
        own_topics=[topic],
        timed_topics=timed_topics.timed_topics(graph),
        is_sorted=True,
    )
    part = compile_part(graph.readers[topic], context)
    found: Counter[Any] = Counter()
    for place in driver.kafka.partitions_of(topic):
        identities = [StoreIdentity(s.name, s.changelog, 1) for s in part.part.stores]
        state = OpenState(part, 0, MemoryState().open("backfill", 1, identities))
        state.begin()
        own = [m for m in written_live(driver, topic) if m.partition() == place.partition]
        rows = [replace(m, offset_=n) for n, m in enumerate(sorted(own, key=order_of_a_backfill))]
        out = ReceiptedOutputs("app", {topic: "rows"})
        out.restart([Position(*place, 0)])
        out.begin(place, 1)
        failed = FailureHandler()
        now = part.sources[topic].run(rows, out, 0, failed, state)
        assert_receipted(out, len(rows))
        state.windows.close_at(out, max(now, END), failed, state)
        found.update((output[2], output[1]) for output in out)
    return found


def assert_receipted(outputs: Sequence[Output], rows: int) -> None:
    """Check that outputs are numbered without a gap, in the order of their rows."""
    headers = [dict(output[7] or ()) for output in outputs]
    receipts = [Receipt.parse(found.get(HEADER_RECEIPT)) for found in headers]
    before = -1
    for number, receipt in enumerate(receipts):
        assert receipt is not None
        assert (receipt.topic, receipt.number) == ("rows", number)
        assert before <= receipt.offset < rows
        if receipt.index == 0 and number:
            assert receipt.previous == before
        before = receipt.offset


def order_of_a_backfill(message: Sent) -> tuple[int, str, int]:
    """Return time of writing, upstream task and offset."""
    headers, at = message.headers() or [], message.timestamp()[1]
    writer = str(written_time.writer_in(headers))
    return written_time.take_written(headers, at)[1], writer, message.offset()


def without_ends(outputs: Counter[Any]) -> Counter[Any]:
    """Return outputs by key and value, without those of the records at the end."""
    return Counter({one: n for one, n in outputs.items() if not (one[0] or b"").startswith(b"end")})


def run_live_and_in_a_backfill(
    records: Sequence[Given], seed: int, declare: Declare
) -> tuple[Counter[Any], Counter[Any]]:
    """Return key and value of each output, live and in a backfill."""
    graph = in_order(declare)
    driver = driven(graph, records, seed, ["left"])
    live = Counter((m.key(), m.value()) for m in written_live(driver, "out"))
    return without_ends(live), without_ends(outputs_of_a_backfill(driver, graph))


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

Case = tuple[list[Given], int]

CASES = st.tuples(inputs(), st.integers(0, 10**6))

QUICKLY = settings(max_examples=40, deadline=None, suppress_health_check=SLOW)


@pytest.fixture(autouse=True)
def graphs_of_this_test() -> Iterator[None]:
    """Forget graphs of other tests, which may have resolved them without a rule."""
    cached = (sums, chains, pairs, in_order, without_repartition, lookups)
    for graph in cached:
        graph.cache_clear()
    yield
    for graph in cached:
        graph.cache_clear()


@QUICKLY
@given(CASES)
def test_windows_have_the_same_sums_in_any_schedule(case: Case) -> None:
    assert run_sums(*case) == expected_sums(case[0])


@QUICKLY
@given(CASES)
def test_no_result_of_a_window_is_late_for_the_next_window(case: Case) -> None:
    assert run_chains(*case) == expected_chains(case[0])


@QUICKLY
@given(CASES, st.sampled_from(["inner", "outer"]))
def test_joins_have_the_same_pairs_in_any_schedule(case: Case, how: How) -> None:
    assert run_pairs(*case, how) == expected_pairs(case[0], how)


@QUICKLY
@given(CASES, st.sampled_from(IN_ORDER))
def test_what_depends_on_order_has_the_results_of_the_sorted_run(
    case: Case, declare: Declare
) -> None:
    assert run_in_order(*case, declare) == expected_in_order(case[0], declare)


@QUICKLY
@given(CASES, st.sampled_from(IN_ORDER))
def test_a_backfill_has_the_outputs_of_live_workers(case: Case, declare: Declare) -> None:
    live, backfill = run_live_and_in_a_backfill(*case, declare)
    assert backfill == live


@QUICKLY
@given(CASES, st.sampled_from([with_history, with_current_rows]))
def test_joins_with_tables_find_the_rows_of_the_sorted_run(case: Case, rows: Rows) -> None:
    assert run_lookups(*case, rows) == expected_lookups(case[0], rows)


def without_written(headers: Any, timestamp: int) -> tuple[Any, int]:
    """Read a record as if it had no time of writing."""
    return written_time.take_written(headers, timestamp)[0], timestamp


def fastest(times: UpstreamTimes) -> None:
    """Take the greatest watermark instead of the least."""
    found = [time for time, _ in times._known.values()]
    times._slowest = max(found, default=0)
    times._upstream = set(times._known)


def keep_without_written(
    waiting: WaitingRecords, side: int, key: bytes, time: int, data: bytes, written: int
) -> None:
    """Keep a record of a join without its time of writing."""
    KEEP(waiting, side, key, time, data, time)


KEEP = WaitingRecords.keep


def differ_in_sums(case: Case) -> bool:
    """Return whether the sums of windows are others than expected."""
    return run_sums(*case) != expected_sums(case[0])


def differ_in_chains(case: Case) -> bool:
    """Return whether the sums of windows over windows are others than expected."""
    return run_chains(*case) != expected_chains(case[0])


def differ_in_pairs(case: Case) -> bool:
    """Return whether an outer join has other results than expected."""
    return run_pairs(*case, "outer") != expected_pairs(case[0], "outer")


def differ_in_order(case: Case, steps: Sequence[Declare] = IN_ORDER) -> bool:
    """Return whether steps that depend on order have other results than the sorted run."""
    return any(
        run_in_order(*case, declare) != expected_in_order(case[0], declare) for declare in steps
    )


DIFFER_IN_ORDER = {
    declare.__name__: partial(differ_in_order, steps=[declare]) for declare in IN_ORDER
}
"""The same, of each step alone."""


def differ_in_lookups(case: Case) -> bool:
    """Return whether a join with a table's history finds other rows than the sorted run."""
    return run_lookups(*case, with_history) != expected_lookups(case[0], with_history)


def differ_in_a_backfill(case: Case) -> bool:
    """Return whether a backfill has other sliding windows than live workers."""
    live, backfill = run_live_and_in_a_backfill(*case, with_sliding)
    return live != backfill


def close_afterwards(code: Any, time: str, moves: str) -> None:
    """Write the move of stream time alone: a record is run before the windows that it closes."""
    code.line(3, f"if {time} > stream_time: {moves} = {time}")


def streams_alone(part: Any, source: Source) -> bool:
    """Return whether a source is no table: rows do not hold stream time."""
    return not source.is_table


def same(graph: Graph) -> Graph:
    """Return a graph without reorder steps."""
    return graph


def release_at_once(windows: TaskWindows, node: TimedNode, *rest: Any) -> None:
    """Run held records without closing windows in between."""
    _, pass_ = rest
    windows._close_one(node, pass_.now, pass_)


@pytest.mark.parametrize(
    ("place", "name", "broken", "differ", "seed"),
    [
        pytest.param(time_code, "take_written", without_written, differ_in_sums, 0, id="L"),
        pytest.param(UpstreamTimes, "_find_slowest", fastest, differ_in_sums, 0, id="the least"),
        pytest.param(timed_topics, "hold_ms", lambda *_: 0, differ_in_chains, 5, id="W3, hold"),
        pytest.param(
            WaitingRecords, "keep", keep_without_written, differ_in_pairs, 0, id="L of entries"
        ),
        *(
            pytest.param(resolve, "with_reordering", same, differs, 1, id=f"reorder {name}")
            for name, differs in DIFFER_IN_ORDER.items()
        ),
        pytest.param(resolve, "with_reordering", same, differ_in_lookups, 0, id="reorder lookups"),
        pytest.param(
            timed_topics, "_looked_up", lambda _: (), differ_in_lookups, 0, id="rows held"
        ),
        pytest.param(
            time_code, "_write_move", close_afterwards, differ_in_a_backfill, 0, id="closing first"
        ),
        pytest.param(
            compiler, "moves_time", streams_alone, differ_in_lookups, 0, id="time of rows"
        ),
        pytest.param(reorder_code, "writer_in", lambda _: 0, differ_in_order, 5, id="writer"),
        pytest.param(TaskWindows, "_release", release_at_once, differ_in_order, 2, id="closing"),
    ],
)
def test_each_rule_is_needed(
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    broken: Callable[..., Any],
    differ: Callable[[Case], bool],
    seed: int,
) -> None:
    """A seed finds it within some 20 cases, where others need minutes on a busy machine."""
    monkeypatch.setattr(place, name, broken)
    once = settings(
        max_examples=1500,
        phases=[Phase.generate],
        suppress_health_check=SLOW,
        deadline=None,
        database=None,
    )
    assert differ(find(CASES, differ, settings=once, random=Random(seed)))
