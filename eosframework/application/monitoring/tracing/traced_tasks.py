"""Traced tasks, and the export of their spans.

The export is set up by the standard OTEL_ variables, or by the user's provider.

W3C trace context in headers, as OpenTelemetry's propagator reads and writes it.
https://www.w3.org/TR/trace-context/
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from eosframework.config import TracingSettings
from eosframework.engine.worker.traced import TracedTask
from eosframework.errors import ConfigurationError
from eosframework.transactions.ports import Message, Output
from eosframework.txnid import TransactionalId

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"

_PROPAGATOR = TraceContextTextMapPropagator()

Headers = Iterable[tuple[str, bytes | None]]


def headers() -> dict[str, str]:
    """Return the headers with the current span's context; empty if there is no span.

    For messages that users publish: `publish(…, headers=headers())` continues the trace of a
    request through the outbox.
    """
    return headers_of(trace.get_current_span().get_span_context())


def headers_of(context: SpanContext) -> dict[str, str]:
    """Return the headers for a span; empty if its context is invalid."""
    carrier: dict[str, str] = {}
    if context.is_valid:
        span = NonRecordingSpan(context)
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier


def context_in(record_headers: Headers | None) -> SpanContext | None:
    """Return the context in a record's headers; None: there is none, or it is invalid."""
    carrier: dict[str, str] = {}
    for name, value in record_headers or ():
        if name in (TRACEPARENT, TRACESTATE) and value is not None:
            # Bytes that are not ASCII become a value that is not valid.
            carrier.setdefault(name, value.decode("ascii", "replace"))
    if TRACEPARENT not in carrier:
        return None
    found = trace.get_current_span(_PROPAGATOR.extract(carrier, Context()))
    context = found.get_span_context()
    return context if context.is_valid else None


class TracedTransactions:
    """Makes a span for each of a task's transactions, one after the other.

    Args:
        tracer: creates spans.
        name: of each span.
        attributes: of each span.
        most_links: largest number of links; a span links to the first records with a sampled
            context.
    """

    def __init__(
        self, tracer: Tracer, name: str, attributes: Mapping[str, str | int], most_links: int
    ) -> None:
        self._tracer = tracer
        self._name = name
        self._attributes = attributes
        self._most_links = most_links
        self._span: Span | None = None
        self._links_left = 0
        self._own: list[tuple[str, bytes | None]] = []

    def begin(self) -> None:
        """Begin a span, after ending an open one as dropped."""
        self.end("dropped")
        span = self._tracer.start_span(
            self._name,
            trace.set_span_in_context(trace.INVALID_SPAN),
            kind=SpanKind.CONSUMER,
            attributes=self._attributes,
        )
        self._span = span
        self._links_left = self._most_links if span.is_recording() else 0
        self._own = [
            (name, text.encode()) for name, text in headers_of(span.get_span_context()).items()
        ]

    def took(self, messages: Sequence[Message]) -> None:
        """Link the span to records of the transaction."""
        if not self._links_left or self._span is None:
            return
        for message in messages:
            context = context_in(message.headers())
            if context is None or not context.trace_flags.sampled:
                continue
            attributes = {
                "messaging.destination.name": message.topic(),
                "messaging.destination.partition.id": str(message.partition()),
                "messaging.kafka.offset": message.offset(),
            }
            self._span.add_link(context, attributes)
            self._links_left -= 1
            if not self._links_left:
                return

    def current(self) -> AbstractContextManager[object]:
        """Make the transaction's span the current span during the block."""
        if self._span is None:
            return nullcontext()
        return trace.use_span(
            self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )

    def marked(self, outputs: Sequence[Output]) -> Sequence[Output]:
        """Return outputs with trace context; an output without one gets the transaction's."""
        own = self._own
        if not own:
            return outputs
        return [
            output if _carries(output) else (*output[:7], [*(output[7] or ()), *own])
            for output in outputs
        ]

    def end(self, outcome: str, records: int | None = None) -> None:
        """End the span, if there is one.

        Args:
            outcome: of the transaction.
            records: number of records; None: the transaction was aborted, or is in doubt.
        """
        span, self._span = self._span, None
        if span is None:
            return
        span.set_attribute("eos.outcome", outcome)
        if records is not None:
            span.set_attribute("messaging.batch.message_count", records)
        else:
            span.set_status(Status(StatusCode.ERROR, "its records are processed again"))
        span.end()


def _carries(output: Output) -> bool:
    headers = output[7]
    return headers is not None and any(name == TRACEPARENT for name, _ in headers)


_NAME = "eosframework"

_LAST_EXPORT_SECONDS = 3.0
"""Longest wait for the export of the last spans when a worker ends."""


@contextmanager
def traced_tasks(
    application: str, instance: str, settings: TracingSettings
) -> Generator[Callable[..., TracedTask]]:
    """Yield a factory of traced tasks; their spans are exported until the block ends.

    Raises:
        ConfigurationError: the exporter's package is missing, or an OTEL_ variable is not
            supported.
    """
    with _tracer(application, instance) as tracer:

        def make(identity: TransactionalId, *given: Any, **named: Any) -> TracedTask:
            attributes: dict[str, str | int] = {
                "messaging.system": "kafka",
                "messaging.operation.name": "process",
                "messaging.consumer.group.name": application,
                "eos.transactional_id": str(identity),
            }
            name = f"process {identity.sub_topology}"
            trace = TracedTransactions(tracer, name, attributes, settings.links)
            return TracedTask(identity, *given, trace=trace, **named)

        yield make


@contextmanager
def _tracer(application: str, instance: str) -> Generator[Tracer]:
    """Yield a tracer; spans are exported when the block ends, for `_LAST_EXPORT_SECONDS` at most.

    If the topology's module has set a provider, it is used. Otherwise the block has its own, with
    the exporter that OTEL_TRACES_EXPORTER names (otlp, console or none).

    Raises:
        ConfigurationError: the exporter is unknown, or its package is missing.
    """
    given = trace.get_tracer_provider()
    if isinstance(given, TracerProvider):
        yield given.get_tracer(_NAME)
        return
    attributes = {SERVICE_INSTANCE_ID: instance}
    if "OTEL_SERVICE_NAME" not in os.environ:
        attributes[SERVICE_NAME] = application
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    for exporter in _exporters():
        provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer(_NAME)
    finally:
        ending = threading.Thread(target=provider.shutdown, daemon=True)
        ending.start()
        ending.join(_LAST_EXPORT_SECONDS)


def _exporters() -> list[SpanExporter]:
    names = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")
    return [_MAKERS[name.strip()]() for name in names if _known(name.strip()) != "none"]


def _known(name: str) -> str:
    if name not in (*_MAKERS, "none"):
        raise ConfigurationError(
            f"OTEL_TRACES_EXPORTER={name!r} is not supported by eosframework; expected "
            f"{', '.join(_MAKERS)} or none, or a TracerProvider that the topology's module sets"
        )
    return name


def _otlp() -> Any:
    protocol = os.environ.get(
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    )
    if protocol not in (None, "http/protobuf"):
        raise ConfigurationError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r} is not supported; expected http/protobuf"
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise ConfigurationError(
            f"exporting traces needs more packages ({error.name} is missing); run: pip install "
            f"'eosframework[tracing]', or set OTEL_TRACES_EXPORTER=console"
        ) from error
    return OTLPSpanExporter()


_MAKERS: dict[str, Callable[[], Any]] = {"otlp": _otlp, "console": ConsoleSpanExporter}
