from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eosframework.errors import TopologyError
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.dsl.declarations import dead_letter
from tests.unit.topology.apps import (
    Flight,
    by_carrier,
    departure,
    is_early,
    is_late,
    read,
    shape,
)

LINEAR = """
application: flights
sources:
  flights: {topic: flights.raw, key: string, value: json, timestamp: "m:departure"}
streams:
  late:
    from: flights
    steps:
      - filter: "m:is_late"
      - map_values: "m:shape"
    on_error: {dead_letter: flights.dead}
    to:
      - {topic: flights.late, value: json}
"""


def linear() -> Topology:
    app = Topology("flights")
    flights = app.stream("flights.raw", key=str, value=dict, timestamp=departure, name="flights")
    late = flights.filter(is_late).map_values(shape).named("late")
    late.on_error(dead_letter("flights.dead")).to("flights.late", value="json")
    return app


EVERY_OPERATOR = """
application: all
sources:
  a: {topic: a, value: "m:Flight", on_error: skip, name: part}
streams:
  steps:
    from: a
    steps:
      - filter: "m:is_late"
      - map: "m:shape"
      - map_values: "m:shape"
      - flat_map: "m:shape"
      - flat_map_values: "m:shape"
      - select_key: "m:shape"
      - peek: "m:shape"
      - process: "m:shape"
    on_error: fail
    to:
      - x
      - y
      - {topic_from: "m:by_carrier", topics: [f, g], key: integer, value: float, name: z}
"""


def every_operator() -> Topology:
    app = Topology("all")
    a = app.stream("a", value=Flight, on_error="skip", sub_topology="part")
    a = a.filter(is_late).map(shape).map_values(shape).flat_map(shape).flat_map_values(shape)
    a = a.select_key(shape).peek(shape).process(shape).on_error("fail").named("steps")
    a.to("x", "y")
    a.to(by_carrier, topics=["f", "g"], key=int, value=float, name="z")
    return app


BRANCHES = """
application: branches
sources:
  a: {topic: a}
  b: {topic: b}
streams:
  both:
    from: [a, b]
  kinds:
    from: both
    steps: [{map_values: "m:shape"}]
    branch: {late: "m:is_late", early: "m:is_early", default: other}
    to: everything
  rest:
    from: [early, other]
    steps: [{filter: "m:is_late"}]
    to: rest
  late_out:
    from: late
    to: late
"""


def branches() -> Topology:
    app = Topology("branches")
    both = app.stream("a").merge(app.stream("b")).named("both")
    kinds = both.map_values(shape).named("kinds")
    found = kinds.branch({"late": is_late}, early=is_early, default="other")
    kinds.to("everything")
    found["early"].merge(found["other"]).filter(is_late).named("rest").to("rest")
    found["late"].named("late_out").to("late")
    return app


@pytest.mark.parametrize(
    ("text", "build"), [(LINEAR, linear), (EVERY_OPERATOR, every_operator), (BRANCHES, branches)]
)
def test_python_and_yaml_give_the_same_spec(text: str, build: Callable[[], Topology]) -> None:
    app = read(text)
    assert app.problems == ()
    spec = build().spec
    assert spec == app.spec
    assert spec.model_dump_json() == app.spec.model_dump_json()


def test_an_unnamed_stream_names_its_sub_topology_after_its_source() -> None:
    app = Topology("flights")
    app.stream("Flights-Raw").filter(is_late).to("out")
    spec = app.spec
    assert spec.sources["flights_raw"].name == "flights_raw"
    assert list(spec.streams) == ["flights_raw.is_late"]


def test_a_generated_name_stays_when_other_streams_come_and_go() -> None:
    def names(more: bool) -> list[str]:
        app = Topology("flights")
        flights = app.stream("flights")
        if more:
            flights.filter(is_early).to("early")
        flights.filter(is_late).to("late")
        return list(app.spec.streams)

    assert names(more=False)[0] in names(more=True)


def test_streams_that_share_a_beginning_share_its_steps() -> None:
    app = Topology("flights")
    shaped = app.stream("flights").map_values(shape)
    shaped.filter(is_late).to("late")
    shaped.filter(is_early).to("early")
    streams = app.spec.streams
    assert [len(s.steps) for s in streams.values()] == [1, 1, 1]
    assert [s.from_ for s in streams.values()][1:] == [("flights.shape",)] * 2


