"""The limit of event times: judged by the record alone, before stream time moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eosframework import Topology, dead_letter
from eosframework.engine.codegen.compiler import compile_part, compile_source
from eosframework.engine.conversions import event_time
from eosframework.engine.failures.failure_handler import FailureHandler
from eosframework.records import Record
from eosframework.spark.session.ordering import SortKeys
from eosframework.topology.graph.graph import Graph, Operator
from eosframework.topology.resolve.resolve import resolve
from tests.unit.engine.messages import DEAD, Sent, compiled, json_messages, sink, step

DAY_MS = 86_400_000
FAR_MS = 253_402_300_799_999


def when(value: dict[str, int]) -> int:
    return value["at"]


def never(value: Any) -> bool:
    return False


def application() -> Graph:
    app = Topology("app")
    events = app.stream("in", key=bytes, value=dict, timestamp=when, on_error=dead_letter("d"))
    events.filter(never).to("out")
    return resolve(app.loaded())


def limited(seconds: float | None = 86_400.0, **options: Any) -> Any:
    [part] = application().with_times_within(seconds, **options).sub_topologies
    return compile_part(part).sources["in"]


@pytest.mark.parametrize(
    ("at", "fails"), [(1001 + DAY_MS, False), (1002 + DAY_MS, True), (FAR_MS, True), (0, False)]
)
def test_a_time_beyond_the_limit_fails_before_it_moves_stream_time(at: int, fails: bool) -> None:
    """The filter after the source drops every record, and stream time moves nevertheless."""
    source, failures, out = limited(), FailureHandler(), list[Any]()
    messages = json_messages({"at": 1000}, {"at": at}, {"at": 2000})
    stream_time = source.run(messages, out, 0, failures)
    assert failures.dead_letters == len(out) == int(fails)
    assert stream_time == (2000 if fails else max(at, 2000))
    if fails:
        errors = dict(out[0][7])
        assert b"worker.max_event_time_ahead allows 86400 s" in errors["__streams.errors.exception"]
        assert str(at).encode() in errors["__streams.errors.exception"]


def test_who_orders_records_by_time_judges_alike() -> None:
    """A task with several sources, and Spark, take a refused record by its own timestamp."""
    graph = application().with_times_within(86_400.0)
    [part] = graph.sub_topologies
    [refused] = json_messages({"at": FAR_MS})
    assert event_time(part.sources[0], refused) == 1000
    assert limited().time_of(refused) == 1000
    assert SortKeys(graph, part.name).of(refused) == (1000, None)


def test_files_of_a_backfill_are_trusted_and_so_is_everything_without_a_limit() -> None:
    for source in (limited(trusted={"in"}), limited(None)):
        failures = FailureHandler()
        assert source.run(json_messages({"at": FAR_MS}), [], 0, failures) == FAR_MS
        assert failures.dead_letters == 0


def test_a_record_without_a_timestamp_of_its_own_is_beyond_every_limit() -> None:
    failures, out = FailureHandler(), list[Any]()
    assert limited().run([Sent(b'{"at":90000000}', time=-1)], out, 0, failures) == 0
    assert failures.dead_letters == 1


@pytest.mark.parametrize("operator", [Operator.MAP, Operator.FLAT_MAP, Operator.PROCESS])
def test_a_time_that_a_step_gives_has_the_same_limit(operator: Operator) -> None:
    """Through a repartition topic it would move the stream time of the downstream task."""

    def moved(record: Record) -> Any:
        changed = record.replace(timestamp=record.value["at"])
        return changed if operator is Operator.MAP else [changed]

    target = compiled(step(operator, moved, sink(), on_error=DEAD))
    source = compile_source(replace(target.source, ahead_ms=DAY_MS))
    failures, out = FailureHandler(), list[Any]()
    messages = json_messages({"at": 5}, {"at": FAR_MS}, {"at": 1001 + DAY_MS})
    source.run(messages, out, 0, failures)
    assert failures.dead_letters == 1
    assert sorted(output[6] for output in out if output[0] == "out") == [5, 1001 + DAY_MS]
