"""Composition of traced tasks from the settings."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from eosframework.config import TracingSettings
from eosframework.errors import ConfigurationError
from eosframework.processing.traced import TracedTask
from eosframework.txnid import TransactionalId


@contextmanager
def traced_tasks(
    application: str, instance: str, settings: TracingSettings
) -> Generator[Callable[..., TracedTask]]:
    """Yield a factory of traced tasks; their spans are exported until the block ends.

    Raises:
        ConfigurationError: packages are missing, or an OTEL_ variable is not supported.
    """
    try:
        from eosframework.monitoring.tracing.span_export import tracer_for
        from eosframework.monitoring.tracing.transaction_spans import TracedTransactions
    except ImportError as error:
        raise ConfigurationError(
            f"tracing.enabled=true needs more packages ({error.name} is missing); run: pip install "
            f"'eosframework[tracing]'"
        ) from error

    with tracer_for(application, instance) as tracer:

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
