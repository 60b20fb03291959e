from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eosframework.demo.feeds import example_file
from eosframework.topology.graph.graph import Step
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve

FOLDER = Path(__file__).parents[3] / "examples" / "flights"

ON_TIME: dict[str, Any] = {
    "carrier": "UA",
    "flight": 1545,
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
    "time_hour": "2013-01-01T10:00:00Z",
    "minute": 15,
    "dep_time": 517,
    "arr_time": 830,
    "arr_delay": 11,
}


def test_the_demo_runs_the_example() -> None:
    assert example_file("flights", "topology.yaml") == FOLDER / "topology.yaml"


def test_the_example_has_no_findings_and_is_the_same_in_python() -> None:
    yaml = load_app(str(FOLDER / "topology.yaml"))
    python = load_app(str(FOLDER / "app.py"))
    assert lint(yaml) == lint(python) == []
    assert yaml.spec.model_dump_json() == python.spec.model_dump_json()


@pytest.mark.parametrize(
    ("changes", "branch"),
    [
        ({}, "on_time"),
        ({"arr_delay": 15}, "on_time"),
        ({"arr_delay": 16}, "late"),
        ({"dep_time": None, "arr_time": None, "arr_delay": None}, "cancelled"),
        ({"arr_time": None, "arr_delay": None}, "cancelled"),
    ],
)
def test_each_flight_goes_one_way(changes: dict[str, Any], branch: str) -> None:
    (part,) = resolve(load_app(str(FOLDER / "topology.yaml"))).sub_topologies
    (step,) = part.sources[0].children
    assert isinstance(step, Step)
    index = step.function.call(ON_TIME | changes)
    assert ["cancelled", "late", "on_time"][index] == branch


def test_a_flight_without_a_known_delay_is_broken() -> None:
    (part,) = resolve(load_app(str(FOLDER / "topology.yaml"))).sub_topologies
    (step,) = part.sources[0].children
    assert isinstance(step, Step)
    with pytest.raises(ValueError, match="UA1545 arrived, but not known when"):
        step.function.call(ON_TIME | {"arr_delay": None})
    assert step.on_error.topic == part.sources[0].on_error.topic == "flights.dead"


def test_the_event_time_is_the_scheduled_departure() -> None:
    (part,) = resolve(load_app(str(FOLDER / "topology.yaml"))).sub_topologies
    timestamp = part.sources[0].timestamp
    assert timestamp is not None
    assert timestamp.call(ON_TIME) == 1357035300000
