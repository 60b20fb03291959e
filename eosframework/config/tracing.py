"""Settings of traces; the standard OTEL_ variables say where they are sent."""

from __future__ import annotations

from pydantic import Field

from eosframework.config.section import Section


class TracingSettings(Section):
    """The tracing of a worker's transactions."""

    enabled: bool = False
    """Make a span of each transaction, and give outputs a trace context. OTEL_TRACES_SAMPLER,
    OTEL_EXPORTER_OTLP_ENDPOINT and the other standard variables choose the spans and their target.
    """

    links: int = Field(default=64, ge=0, le=128)
    """Most records that a transaction's span links to: the first with a sampled trace context."""
