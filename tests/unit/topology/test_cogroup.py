"""An aggregate of several streams: in both forms, its results, and what does not fit together."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from eosframework import Topology, WindowResult, hopping, session, sliding, tumbling
from eosframework.errors import RecordFailed, TopologyError
from eosframework.testing import TopologyTestDriver
from eosframework.topology.graph.code_places import codes_of
from eosframework.topology.graph.description import as_text, describe
from eosframework.topology.graph.walk import nodes_of
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve

Met = list[list[Any]]


def nothing() -> Met:
    return []


def add_order(so_far: Met, order: dict[str, Any]) -> Met:
    if order["n"] < 0:
        raise ValueError("a negative order")
    return [*so_far, ["order", order["n"]]]


def add_click(so_far: Met, click: str) -> Met:
    return [*so_far, ["click", int(click)]]


def add_visit(so_far: Met, visit: int) -> Met:
    return [*so_far, ["visit", visit]]


def both(one: Met, other: Met) -> Met:
    return [*one, *other]


def customer(record: Any) -> str:
    return record.value["customer"]


WINDOWS: dict[str, Any] = {
    "none": None,
    "tumbling": tumbling("10ms"),
    "hopping": hopping("20ms", every="5ms"),
    "sliding": sliding("10ms"),
    "session": session("4ms"),
}


def activity(window: Any = None, **options: Any) -> Topology:
    app = Topology("shop")
    orders = app.stream("orders", key=bytes, value=dict).group_by(customer, key=str, name="orders")
    clicks = app.stream("clicks", key=str, value=str).group_by_key()
    visits = app.stream("visits", key=str, value=int).group_by_key()
    if window is not None:
        options = {"window": window, "grace": "1h", **options}
    adds = {orders: add_order, clicks: add_click, visits: add_visit}
    app.cogroup(adds, initial=nothing, name="activity", **options).to("out")
    return app


def bounds(kind: str, times: list[int]) -> list[tuple[int, int]]:
    """Return start and end, both included, of the windows of a key, by their definition."""
    last = max(times)
    match kind:
        case "none":
            return [(0, last)]
        case "tumbling":
            return [(start, start + 9) for start in range(0, last + 1, 10)]
        case "hopping":
            return [(start, start + 19) for start in range(0, last + 1, 5)]
        case "sliding":
            return [*{*((t - 10, t) for t in times), *((t + 1, t + 11) for t in times)}]
        case _:
            found: list[tuple[int, int]] = []
            for time in sorted(times):
                if found and time - found[-1][1] <= 4:
                    found[-1] = found[-1][0], time
                else:
                    found.append((time, time))
            return found


def expected(kind: str, records: list[tuple[str, str, int, int]]) -> dict[Any, Any]:
    """Return by key and window what was met in it, whatever the order."""
    found: dict[Any, Any] = {}
    for key in {record[1] for record in records}:
        own = [record for record in records if record[1] == key]
        for start, end in bounds(kind, [time for *_, time in own]):
            met = [[topic[:-1], n] for topic, _, n, time in own if start <= time <= end]
            if met:
                over = end + 1 if kind in ("tumbling", "hopping") else end
                found[key if kind == "none" else (key, start, over)] = sorted(met)
    return found


RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["orders", "clicks", "visits"]),
        st.sampled_from("ab"),
        st.integers(0, 9),
        st.integers(1, 40),
    ),
    max_size=20,
)


@pytest.mark.parametrize("kind", WINDOWS)
@settings(deadline=None, max_examples=12)
@given(records=RECORDS, keep_stores=st.booleans())
def test_each_key_and_window_meets_the_records_of_all_inputs(
    kind: str, records: list[tuple[str, str, int, int]], keep_stores: bool
) -> None:
    merge: Any = {"merge": both} if kind == "session" else {}
    driver = TopologyTestDriver(activity(WINDOWS[kind], **merge))
    last: dict[Any, Any] = {}
    for number, (topic, key, n, time) in enumerate(records):
        match topic:
            case "orders":
                driver.send("orders", {"customer": key, "n": n}, timestamp=time)
            case "clicks":
                driver.send("clicks", str(n), key=key, timestamp=time)
            case _:
                driver.send("visits", n, key=key, timestamp=time)
        if number == len(records) // 2:
            driver.run()
            driver.restart(keep_stores=keep_stores)
    driver.run()
    for record in driver.read("out"):
        value = record.value
        is_window = isinstance(value, WindowResult)
        place = (record.key, value.start, value.end) if is_window else record.key
        last[place] = value.value if is_window else value
    found = {place: sorted(met) for place, met in last.items() if met is not None}
    assert found == expected(kind, records)


def test_one_store_one_result_stream_and_one_sub_topology() -> None:
    graph = resolve(activity().loaded())
    part = graph.readers["clicks"]
    assert {"clicks", "visits", "shop-orders-repartition"} == {*part.topics}
    assert [s.name for s in part.stores if "__" not in s.name] == ["activity.cogroup"]
    (step,) = [each for each in describe(graph)["sub_topologies"] if each["name"] == part.name]
    (keyed,) = step["keyed"]
    assert [*keyed["functions"]] == ["initial", "add 0", "add 1", "add 2"]
    assert "cogroup(" in as_text(graph)
    files = {code.file for node in nodes_of(part) for code in codes_of(node)}
    assert files == {"tests/unit/topology/test_cogroup.py"}, "a debugger stops in no other"


HEAD = """
application: w
sources:
  orders: {topic: orders, key: string, value: json}
  clicks: {topic: clicks, key: KEY, value: string}
