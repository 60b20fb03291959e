"""At-least-once processing without transactions: deliver outputs, then commit offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from eosframework.errors import TransactionError, worst
from eosframework.kafka.client.background import discard
from eosframework.kafka.client.defaults import idempotent_properties
from eosframework.kafka.consumer.input_log import KafkaInputLog
from eosframework.kafka.taxonomy import Call, as_transaction_error, exception_for
from eosframework.transactions import failpoints
from eosframework.transactions.ports import (
    Commit,
    Committed,
    TransactionalOutput,
)


class PlainOutput:
    """One task's output through the worker's shared idempotent producer."""

    is_suspect = False

    def __init__(
        self,
        transactional_id: str,
        producer: Producer,
        flush: Callable[[], TransactionError | None],
    ) -> None:
        self.transactional_id = transactional_id
        self.produce: Callable[..., None] = producer.produce
        self._producer = producer
        self._flush = flush

    def explain(self, error: Exception) -> TransactionError:
        """Return the classified error of an exception raised by `produce`."""
        failed = exception_for(error, Call.PRODUCE, transactional_id=self.transactional_id)
        return as_transaction_error(failed)

    def begin(self) -> None:
        """Do nothing: there is no transaction."""

    def poll(self, timeout_seconds: float = 0) -> None:
        """Serve delivery reports, so that the producer's queue drains."""
        self._producer.poll(timeout_seconds)

    def deliver(self) -> None:
        """Wait until the brokers have acknowledged all records.

        Raises:
            TransactionError: they rejected a record.
        """
        if (error := self._flush()) is not None:
            raise error


class AtLeastOnceOutputs:
    """One idempotent producer for all tasks; after a failure records are written again.

    Args:
        client: librdkafka properties that reach the cluster, with the user's own.
        log: commits the offsets.
        delivery_timeout_seconds: an undelivered record fails its commit after this time.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        log: KafkaInputLog,
        *,
        delivery_timeout_seconds: float = 30.0,
    ) -> None:
        self._log = log
        self._failures: list[KafkaError] = []
        timeout_milliseconds = round(delivery_timeout_seconds * 1000)
        properties = idempotent_properties({**client, "message.timeout.ms": timeout_milliseconds})
        reports = {"on_delivery": self._delivered, "delivery.report.only.error": True}
        self._producer = Producer({**properties, **reports})

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        """Return an output for each id; no producer is fenced."""
        return [PlainOutput(name, self._producer, self._flush) for name in transactional_ids]

    def commit(
        self, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> list[Committed]:
        """Wait for all deliveries, then commit the offsets."""
        failpoints.hit("transaction.before_commit")
        error = self._flush()
        if error is None:
            failpoints.hit("transaction.after_send_offsets")
            try:
                self._log.commit([position for c in commits for position in c.positions])
            except TransactionError as raised:
                error = raised
            failpoints.hit("transaction.after_commit")
        return [Committed(error) for _ in commits]

    def abort(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        """Do nothing: delivered records stay and will be produced again."""
        return [None] * len(outputs)

    def recycle(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        """Do nothing: there is no transaction for a delayed request to tear."""
        return [None] * len(outputs)

    def close(self, outputs: Sequence[TransactionalOutput]) -> None:
        """Do nothing: the outputs share their producer with others."""

    def stop(self) -> None:
        """Close the shared producer."""
        discard(self._producer)

    def _flush(self) -> TransactionError | None:
        try:
            self._producer.flush()
        except (KafkaException, SystemError) as error:
            return self._explained(error)
        failures, self._failures = self._failures, []
        kinds = {failure.code(): failure for failure in failures}
        return worst([*map(self._explained, kinds.values())]) if kinds else None

    def _explained(self, error: BaseException | KafkaError) -> TransactionError:
        failed = exception_for(error, Call.PRODUCE, transactional_id=None)
        return as_transaction_error(failed)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failures.append(error)
