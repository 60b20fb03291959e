"""Traced tasks, and the export of their spans.

The export is set up by the standard OTEL_ variables, or by the user's provider.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Tracer

from eosframework.config import TracingSettings
from eosframework.errors import ConfigurationError
from eosframework.monitoring.tracing.transaction_spans import TracedTransactions
from eosframework.processing.traced import TracedTask
from eosframework.txnid import TransactionalId

NAME = "eosframework"

LAST_EXPORT_SECONDS = 3.0
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
    """Yield a tracer; spans are exported when the block ends, for `LAST_EXPORT_SECONDS` at most.

    If the topology's module has set a provider, it is used. Otherwise the block has its own, with
    the exporter that OTEL_TRACES_EXPORTER names (otlp, console or none).

    Raises:
        ConfigurationError: the exporter is unknown, or its package is missing.
    """
    given = trace.get_tracer_provider()
    if isinstance(given, TracerProvider):
        yield given.get_tracer(NAME)
        return
    attributes = {SERVICE_INSTANCE_ID: instance}
    if "OTEL_SERVICE_NAME" not in os.environ:
        attributes[SERVICE_NAME] = application
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    for exporter in _exporters():
        provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer(NAME)
    finally:
        ending = threading.Thread(target=provider.shutdown, daemon=True)
        ending.start()
        ending.join(LAST_EXPORT_SECONDS)


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
