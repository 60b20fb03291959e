"""Settings of traces; where they go is for the standard OTEL_ variables to say."""

from __future__ import annotations

from pydantic import Field

from eosframework.config.section import Section


class TracingSettings(Section):
    """Whether a worker traces its transactions."""

    enabled: bool = False
    """Make a span of each transaction, and give outputs a trace context. Which spans, and where
    they go, is for OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_ENDPOINT and their like to say."""

    links: int = Field(default=64, ge=0, le=128)
    """Records that a transaction's span links to, at most: the first that carry a trace context
    which is sampled."""