def test_split_gives_a_stream_for_each_predicate_and_one_for_the_rest() -> None:
    app = Topology("flights")
    late, early, rest = app.stream("flights").split(is_late, is_early)
    late.to("late")
    early.to("early")
    rest.to("rest")
    carrier = next(iter(app.spec.streams.values()))
    assert carrier.branch_names == (
        "flights.branch.is_late",
        "flights.branch.is_early",
        "flights.branch.rest",
    )


def test_two_lambdas_on_one_line_are_told_apart() -> None:
    app = Topology("flights")
    app.stream("flights").filter(lambda v: v).map_values(lambda v: [v]).to("out")
    loaded = app.loaded()
    steps = next(iter(loaded.spec.streams.values())).steps
    assert steps[0].function.startswith("<lambda> at test_builder_and_spec.py:")
    assert steps[1].function == f"{steps[0].function}#2"
    assert loaded.find(steps[1].function)(1) == [1]


def test_a_finding_in_python_points_at_the_call() -> None:
    app = Topology("flights")
    app.stream("flights").filter("tests.unit.topology.apps:is_lat").to("out")
    loaded = app.loaded()
    place = loaded.source_map.find(("streams", "flights.is_lat", "steps", 0, "filter"))
    assert place.file == __file__
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[place.line - 1]
    assert ".filter(" in line
    assert line[place.column - 1 :].startswith("app.stream")


def _named_twice(app: Topology) -> None:
    flights = app.stream("flights")
    flights.filter(is_late).named("x").to("a")
    flights.filter(is_early).named("x").to("b")
    _ = app.spec


def _policy_twice(app: Topology) -> None:
    app.stream("flights").filter(is_late).on_error("skip").map(shape).on_error("fail").to("a")
    _ = app.spec


def _policy_too_late(app: Topology) -> None:
    late = app.stream("flights").filter(is_late)
    late.to("a")
    late.on_error("skip")


def _branches_twice(app: Topology) -> None:
    flights = app.stream("flights")
    flights.split(is_late)
    flights.branch(early=is_early)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda app: app.stream("a").filter(None), "filter was given a NoneType"),
        (lambda app: app.stream("a").on_error("ignore"), "given 'ignore'; expected 'fail'"),
        (lambda app: app.stream("a", on_error=3), "given 3; expected 'fail', 'skip'"),
        (lambda app: app.stream("a", value=memoryview), "no serde for memoryview"),
        (lambda app: (app.stream("a"), app.stream("a")), "source 'a' is declared twice"),
        (lambda app: app.stream("a").to(), "no topic; name at least one"),
        (lambda app: app.stream("a").branch({"default": is_late}), "cannot be named 'default'"),
        (
            lambda app: app.stream("a").merge(Topology("other").stream("b")),
            "stream of another topology, 'other'",
        ),
        (_named_twice, "already a stream named 'x'"),
        (_policy_twice, "already has an on_error"),
        (_policy_too_late, "on_error.. comes after the stream was used"),
        (_branches_twice, "branches twice"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(
    declare: Callable[[Topology], Any], message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        declare(Topology("flights"))


def test_topologies_and_streams_show_their_parts() -> None:
    app = Topology("shop")
    orders = app.stream("shop.orders", value=dict, name="orders")
    rates = app.global_table("rates", value=dict)
    paid = orders.filter("m:is_paid").named("paid")
    totals = paid.group_by("m:customer").sum("m:amount")
    totals.to("totals")
    large = orders.branch(large="m:is_large")["large"].merge(paid)
    large.to("large", "totals")
    assert repr(app) == "<Topology shop: reads shop.orders, rates; writes totals, large>"
    assert repr(paid) == "<Stream orders -> filter -> named paid of shop>"
    assert repr(totals) == "<Stream orders -> filter -> named paid -> group_by -> sum of shop>"
    assert repr(orders.group_by_key()) == "<KeyedStream orders of shop>"
    assert repr(large) == "<Stream branch large -> merge of shop>"
    assert repr(rates) == "<GlobalTable rates of shop>"
    assert repr(Topology("empty")) == "<Topology empty: reads nothing; writes nothing>"
