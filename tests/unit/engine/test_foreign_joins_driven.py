"""Foreign-key joins in whole topologies, in memory, against joins of plain dicts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from eosframework import Record, Topology, dead_letter, tumbling
from eosframework.testing import TopologyTestDriver, crash_everywhere
from eosframework.testing.topology_test_driver import graph_of

Value = dict[str, Any]


def tail(flight: Record[Any, Value]) -> Any:
    return flight.value["tail"]


def maker(plane: Record[str, Value]) -> Any:
    return plane.value["maker"]


def with_plane(flight: Value, plane: Value | None) -> Value:
    if flight.get("fails"):
        raise ValueError("this flight is not joined")
    return {**flight, "plane": plane}


def with_maker(plane: Value, maker: Value | None) -> Value:
    return {**plane, "by": maker}


def with_gate(flight: Value, gate: Value | None) -> Value:
    return {**flight, "gate": gate}


def is_shown(flight: Value) -> bool:
    return flight.get("shown", True)


def size(plane: Value) -> Value:
    return {"seats": plane["seats"]}


def is_large(plane: Value) -> bool:
    return plane["seats"] > 10


def topology(how: Any) -> Topology:
    app = Topology("air")
    flights = app.table("flights", key=int, value=dict)
    planes = app.table("planes", key=str, value=dict)
    flights.join(planes, with_plane, how=how, key=tail).to("joined", value=dict)
    return app


def last(driver: TopologyTestDriver, topic: str) -> dict[Any, Any]:
    """Return the last value of each key, without deleted ones."""
    found = {record.key: record.value for record in driver.read(topic)}
    return {key: value for key, value in found.items() if value is not None}


def history(draw: random.Random, driver: TopologyTestDriver, count: int) -> dict[int, Value]:
    """Send random changes of both tables, between turns; return the rows joined by dicts."""
    flights: dict[int, Value] = {}
    planes: dict[str, Value] = {}
    for n in range(count):
        key: Any = draw.randrange(8)
        if draw.random() < 0.5:
            value = {"tail": draw.choice(["N1", "N2", "N3", "N4", None]), "n": n}
            sent, rows = draw.choice([value, value, None]), flights
            driver.send("flights", sent, key=key, timestamp=n)
        else:
            key = f"N{draw.randrange(1, 5)}"
            sent, rows = draw.choice([{"seats": n}, {"seats": n}, None]), planes
            driver.send("planes", sent, key=key, timestamp=draw.randrange(n + 1))
        rows.pop(key, None)
        if sent is not None:
            rows[key] = sent
        for _ in range(draw.randrange(3)):
            driver.turn()
    driver.run()
    return {key: {**row, "plane": planes.get(row["tail"])} for key, row in flights.items()}


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("seed", range(6))
def test_random_histories_end_like_a_join_of_dicts(how: str, seed: int) -> None:
    driver = TopologyTestDriver(topology(how), partitions={"flights": 3, "planes": 2})
    expected = history(random.Random(seed), driver, 60)
    if how == "inner":
        expected = {key: row for key, row in expected.items() if row["plane"] is not None}
    assert last(driver, "joined") == expected


def test_the_stores_are_read_with_their_rows_and_versions() -> None:
    with TopologyTestDriver(topology("left"), partitions={"flights": 1, "planes": 1}) as driver:
        driver.send("planes", {"seats": 5}, key="N1", timestamp=1)
        for key, tail_number in ((1, "N1"), (2, "N1"), (3, None)):
            driver.send("flights", {"tail": tail_number}, key=key, timestamp=2)
        driver.run()
        driver.send("flights", {"tail": "N2"}, key=2, timestamp=3)
        driver.run()
        assert driver.state("flights.join.subscribed") == {
            1: {"foreign_key": "N1", "version": 1},
            2: {"foreign_key": "N2", "version": 4},
            3: {"foreign_key": None, "version": 3},
        }
        assert driver.state("flights.join.subscribers") == {
            "N1": [{"subscriber": 1, "version": 1}],
            "N2": [{"subscriber": 2, "version": 4}],
        }
        joined = driver.state("flights.join.joined")
        assert joined[1] == {
            "left": {"tail": "N1"},
            "right": {"seats": 5},
            "version": 1,
            "answered": 1,
        }
        assert (joined[2]["right"], joined[2]["version"]) == (None, 4)
        assert joined[3]["answered"] == 0


def some_flights(driver: TopologyTestDriver) -> None:
    driver.send("planes", {"seats": 5}, key="N1", timestamp=1)
    driver.send("flights", {"tail": "N1"}, key=1, timestamp=2)
    driver.send("flights", {"tail": None}, key=2, timestamp=3)
    driver.run()
    driver.send("flights", {"tail": "N2"}, key=1, timestamp=4)
    driver.send("planes", {"seats": 9}, key="N2", timestamp=5)
    driver.run()
    driver.send("planes", {"seats": 6}, key="N2", timestamp=6)
    driver.send("flights", None, key=2, timestamp=7)
    driver.run()


@pytest.mark.exhaustive
@pytest.mark.parametrize("partitions", [1, {"flights": 2, "planes": 3}])
def test_a_crash_at_any_step_changes_no_result(partitions: Any) -> None:
    assert crash_everywhere(topology("left"), some_flights, partitions=partitions) > 20


def test_a_result_has_the_later_time_of_both_rows() -> None:
    driver = TopologyTestDriver(topology("left"))
    driver.send("planes", {"seats": 1}, key="N1", timestamp=50)
    driver.send("flights", {"tail": "N1"}, key=1, timestamp=10)
    driver.send("flights", {"tail": None}, key=2, timestamp=11)
    driver.run()
    driver.send("planes", {"seats": 2}, key="N1", timestamp=70)
    driver.run()
    driver.send("flights", None, key=1, timestamp=60)
    driver.run()
    times = {(record.key, record.timestamp) for record in driver.read("joined")}
    assert times == {(1, 50), (2, 11), (1, 70)}


def test_a_row_with_the_same_foreign_key_asks_no_other_task() -> None:
    driver = TopologyTestDriver(topology("inner"))
    driver.send("planes", {"seats": 1}, key="N1")
    for n in range(3):
        driver.send("flights", {"tail": "N1", "n": n}, key=1)
    driver.run()
    assert [record.value["n"] for record in driver.read("joined")][-1] == 2
    [asked] = driver.kafka.partitions_of("air-flights.join.subscriptions-repartition")
    assert len(driver.kafka.logs[asked].messages) == 1


def chained() -> Topology:
    app = Topology("air")
    flights = app.table("flights", key=int, value=dict)
    planes = app.table("planes", key=str, value=dict)
    makers = app.table("makers", key=str, value=dict)
    gates = app.table("gates", key=int, value=dict)
    made = planes.join(makers, with_maker, how="left", key=maker)
    joined = flights.join(made, with_plane, how="left", key=tail).filter(is_shown)
    joined.join(gates, with_gate, how="left").to("joined", value=dict)
    return app


def test_joins_and_filters_follow_a_join() -> None:
    driver = TopologyTestDriver(chained(), partitions=2)
    driver.send("flights", {"tail": "N1"}, key=1)
    driver.send("planes", {"maker": "AIRBUS"}, key="N1")
    driver.send("gates", {"gate": 7}, key=1)
    driver.run()
    plane = {"maker": "AIRBUS", "by": None}
    assert last(driver, "joined") == {1: {"tail": "N1", "plane": plane, "gate": {"gate": 7}}}
    driver.send("makers", {"country": "FR"}, key="AIRBUS")
    driver.run()
    plane = {"maker": "AIRBUS", "by": {"country": "FR"}}
    assert last(driver, "joined") == {1: {"tail": "N1", "plane": plane, "gate": {"gate": 7}}}
    driver.send("flights", {"tail": "N1", "shown": False}, key=1)
    driver.run()
    assert [record.value for record in driver.read("joined")] == [None]
    driver.send("gates", {"gate": 8}, key=1)
    driver.run()
    assert driver.read("joined") == []


def test_a_table_is_joined_with_views() -> None:
    app = Topology("air")
    flights = app.table("flights", key=int, value=dict).filter(is_shown)
    planes = app.table("planes", key=str, value=dict).filter(is_large).map_values(size)
    flights.join(planes, with_plane, key=tail).to("joined", value=dict)
    driver = TopologyTestDriver(app)
    driver.send("flights", {"tail": "N1"}, key=1)
    driver.send("planes", {"seats": 5, "x": 1}, key="N1")
    driver.run()
    assert driver.read("joined") == []
    driver.send("planes", {"seats": 50, "x": 1}, key="N1")
    driver.run()
    assert last(driver, "joined") == {1: {"tail": "N1", "plane": {"seats": 50}}}
    driver.send("planes", {"seats": 5}, key="N1")
    driver.run()
    assert [record.value for record in driver.read("joined")] == [None]
    driver.send("flights", {"tail": "N1", "shown": False}, key=1)
    driver.run()
    assert driver.read("joined") == []


def test_a_table_is_joined_with_itself() -> None:
    app = Topology("staff")
    people = app.table("people", key=str, value=dict)
    people.join(people, with_plane, how="left", key=tail).to("joined", value=dict)
    driver = TopologyTestDriver(app, partitions=2)
    driver.send("people", {"tail": "b"}, key="a")
    driver.send("people", {"tail": None}, key="b")
    driver.run()
    boss = {"tail": None}
    assert last(driver, "joined") == {
        "a": {"tail": "b", "plane": boss},
        "b": {"tail": None, "plane": None},
    }


def test_an_aggregate_is_joined_with_a_table() -> None:
    app = Topology("shop")
    counts = app.stream("orders", key=str, value=dict).group_by(customer).count()
    regions = app.table("regions", key=int, value=dict)
    counts.join(regions, count_with, key=region, store="regional").to("joined", value=dict)
    driver = TopologyTestDriver(app, partitions={"orders": 3, "regions": 2})
    for n in range(4):
        driver.send("orders", {"customer": "ada"}, key=str(n))
    driver.send("regions", {"name": "north"}, key=0)
    driver.run()
    assert last(driver, "joined") == {"ada": {"count": 4, "region": "north"}}


def customer(order: Record[str, Value]) -> str:
    return order.value["customer"]


def region(count: Record[str, int]) -> int:
    return count.value % 2


def count_with(count: int, region: Value) -> Value:
    return {"count": count, "region": region["name"]}


def test_a_foreign_key_of_another_type_is_one_message_that_names_both() -> None:
    app = topology("left")
    driver = TopologyTestDriver(app)
    driver.send("flights", {"tail": 7}, key=1)
    with pytest.raises(Exception, match=r"tail returned 7 \(int\), and table 'planes' has keys of"):
        driver.run()


def either(flight: Value, plane: Value) -> Value:
    return {**plane, **flight}


def test_a_foreign_key_that_does_not_fit_is_refused_with_the_reason() -> None:
    app = Topology("air")
    flights = app.table("flights", key=int, value=dict)
    planes = app.table("planes", key=int, value=dict)
    flights.join(planes, either, key=tail).to("out", value=dict)
    driver = TopologyTestDriver(app)
    driver.send("flights", {"tail": 2**70}, key=1)
    with pytest.raises(Exception, match=r"keys of integer \(\d+ does not fit the 8 bytes"):
        driver.run()


def test_a_foreign_key_that_raises_goes_by_the_policy_and_leaves_nothing() -> None:
    app = Topology("air")
    flights = app.table("flights", key=int, value=dict)
    planes = app.table("planes", key=str, value=dict)
    joined = flights.join(planes, with_plane, how="left", key=tail)
    joined.on_error(dead_letter("dead")).to("joined", value=dict)
    driver = TopologyTestDriver(app)
    driver.send("flights", {"tail": "N1"}, key=1)
    driver.send("flights", {"no": "tail"}, key=1)
    driver.send("flights", {"tail": "N1", "fails": True}, key=2)
    driver.run()
    assert last(driver, "joined") == {1: {"tail": "N1", "plane": None}}
    assert len(driver.read("dead")) == 2
    assert driver.state("flights") == {1: {"tail": "N1"}, 2: {"tail": "N1", "fails": True}}


def popped_tail(flight: Record[Any, Value]) -> Any:
    return flight.value.pop("tail")


def test_a_key_function_that_changes_its_row_changes_neither_table_nor_result() -> None:
    app = Topology("air")
    flights = app.table("flights", key=int, value=dict)
    planes = app.table("planes", key=str, value=dict)
    flights.join(planes, with_plane, key=popped_tail).to("joined", value=dict)
    driver = TopologyTestDriver(app)
    driver.send("planes", {"seats": 1}, key="N1")
    driver.send("flights", {"tail": "N1"}, key=1)
    driver.run()
    assert last(driver, "joined") == {1: {"tail": "N1", "plane": {"seats": 1}}}
    assert driver.state("flights") == {1: {"tail": "N1"}}


def test_each_topic_has_the_partitions_of_the_topics_that_it_meets() -> None:
    driver = TopologyTestDriver(topology("inner"), partitions={"flights": 5, "planes": 3})
    found = {
        part: len(driver.kafka.partitions_of(f"air-flights.join.{part}-repartition"))
        for part in ("rows", "subscriptions", "answers")
    }
    assert found == {"rows": 5, "subscriptions": 3, "answers": 5}
    assert driver.tasks == {"flights": 5, "planes": 3, "flights.join.keyed": 5}


def test_windows_follow_a_join_in_stream_time() -> None:
    app = Topology("air")
    flights = app.table("flights", key=int, value=dict)
    planes = app.table("planes", key=str, value=dict)
    joined = flights.join(planes, with_plane, key=tail).flat_map(by_tail)
    counted = joined.group_by_key().window(tumbling(seconds=1)).count(emit="close")
    counted.to("counted")
    assert graph_of(app)
    driver = TopologyTestDriver(app, partitions=2)
    driver.send("planes", {"seats": 1}, key="N1", timestamp=1)
    for n in range(6):
        driver.send("flights", {"tail": "N1"}, key=n, timestamp=400 * n)
    driver.run()
    assert [record.value.value for record in driver.read("counted")][:2] == [3, 2]


def by_tail(flight: Record[int, Value]) -> list[tuple[str, Value]]:
    return [] if flight.value is None else [(flight.value["tail"], flight.value)]


def seats(flight: Value) -> int:
    return flight["plane"]["seats"]


def maker_of(flight: Record[int, Value]) -> str:
    return flight.value["plane"]["maker"]


def test_a_group_of_joined_rows_takes_back_the_row_before() -> None:
    app = Topology("air")
    flights = app.table("flights", key=int, value=dict)
    planes = app.table("planes", key=str, value=dict)
    joined = flights.join(planes, with_plane, key=tail)
    joined.group_by(maker_of, key=str, value="json", name="by").sum(seats).to("seats", value=int)
    driver = TopologyTestDriver(app)
    driver.send("planes", {"maker": "A", "seats": 5}, key="N1")
    driver.send("planes", {"maker": "B", "seats": 9}, key="N2")
    driver.send("flights", {"tail": "N1"}, key=1)
    driver.run()
    driver.send("flights", {"tail": "N1", "late": True}, key=1)
    driver.run()
    assert last(driver, "seats") == {"A": 5}
    driver.send("flights", {"tail": "N2"}, key=1)
    driver.run()
    assert last(driver, "seats") == {"A": 0, "B": 9}
