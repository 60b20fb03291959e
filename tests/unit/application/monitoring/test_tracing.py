from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, StatusCode, TraceFlags, get_current_span

from eosframework.application.monitoring.tracing.traced_tasks import (
    TracedTransactions,
    context_in,
    headers,
    headers_of,
    traced_tasks,
)
from eosframework.config import TracingSettings
from eosframework.engine.task.task import Task
from eosframework.engine.worker.traced import TracedTask
from eosframework.errors import ConfigurationError
from eosframework.testing import TopologyTestDriver
from eosframework.topology.dsl.builder import Topology

SAMPLED = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = SAMPLED[:-1] + b"0"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter) -> Any:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider.get_tracer("test")


Traced = Callable[[Topology], TopologyTestDriver]


@pytest.fixture
def traced(tracer: Any) -> Traced:
    def make(app: Topology, links: int = 2) -> TopologyTestDriver:
        driver = TopologyTestDriver(app)
        trace = TracedTransactions(tracer, "process", {"eos.transactional_id": "t"}, links)
        driver._plan = replace(driver._plan, make_task=partial(TracedTask, trace=trace))
        driver.restart()
        return driver

    return make


def own_traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return headers_of(context)["traceparent"]


def copied(function: Callable[[Any], Any] = lambda value: value) -> Topology:
    app = Topology("copies")
    app.stream("in", value=dict).map_values(function).to("out", value=dict)
    return app


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 255))
def test_a_context_round_trips_through_its_header(trace: int, span: int, flags: int) -> None:
    context = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags))
    assert context_in([("traceparent", headers_of(context)["traceparent"].encode())]) == context


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"ff" + SAMPLED[2:],
        SAMPLED + b"-more",
        SAMPLED.upper(),
        b"00-" + b"0" * 32 + SAMPLED[35:],
        b"\xff\xfe",
    ],
)
def test_a_header_that_is_no_context_is_let_be(value: bytes | None) -> None:
    assert context_in([("traceparent", value)]) is None


def test_a_transaction_is_a_span_that_links_to_its_sampled_records(
    traced: Traced, exporter: InMemorySpanExporter
) -> None:
    run = traced(copied())
    for value in (None, UNSAMPLED, SAMPLED, b"what", SAMPLED, SAMPLED):
        run.send("in", {"n": 1}, headers=[] if value is None else [("traceparent", value)])
    run.run()
    [span] = exporter.get_finished_spans()
    assert [(link.attributes or {})["messaging.kafka.offset"] for link in span.links] == [2, 4]
    assert all(f"{link.context.span_id:016x}" == "b7ad6b7169203331" for link in span.links)
    assert span.attributes is not None
    assert span.attributes["eos.outcome"] == "committed"
    assert span.attributes["messaging.batch.message_count"] == 6


def test_an_output_carries_its_inputs_context_or_else_the_transactions(
    traced: Traced, exporter: InMemorySpanExporter
) -> None:
    run = traced(copied())
    run.send("in", {"n": 1}, headers=[("traceparent", SAMPLED), ("own", b"x")])
    run.send("in", {"n": 2}, headers=[("own", b"y")])
    run.run()
    first, second = run.read("out")
    [span] = exporter.get_finished_spans()
    assert list(first.headers) == [("traceparent", SAMPLED), ("own", b"x")]
    own = own_traceparent(span).encode()
    assert list(second.headers) == [("own", b"y"), ("traceparent", own)]


def test_what_a_function_does_is_inside_the_transactions_span(
    traced: Traced, exporter: InMemorySpanExporter
) -> None:
    seen: list[dict[str, str]] = []
    run = traced(copied(lambda value: seen.append(headers()) or value))
    run.send("in", {"n": 1})
    run.run()
    [span] = exporter.get_finished_spans()
    assert seen == [{"traceparent": own_traceparent(span)}]
    assert not get_current_span().get_span_context().is_valid
    assert headers() == {}


def test_a_transaction_that_came_to_nothing_says_so(
    tracer: Any, exporter: InMemorySpanExporter
) -> None:
    trace = TracedTransactions(tracer, "process", {}, 2)
    trace.end("dropped")
    trace.begin()
    trace.end("dropped")
    [span] = exporter.get_finished_spans()
    assert span.attributes == {"eos.outcome": "dropped"}
    assert span.status.status_code is StatusCode.ERROR


def test_what_is_not_traced_has_no_part_in_tracing() -> None:
    driver = TopologyTestDriver(copied())
    assert driver._plan.make_task is Task


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_TRACES_EXPORTER", "jaeger"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
)
def test_what_cannot_be_exported_is_refused_by_name(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with (
        pytest.raises(ConfigurationError, match=f"{variable}='{value}'"),
        traced_tasks("copies", "one", TracingSettings(enabled=True)),
    ):
        pass
