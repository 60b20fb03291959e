"""W3C trace context in headers: https://www.w3.org/TR/trace-context/."""

from __future__ import annotations

import re
from collections.abc import Iterable

from opentelemetry import trace
from opentelemetry.trace import SpanContext, TraceFlags

TRACEPARENT = "traceparent"

_VALUE = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

Headers = Iterable[tuple[str, bytes | None]]


def headers() -> dict[str, str]:
    """Return the headers with the current span's context; empty if there is no span.

    For messages that users publish: `publish(…, headers=headers())` continues the trace of a
    request through the outbox.
    """
    context = trace.get_current_span().get_span_context()
    return {TRACEPARENT: traceparent_of(context)} if context.is_valid else {}


def traceparent_of(context: SpanContext) -> str:
    """Return the header's value for a span."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def context_in(record_headers: Headers | None) -> SpanContext | None:
    """Return the context in a record's headers; None: there is none, or it is invalid."""
    for name, value in record_headers or ():
        if name == TRACEPARENT and value is not None:
            return _parsed(value)
    return None


def _parsed(value: bytes) -> SpanContext | None:
    found = _VALUE.fullmatch(value)
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[5]):
        return None
    flags = TraceFlags(int(found[4], 16))
    context = SpanContext(int(found[2], 16), int(found[3], 16), is_remote=True, trace_flags=flags)
    return context if context.is_valid else None