streams:
"""
MODULE = __name__


def topology(streams: str, key: str = "string") -> Any:
    return read_yaml(HEAD.replace("KEY", key) + streams.replace("M:", f"{MODULE}:"), "app.yaml")


COGROUP = """
  a:
    from: [orders, clicks]
    to: out
    steps:
      - cogroup: {initial: "M:nothing", add: ["M:add_order", "M:add_click"], store: met}
"""


def test_yaml_and_python_say_the_same() -> None:
    app = Topology("w")
    orders = app.stream("orders", key=str, value="json").group_by_key()
    clicks = app.stream("clicks", key=str, value=str).group_by_key()
    adds = {orders: add_order, clicks: add_click}
    app.cogroup(adds, initial=nothing, store="met", name="a").to("out")
    written = topology(COGROUP)
    assert lint(written) == []
    (ours,), (theirs,) = app.spec.streams["a"].steps, written.spec.streams["a"].steps
    assert ours.cogroup is not None
    assert theirs.cogroup is not None
    names = [name.rpartition(":")[2] for name in ours.cogroup.functions.values()]
    assert names == [name.rpartition(":")[2] for name in theirs.cogroup.functions.values()]
    assert app.spec.streams["a"].from_ == written.spec.streams["a"].from_


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("[orders, clicks]", "orders"), "2 functions in add:, and from: has 1 streams"),
        (('"M:add_order", ', ""), "cogroup is of two streams at least"),
        (("- cogroup", '- filter: "builtins:bool"\n      - cogroup'), "comes after other steps"),
        (("M:add_click", "M:nothing"), "called with 2 arguments (the aggregate, a value)"),
        (("store: met", "window: {session: 1m}"), "needs merge"),
    ],
)
def test_what_does_not_fit_together_is_found(change: tuple[str, str], complaint: str) -> None:
    messages = [finding.message for finding in lint(topology(COGROUP.replace(*change)))]
    assert any(complaint in message for message in messages), messages


def test_keys_of_different_serdes_are_refused() -> None:
    (finding,) = lint(topology(COGROUP, key="integer"))
    assert "inputs with different keys ('orders': string, 'clicks': integer)" in finding.message


def test_changes_of_a_table_are_refused() -> None:
    counted = "  counts: {from: orders, steps: [count: {store: n}]}"
    found = lint(topology(counted + COGROUP.replace("[orders,", "[counts,")))
    (message,) = [finding.message for finding in found if finding.rule == "row-list"]
    assert "cogroup cannot take the changes of the table of count" in message


def test_inputs_with_a_new_key_pass_through_a_topic_each() -> None:
    moved = '  moved: {from: orders, steps: [select_key: "M:customer"]}'
    graph = resolve(topology(moved + COGROUP.replace("[orders,", "[moved,")))
    assert graph.repartition_topics == {"w-moved.cogroup-repartition"}
    driver = TopologyTestDriver(graph)
    driver.send("orders", {"customer": "a", "n": 1}, key="x", timestamp=1)
    driver.send("clicks", "2", key="a", timestamp=2)
    driver.run()
    (*_, record) = driver.read("out")
    assert record.key == "a"
    assert sorted(record.value) == [["click", 2], ["order", 1]]


class Total(BaseModel):
    orders: int = 0
    clicks: int = 0


def total() -> Total:
    return Total()


def more_orders(so_far: Total, order: int) -> Total:
    return Total(orders=so_far.orders + order, clicks=so_far.clicks)


def more_clicks(so_far: Total, click: str) -> Total:
    return Total(orders=so_far.orders, clicks=so_far.clicks + 1)


def no_total(so_far: Total, click: str) -> int:
    return 1


def totals(add: Any) -> Topology:
    app = Topology("w")
    orders = app.stream("orders", key=str, value=int).group_by_key()
    clicks = app.stream("clicks", key=str, value=str).group_by_key()
    adds: dict[Any, Any] = {orders: more_orders, clicks: add}
    app.cogroup(adds, initial=total, name="totals").to("out")
    return app


def test_the_aggregate_has_the_type_that_all_functions_return() -> None:
    driver = TopologyTestDriver(totals(more_clicks))
    driver.send("orders", 5, key="a", timestamp=1)
    driver.send("clicks", "x", key="a", timestamp=2)
    driver.send("clicks", None, key="a", timestamp=3)
    driver.run()
    assert [r.value for r in driver.read("out")] == [Total(orders=5), Total(orders=5, clicks=1)]
    messages = [finding.message for finding in lint(totals(no_total).loaded())]
    assert any("returns int" in message for message in messages), messages


def test_an_error_names_the_aggregate_and_follows_on_error() -> None:
    driver = TopologyTestDriver(activity())
    driver.send("orders", {"customer": "a", "n": -1}, timestamp=1)
    with pytest.raises(RecordFailed, match=r"activity.steps\[0\] cogroup.*a negative order"):
        driver.run()


def test_streams_of_another_topology_and_single_ones_are_refused() -> None:
    app, other = Topology("w"), Topology("o")
    one = app.stream("in", key=str, value=int).group_by_key()
    with pytest.raises(TopologyError, match=r"test_cogroup.py:\d+.*another topology"):
        other.cogroup({one: add_visit}, initial=nothing)
    with pytest.raises(TopologyError, match=r"test_cogroup.py:\d+.*two streams at least"):
        app.cogroup({one: add_visit}, initial=nothing)


def test_late_records_of_each_input_go_to_their_topic() -> None:
    driver = TopologyTestDriver(activity(tumbling("10ms"), grace="0s", late="late", emit="close"))
    driver.send("clicks", "1", key="a", timestamp=50)
    driver.run()
    driver.send("visits", 7, key="a", timestamp=5)
    driver.run()
    (late,) = driver.read("late")
    assert late.key in ("a", b"a")
    counted = defaultdict[str, int](int)
    counted[late.topic] += 1
    assert counted == {"late": 1}
