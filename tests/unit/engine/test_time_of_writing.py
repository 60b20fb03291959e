"""Times of writing: written by the first task, judged by later ones; the order of a backfill."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eosframework import Topology, tumbling
from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import CompiledPart, compile_part
from eosframework.engine.failures.failure_handler import FailureHandler
from eosframework.engine.operators.watermarks import (
    HEADER_WRITTEN,
    take_written,
    with_written,
    written_time,
)
from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.engine.task.open_state import OpenState
from eosframework.spark.session.ordering import SortKeys
from eosframework.state.memory import MemoryState
from eosframework.testing.stateless_driver import Sent
from eosframework.testing.topology_test_driver import graph_of
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.timed_topics import timed_topics
from eosframework.transactions.ports import Output


def key_of(record: Any) -> str:
    return record.value["k"]


def counts() -> Graph:
    app = Topology("counts")
    keyed = app.stream("in", value="json").group_by(key_of, key=str)
    keyed.window(tumbling("10ms"), grace="5ms").count(emit="close").to("out")
    return graph_of(app)


GRAPH = counts()
[REPARTITION] = GRAPH.repartition_topics


def compiled(number: int, *, is_sorted: bool = False) -> CompiledPart:
    context = CompileContext(
        own_topics=GRAPH.repartition_topics,
        timed_topics=timed_topics(GRAPH),
        is_sorted=is_sorted,
    )
    return compile_part(GRAPH.sub_topologies[number], context)


def record(topic: str, time: int, offset: int, headers: Any = None) -> Sent:
    value = json.dumps({"k": "a"}).encode()
    return Sent(topic, value, b"a", time, offset, headers)


def test_only_records_out_of_order_have_a_time_of_writing() -> None:
    out: list[Output] = []
    messages = [record("in", time, n) for n, time in enumerate([100, 120, 90, 120])]
    assert compiled(0).sources["in"].run(messages, out, 0, FailureHandler()) == 120
    assert [output[7] for output in out] == [None, None, with_written(None, 120), None]


def test_it_is_added_to_the_headers_that_a_record_has_and_taken_off_again() -> None:
    headers = with_written([("own", b"1")], 120)
    assert headers == [("own", b"1"), (HEADER_WRITTEN, (120).to_bytes(8, "big"))]
    assert take_written(headers, 90) == ([("own", b"1")], 120)
    assert take_written(headers, 130) == ([("own", b"1")], 130)
    assert written_time(None, 90) == 90


@pytest.mark.parametrize("value", [None, b"", b"abc"])
def test_a_header_that_is_none_counts_as_the_event_time(value: bytes | None) -> None:
    assert take_written([(HEADER_WRITTEN, value)], 90) == (None, 90)


def test_a_backfill_moves_stream_time_by_times_of_writing() -> None:
    part = compiled(1, is_sorted=True)
    assert not part.paced_by
    stores = MemoryState().open(
        "counts", 1, [StoreIdentity(s.name, s.changelog, 1) for s in part.part.stores]
    )
    state, out = OpenState(part, 0, stores), list[Output]()
    state.begin()
    messages = [
        record(REPARTITION, 101, 0),
        record(REPARTITION, 102, 1, with_written(None, 114)),
        record(REPARTITION, 103, 2, with_written(None, 115)),
    ]
    time = part.sources[REPARTITION].run(messages, out, 0, FailureHandler(), state)
    assert time == 115
    [closed] = out
    assert json.loads(closed[1] or b"")["value"] == 2, "the third was late by its time of writing"
    assert state.late.count == 1


def test_a_backfill_sorts_by_the_time_of_writing() -> None:
    keys = SortKeys(GRAPH, GRAPH.sub_topologies[1].name)
    assert keys.of(record(REPARTITION, 100, 0)) == (100, "")
    assert keys.of(record(REPARTITION, 90, 1, with_written(None, 120))) == (120, "")
    assert keys.of(record(REPARTITION, 110, 2)) == (120, "")
