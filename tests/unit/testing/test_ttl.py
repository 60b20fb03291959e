"""Topologies whose values expire, run through the worker's own code with crashes everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework import Topology
from eosframework.engine.codegen.compiler import compile_part
from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.engine.task.open_state import OpenState
from eosframework.records import Record
from eosframework.state import MemoryState
from eosframework.testing import TopologyTestDriver, crash_everywhere
from eosframework.topology.resolve.resolve import resolve
from tests.unit.engine.messages import Sent

TTL = "100ms"
TTL_MS = 100

Click = tuple[str, int]
CLICKS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 500)), max_size=30)


def visits(policy: Any = "fail", emit: Any = "each") -> Topology:
    app = Topology("visits")
    clicks = app.stream("clicks", key=str, value=str)
    counted = clicks.map_values(checked).group_by_key().count(ttl=TTL, store="visits", emit=emit)
    counted.named("counted").on_error(policy).to("counts", value="json")
    return app


def checked(value: str) -> str:
    if value == "boom":
        raise ValueError(value)
    return value


def counted(clicks: list[Click]) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """Return what a sequential reading of the rules gives: what went on, and what is left."""
    latest: dict[str, tuple[int, int]] = {}
    gone: list[tuple[str, int]] = []
    now = 0
    for key, time in clicks:
        now = max(now, time)
        count, last = latest.get(key, (0, time))
        if now > last + TTL_MS:
            count, last = 0, time
        latest[key] = count + 1, max(last, time)
        gone.append((key, count + 1))
    return gone, {key: count for key, (count, last) in latest.items() if now <= last + TTL_MS}


def send(driver: TopologyTestDriver, clicks: list[Click], value: str = "x") -> None:
    for key, time in clicks:
        driver.send("clicks", value, key=key, timestamp=time)


@settings(deadline=None)
@given(batches=st.lists(CLICKS, max_size=4), keep_stores=st.booleans())
def test_counts_begin_anew_exactly_as_a_sequential_reading_has_it(
    batches: list[list[Click]], keep_stores: bool
) -> None:
    driver = TopologyTestDriver(visits())
    for clicks in batches:
        send(driver, clicks)
        driver.run()
        driver.restart(keep_stores=keep_stores)
        driver.run()
    gone, left = counted([click for clicks in batches for click in clicks])
    assert [(r.key, r.value) for r in driver.read("counts")] == gone
    assert driver.state("visits") == left


def scenario(driver: TopologyTestDriver) -> None:
    for clicks in (
        [("a", 0), ("b", 50), ("c", 90), ("a", 20)],
        [("b", 200), ("a", 100), ("d", 60)],
        [("c", 250), ("c", 300), ("b", 301)],
        [("x", 700)],
        [("a", 120), ("x", 710)],
    ):
        send(driver, clicks)
        driver.run()


def with_deletions(driver: TopologyTestDriver) -> None:
    """Rows come, are replaced, are deleted, and expire, between what looks for them."""
    for time, key in ((10, "a"), (20, "b")):
        driver.send("rows", f"row {key}{time}", key=key, timestamp=time)
    for time, key in ((30, "a"), (115, "a"), (120, "b"), (121, "b")):
        driver.send("clicks", f"{time}", key=key, timestamp=time)
        driver.run()
    driver.send("rows", None, key="b", timestamp=200)
    driver.send("rows", "row a201", key="a", timestamp=201)
    driver.run()
    for time in (205, 302):
        driver.send("clicks", f"{time}", key="a", timestamp=time)
    driver.run()


def looked_up() -> Topology:
    app = Topology("visits")
    rows = app.table("rows", key=str, value=str, ttl=TTL)
    clicks = app.stream("clicks", key=str, value=str)
    clicks.join(rows, both, how="left").named("looked").to("found")
    return app


def both(click: str, row: str | None) -> str:
    return f"{click}: {row}"


def remember(record: Record, context: Any) -> Any:
    store = context.store("seen")
    before = [key for key, _ in store.items()]
    seen = store.get(record.key, {"n": 0})
    store.put(record.key, {"n": seen["n"] + 1})
    return [(record.key, f"{seen['n']} {before}")]


def processed() -> Topology:
    app = Topology("visits")
    clicks = app.stream("clicks", key=str, value=str)
    clicks.process(remember, stores={"seen": {"value": dict, "ttl": TTL}}).named("seen").to(
        "seen.out", value="string"
    )
    return app


@pytest.mark.parametrize(
    ("topology", "runs"),
    [
        (visits, scenario),
        (lambda: visits(emit="commit"), scenario),
        (looked_up, with_deletions),
        (processed, scenario),
    ],
    ids=["count", "commit", "table", "process"],
)
@pytest.mark.parametrize("partitions", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_a_crash_at_any_step_changes_nothing_in_what_expires(
    topology: Callable[[], Topology],
    runs: Callable[[TopologyTestDriver], None],
    partitions: int,
) -> None:
    assert crash_everywhere(topology(), runs, partitions=partitions) > 20


def test_a_row_is_found_until_stream_time_is_past_its_ttl() -> None:
    driver = TopologyTestDriver(looked_up())
    with_deletions(driver)
    assert [record.value for record in driver.read("found")] == [
        "30: row a10",
        "115: None",
        "120: row b20",
        "121: None",
        "205: row a201",
        "302: None",
    ]
    assert driver.state("rows") == {}


def test_what_a_function_put_is_gone_for_get_and_items_alike() -> None:
    driver = TopologyTestDriver(processed())
    send(driver, [("a", 0), ("b", 60), ("a", 100), ("c", 161), ("a", 201), ("b", 201)])
    driver.run()
    assert [record.value for record in driver.read("seen.out")] == [
        "0 []",
        "0 ['a']",
        "1 ['a', 'b']",
        "0 ['a']",
        "0 ['c']",
        "0 ['a', 'c']",
    ]


def test_a_record_that_fails_moves_the_time_and_changes_nothing_else() -> None:
    driver = TopologyTestDriver(visits(policy="skip"))
    send(driver, [("a", 10), ("a", 20)])
    send(driver, [("a", 200)], "boom")
    send(driver, [("a", 30)])
    driver.run()
    assert [record.value for record in driver.read("counts")] == [1, 2, 1]
    assert driver.state("visits") == {}


def test_the_time_of_a_task_counts_from_its_first_record_on() -> None:
    graph = resolve(visits().loaded())
    compiled = compile_part(graph.sub_topologies[0])
    kept = MemoryState().open("counted-0", 1, [StoreIdentity("visits", "id", 1)])
    state = OpenState(compiled, 0, kept)
    late: Any = Sent(b"x", key_=b"a", time=1000 - TTL_MS - 1)
    out: list[Any] = []
    run = compiled.sources["clicks"].run
    run([late, late], out, 1000, fail, state)
    assert [int(output[1]) for output in out] == [1, 1]


def fail(*failed: Any) -> None:
    raise AssertionError(failed)


def test_expired_keys_leave_the_changelog() -> None:
    driver = TopologyTestDriver(visits())
    for time in range(0, 3000, 30):
        send(driver, [(f"k{time}", time)])
        driver.run()
    changelog = driver.kafka.logs[driver.kafka.partitions_of("visits-visits-changelog")[0]]
    last = {message.key_: message.value_ for message in changelog.messages}
    assert sum(value is not None for value in last.values()) <= 8
