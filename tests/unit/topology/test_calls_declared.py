"""Steps that call a coroutine, as they are declared, described and refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eosframework import Topology, dead_letter
from eosframework.errors import TopologyError
from eosframework.topology.dsl.streams import Stream
from eosframework.topology.graph.description import describe
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve

HERE = "tests.unit.topology.test_calls_declared"
Build = Callable[[Stream[str, Any]], Any]


async def enrich(value: dict[str, Any], client: Any) -> dict[str, Any]:
    return {**value, "client": client}


async def known(value: Any) -> bool:
    return bool(value)


def plain(value: Any) -> Any:
    return value


def client() -> str:
    return "client"


class Called:
    async def __call__(self, value: Any) -> Any:
        return value


YAML = f"""\
application: shop
sources:
  sold: {{topic: sold, key: string, value: json}}
streams:
  priced:
    from: sold
    steps:
      - filter_async: "{HERE}:known"
      - map_async:
          call: "{HERE}:enrich"
          concurrency: 8
          order: key
          timeout: 5s
          rate: 300/m
          retry: [200ms, 1s]
          resources: {{client: "{HERE}:client"}}
      - for_each_async: "{HERE}:known"
    to: priced
"""


def declared() -> Topology:
    app = Topology("shop")
    sold = app.stream("sold", key=str, value="json")
    options: dict[str, Any] = {
        "concurrency": 8,
        "order": "key",
        "timeout": "5s",
        "rate": "300/m",
        "retry": ["200ms", "1s"],
        "resources": {"client": client},
    }
    priced = sold.filter_async(known).map_async(enrich, **options).for_each_async(known)
    priced.named("priced").to("priced")
    return app


def calls_of(app: Any) -> list[Any]:
    described = describe(resolve(app))
    return [step["calls"] for part in described["sub_topologies"] for step in part["steps"]]


def test_python_and_yaml_declare_the_same() -> None:
    default = {"concurrency": 64, "order": "input", "timeout": "30s", "resources": {}}
    wanted = {
        "concurrency": 8,
        "order": "key",
        "timeout": "5s",
        "rate": 5.0,
        "retry": ["200ms", "1s"],
        "resources": {"client": f"{HERE}:client"},
    }
    assert calls_of(declared().loaded()) == [default, wanted, default]
    assert calls_of(read_yaml(YAML, "shop.yaml")) == [default, wanted, default]


def findings(build: Build) -> list[str]:
    app = Topology("shop")
    build(app.stream("sold", key=str, value="json"))
    return [f"{found.rule}: {found.message}" for found in lint(app.loaded())]


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda s: s.map_async(plain).to("b"), "use map_values, which calls a function"),
        (lambda s: s.filter_async(plain).to("b"), "use filter, which calls a function"),
        (lambda s: s.for_each_async(plain), "use peek, which calls a function"),
        (lambda s: s.map_values(known).to("b"), "For a coroutine use map_async"),
        (lambda s: s.filter(known).to("b"), "For a coroutine use filter_async"),
        (lambda s: s.peek(known), "For a coroutine use for_each_async"),
        (
            lambda s: s.select_key(known).to("b"),
            "in map_async, filter_async, for_each_async or",
        ),
        (lambda s: s.map_async(enrich).to("b"), "missing a required argument: 'client'"),
        (
            lambda s: s.map_async(known, resources={"http": client}).to("b"),
            "is called with 2 arguments (the value, http=…)",
        ),
        (
            lambda s: s.group_by(lambda r: r.key).count().map_async(known).to("b"),
            "it comes after count in 'sold.group_by', steps[1]",
        ),
        (
            lambda s: s.filter_batch(plain, schema={"n": int}).map_async(known).to("b"),
            "it comes after filter_batch in",
        ),
    ],
)
def test_what_cannot_be_called_is_refused(build: Build, wanted: str) -> None:
    [found] = findings(build)
    assert wanted in found


def keyed(last: str) -> list[str]:
    text = f"""\
application: shop
sources:
  sold: {{topic: sold, key: string, value: json}}
streams:
  kept:
    from: sold
    steps:
      - group_by: "{HERE}:plain"
      - map_async: "{HERE}:known"
      - {last}
    to: priced
