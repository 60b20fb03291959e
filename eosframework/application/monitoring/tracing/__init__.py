"""Traces: a span for each transaction, and W3C trace context in the headers of records.

This is the only package that imports OpenTelemetry. Tracing never delays a transaction: spans that
cannot be exported are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eosframework.application.monitoring.tracing.traced_tasks import headers

__all__ = ["headers"]


def __getattr__(name: str) -> Any:
    """Import `headers` at its first use, so that a worker can report a missing package itself."""
    if name != "headers":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from eosframework.application.monitoring.tracing.traced_tasks import headers

    return headers
