"""W3C trace context in headers, as OpenTelemetry's propagator reads and writes it.

https://www.w3.org/TR/trace-context/
"""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

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