"""
    return [found.message for found in lint(read_yaml(text, "shop.yaml"))]


def test_calls_follow_a_group_by_but_precede_no_step_that_takes_records_by_time() -> None:
    assert keyed("count: {emit: each}") == []
    [found] = keyed("deduplicate: 1h")
    assert "deduplicate, which takes records in the order of time" in found


def test_an_object_with_an_asynchronous_call_is_one_of_them() -> None:
    assert findings(lambda s: s.map_async(Called()).to("b")) == []


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"rate": 0}, "0 is no rate; expected a number of calls above zero"),
        ({"rate": "fast"}, "'fast' is no rate"),
        ({"rate": -1}, "-1 is no rate"),
        ({"concurrency": 0}, "greater than or equal to 1"),
        ({"timeout": "0s"}, "timeout: 0 lets no call end"),
        ({"order": "none"}, "Input should be 'input' or 'key'"),
        ({"retry": "often"}, "'often' is no duration"),
        ({"retries": 3}, "Extra inputs are not permitted"),
    ],
)
def test_impossible_options_are_refused_where_they_are_given(
    options: dict[str, Any], wanted: str
) -> None:
    stream: Any = Topology("shop").stream("sold", key=str, value="json")
    with pytest.raises(TopologyError, match=r"test_calls_declared\.py:\d+") as refused:
        stream.map_async(known, **options)
    assert wanted in str(refused.value)


def effect_findings(build: Build, *, dead: Any = None) -> list[str]:
    app = Topology("shop")
    stream = app.stream("sold", key=str, value="json")
    build(stream if dead is None else stream.on_error(dead))
    return [f"{found.rule}: {found.message}" for found in lint(app.loaded())]


def charge(value: Any, effect: Any) -> Any:
    return value


async def charge_later(value: Any, effect: Any, client: Any) -> Any:
    return value


EFFECT_YAML = f"""\
application: shop
sources:
  sold: {{topic: sold, key: string, value: json}}
streams:
  paid:
    from: sold
    steps:
      - call_once:
          call: "{HERE}:charge_later"
          on_doubt: look_up
          look_up: "{HERE}:charge_later"
          key: "{HERE}:plain"
          keep: 1h
          retry: 1s
          resources: {{client: "{HERE}:client"}}
    to: paid
"""


def test_an_effect_is_declared_and_described() -> None:
    graph = resolve(read_yaml(EFFECT_YAML, "shop.yaml"))
    [part] = describe(graph)["sub_topologies"]
    assert part["steps"][0]["calls"] == {
        "concurrency": 64,
        "order": "input",
        "timeout": "30s",
        "retry": ["1s"],
        "on_doubt": "look_up",
        "look_up": f"{HERE}:charge_later",
        "key": f"{HERE}:plain",
        "name": "charge_later",
        "keep": "1h",
        "resources": {"client": f"{HERE}:client"},
    }
    assert part["effects_topic"] == "shop-paid-effects"
    assert graph.effects_topics == ["shop-paid-effects"]
    assert "shop-paid-effects" in graph.internal_topics


@pytest.mark.parametrize(
    ("build", "dead", "wanted"),
    [
        (
            lambda s: s.call_once(charge, on_doubt="dead_letter").to("b"),
            None,
            "its stream has no topic for dead letters",
        ),
        (
            lambda s: s.call_once(charge, on_doubt="dead_letter").to("b"),
            dead_letter("dead", retry="1s"),
            "finds the doubt again each time",
        ),
        (
            lambda s: s.call_once(charge, on_doubt="dead_letter").to("b"),
            dead_letter("dead", replay=True),
            "finds the doubt again each time",
        ),
        (
            lambda s: s.call_once(charge, on_doubt="retry").call_once(charge, on_doubt="retry"),
            None,
            "as steps[0] has; give one of them another one with name:",
        ),
        (
            lambda s: s.call_once(plain, on_doubt="retry").to("b"),
            None,
            "is called with 2 arguments (the value, the effect)",
        ),
        (
            lambda s: s.call_once(charge_later, on_doubt="retry").to("b"),
            None,
            "missing a required argument: 'client'",
        ),
        (
            lambda s: s.call_once(charge, on_doubt="retry", key=known).to("b"),
            None,
            "is declared with `async def`",
        ),
        (
            lambda s: s.group_by(lambda r: r.key).count().call_once(charge, on_doubt="retry"),
            None,
            "it comes after count in",
        ),
    ],
)
def test_an_effect_that_cannot_be_kept_is_refused(build: Build, dead: Any, wanted: str) -> None:
    found = effect_findings(build, dead=dead)
    assert [one for one in found if wanted in one], found


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, "on_doubt"),
        ({"on_doubt": "hope"}, "'retry', 'look_up' or 'dead_letter'"),
        ({"on_doubt": "look_up"}, "on_doubt: look_up has no function"),
        ({"on_doubt": "retry", "look_up": charge}, "is used with on_doubt: look_up only"),
        ({"on_doubt": "dead_letter", "retry": "1s"}, "may have taken effect"),
        ({"on_doubt": "retry", "name": "A b"}, "step name 'A b' contains"),
        ({"on_doubt": "retry", "rate": 0}, "0 is no rate"),
    ],
)
def test_a_policy_without_its_function_is_refused_where_it_is_given(
    options: dict[str, Any], wanted: str
) -> None:
    stream: Any = Topology("shop").stream("sold", key=str, value="json")
    with pytest.raises(TopologyError, match=r"test_calls_declared\.py:\d+") as refused:
        stream.call_once(charge, **options)
    assert wanted in str(refused.value)
