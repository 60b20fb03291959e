"""Spans of a task's transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from eosframework.monitoring.tracing.trace_context import TRACEPARENT, context_in, headers_of
from eosframework.processing.ports import Message, Output


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
