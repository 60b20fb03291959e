"""Traces: a span for each transaction, and W3C trace context in the headers of records.

The only importer of OpenTelemetry. Owns what a span says and which records it links to. Refuses to
keep a worker from its work: what cannot be exported is dropped, and a transaction does not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eosframework.monitoring.tracing.trace_context import headers

__all__ = ["headers"]


def __getattr__(name: str) -> Any:
    """Import what users call at its first use: a worker says itself which package is missing."""
    if name != "headers":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from eosframework.monitoring.tracing.trace_context import headers

    return headers
