"""Stages run after those that feed them; ranges say what they mean."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eosframework import Topology
from eosframework.errors import ConfigurationError
from eosframework.records import Record
from eosframework.spark.backfill.job_start import Bound, parse_bound, refuse_empty
from eosframework.spark.job.job_entry import OffsetRange
from eosframework.spark.job.stages import stages, writers_of
from eosframework.topology.graph.graph import Graph
from eosframework.topology.resolve.resolve import resolve


def graph_of(app: Topology) -> Graph:
    return resolve(app.loaded())


def by_value(record: Record) -> int:
    return record.value % 7


def digit(value: int) -> int:
    return value % 7


def counted() -> Topology:
    app = Topology("orders")
    stream = app.stream("orders.raw", key=str, value=int)
    stream.group_by(by_value, key=int).count(store="sizes").to("orders.sizes")
    return app


def test_a_stage_runs_after_those_that_write_what_it_reads() -> None:
    graph = graph_of(counted())
    tasks = {part.name: 4 for part in graph.sub_topologies}
    first, second = stages(graph, tasks)
    assert first.topics == ["orders.raw"]
    assert first.reads_log
    assert second.own_topics == set(second.topics)
    assert not second.reads_log
    assert writers_of(graph) == {second.topics[0]: {first.name}}


def test_what_files_stand_for_is_put_into_order_first() -> None:
    graph = graph_of(counted())
    tasks = {part.name: 4 for part in graph.sub_topologies}
    first, _ = stages(graph, tasks, ["orders.raw"])
    assert first.files == {"orders.raw"}
    assert not first.reads_log


def test_a_circle_is_refused_by_name() -> None:
    app = Topology("orders")
    app.stream("ping", value=int).map_values(digit).to("pong")
    app.stream("pong", value=int).map_values(digit).to("ping")
    graph = graph_of(app)
    with pytest.raises(ConfigurationError, match="in a circle"):
        stages(graph, {part.name: 1 for part in graph.sub_topologies})


def milliseconds(*moment: int) -> int:
    return round(datetime(*moment, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", (None, None, "beginning")),
        ("end", (None, None, "end")),
        ("raw=end", ("raw", None, "end")),
        ("raw[3]=17", ("raw", 3, 17)),
        ("2024-02-01", (None, None, milliseconds(2024, 2, 1))),
        ("raw=2024-02-01T06:00:00+02:00", ("raw", None, milliseconds(2024, 2, 1, 4))),
        ("2024-02-01T06:00:00Z", (None, None, milliseconds(2024, 2, 1, 6))),
    ],
)
def test_an_end_of_a_range_is_read(
    text: str, expected: tuple[str | None, int | None, str | int]
) -> None:
    assert parse_bound(text) == Bound(*expected, text)


@pytest.mark.parametrize("text", ["", "yesterday", "raw=17", "raw[x]=1", "raw[0]=end"])
def test_what_is_no_end_of_a_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a bound"):
        parse_bound(text)


def test_an_empty_range_is_refused_with_what_it_would_have_been() -> None:
    with pytest.raises(ConfigurationError, match=r"raw\[0\] 4 to 4"):
        refuse_empty({"raw": (OffsetRange(first=4, end=4),)})
    refuse_empty({"raw": (OffsetRange(first=4, end=4), OffsetRange(first=4, end=5))})
