"""One librdkafka producer: an epoch of a transactional.id, from its init to its successor's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer

from eosframework.kafka.client.background import discard
from eosframework.kafka.client.defaults import Properties, with_connection_log
from eosframework.kafka.client.properties import new_client
from eosframework.kafka.client.statistics import PRODUCER
from eosframework.kafka.client.throttling import Deadline, Throttling
from eosframework.kafka.producer.straggler_detection import StragglerDetection
from eosframework.kafka.taxonomy import kafka_error

CONNECT_SECONDS = 5.0

LOOK_SECONDS = 0.1
"""Interval at which a wait for deliveries checks for a failed transaction."""


class Statistics:
    """The `stats_cb` of a producer: keeps the newest text.

    Args:
        forward: the user's own `stats_cb`, or None.
    """

    def __init__(self, forward: Callable[[str], object] | None) -> None:
        self.text: str | None = None
        self._forward = forward

    def __call__(self, text: str) -> None:
        """Receive librdkafka's statistics, a JSON text."""
        self.text = text
        if self._forward is not None:
            self._forward(text)


class Incarnation:
    """A confluent_kafka producer with the state of its connections.

    Args:
        properties: of the producer, complete but for its connection log.
    """

    def __init__(self, properties: Properties) -> None:
        self.statistics = Statistics(properties.get("stats_cb"))
        self.throttling = Throttling(PRODUCER, properties.get("throttle_cb"))
        complete, connections = with_connection_log(properties)
        own = {"stats_cb": self.statistics, "throttle_cb": self.throttling}
        self.producer = new_client(Producer, {**complete, **own})
        # Not a method of this object: in a cycle of references the closed client would keep its
        # thread-local key, of which a process has 1024, until the garbage collector comes.
        self.stragglers = StragglerDetection(connections, partial(_serve, self.producer, 0))
        self.reached_brokers = False
        """True if the last `init` reached a broker."""
        self._delivery_seconds = int(complete["message.timeout.ms"]) / 1000 or math.inf
        self._began_at = time.monotonic()

    def init(self, deadline: Deadline) -> None:
        """Take the id (InitProducerId)."""
        # Connect to the brokers first: librdkafka looks for the coordinator at once, and if the
        # bootstrap connection is just closing it waits 500 ms before it looks again.
        self.reached_brokers = False
        with suppress(KafkaException):
            self.producer.list_topics(timeout=deadline.timeout(at_most=CONNECT_SECONDS))
            self.reached_brokers = True
        self.producer.init_transactions(deadline.timeout())
        self.stragglers.ignore_earlier_faults()

    def begin(self) -> None:
        """Begin a transaction."""
        self.producer.begin_transaction()
        self._began_at = time.monotonic()
        self.throttling.restart()

    def serve(self, seconds: float) -> None:
        """Serve queued events; the next transactional call reports an error that occurs here."""
        _serve(self.producer, seconds)

    def cause(self, error: BaseException, *, in_transaction: bool) -> BaseException:
        """Return the error that a call's error only announces.

        confluent_kafka loses a fatal error on its way out of a callback (SystemError), and
        `produce` returns _FATAL in its place. After a rejected record, `produce` and
        `send_offsets_to_transaction` return _STATE. The probing calls made here are invalid in that
        state, so librdkafka rejects them with the transaction's first error
        (rd_kafka_txn_require_states0).

        `_INCONSISTENT` means that records were not even sent. Their partition may not exist; but in
        a transaction as old as their timeout they may have waited in vain for a broker, which is
        not their fault.

        Args:
            error: the exception of a call.
            in_transaction: a transaction is open, as librdkafka sees it.
        """
        code = kafka_error(error).code()
        if code == KafkaError._INCONSISTENT and self._records_may_have_expired():  # noqa: SLF001
            return KafkaException(_expired(kafka_error(error)))
        hidden = code == KafkaError._FATAL or (  # noqa: SLF001
            in_transaction and code == KafkaError._STATE  # noqa: SLF001
        )
        if not hidden:
            return error
        return self._first_error(in_transaction=in_transaction) or error

    def deliver(self, deadline: Deadline) -> None:
        """Wait until all records are delivered, or one is rejected.

        `commit_transaction` would wait as well, but longer: the records after a rejected one are
        out of sequence and cannot be delivered, which it notices at their timeout.

        Raises:
            KafkaException: the reason why the open transaction can only be aborted.
        """
        while self.producer.flush(deadline.timeout(at_most=LOOK_SECONDS)) > 0:
            if (error := self._first_error(in_transaction=True)) is not None:
                raise error
            if deadline.is_over:
                return

    def raise_first_error(self) -> None:
        """Raise the error that ended the open transaction, if there is one.

        Raises:
            KafkaException: the reason why the open transaction can only be aborted.
        """
        if (error := self._first_error(in_transaction=True)) is not None:
            raise error

    def _records_may_have_expired(self) -> bool:
        return time.monotonic() - self._began_at >= self._delivery_seconds

    def _first_error(self, *, in_transaction: bool) -> KafkaException | None:
        """Return the error that ended the transaction or the producer, if there was one."""
        try:
            if in_transaction:
                self.producer.begin_transaction()
            else:
                self.producer.commit_transaction(0)
        except KafkaException as error:
            ends = error.args[0].fatal() or error.args[0].txn_requires_abort()
            return error if ends else None
        return None

    def discard(self, *, wait_seconds: float | None = 0) -> bool:
        """Close the producer on a thread of its own.

        Args:
            wait_seconds: the longest wait for it; None: no limit.

        Returns:
            True if it was closed in time.
        """
        thread = discard(self.producer)
        thread.join(wait_seconds)
        return not thread.is_alive()


def _expired(error: KafkaError) -> KafkaError:
    code = KafkaError._MSG_TIMED_OUT  # noqa: SLF001
    return KafkaError(code, error.str(), error.fatal(), error.retriable(), True)


def _serve(producer: Producer, seconds: float) -> bool:
    """Poll; False if a callback raised, which ends a poll early."""
    try:
        producer.poll(seconds)
    except (KafkaException, SystemError):
        return False
    return True
