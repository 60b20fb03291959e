"""One librdkafka producer: an epoch of a transactional.id, from its init to its successor's."""

from __future__ import annotations

from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Producer

from eosframework.kafka.background import discard
from eosframework.kafka.deadline import Deadline
from eosframework.kafka.defaults import Properties, with_samples
from eosframework.kafka.suspicion import Suspicion
from eosframework.kafka.taxonomy import kafka_error

CONNECT_SECONDS = 5.0


class Incarnation:
    """A confluent_kafka producer with what is known about its connections.

    Args:
        properties: of the producer, complete but for the statistics.
    """

    def __init__(self, properties: Properties) -> None:
        complete, samples = with_samples(properties)
        self.producer = Producer(complete)
        self.suspicion = Suspicion(samples, self.serve)

    def init(self, deadline: Deadline) -> None:
        """Take the id.

        The brokers are asked for first: librdkafka looks for the coordinator at once, and where
        it catches the bootstrap connection on its way out it waits 500 ms to look again.
        """
        with suppress(KafkaException):
            self.producer.list_topics(timeout=deadline.timeout(at_most=CONNECT_SECONDS))
        self.producer.init_transactions(deadline.timeout())

    def serve(self, seconds: float) -> None:
        """Let statistics arrive; an error here comes back from the next transactional call."""
        with suppress(KafkaException, SystemError):
            self.producer.poll(seconds)

    def cause(self, error: BaseException, *, in_transaction: bool) -> BaseException:
        """Return the fatal error behind one that only says that there was one.

        confluent_kafka loses it on its way out of a callback (SystemError), and `produce` returns
        _FATAL in its place. Both calls made here to ask for it are refused in their state.

        Args:
            error: what a call raised.
            in_transaction: whether a transaction is open, as librdkafka sees it.
        """
        if kafka_error(error).code() != KafkaError._FATAL:  # noqa: SLF001
            return error
        try:
            if in_transaction:
                self.producer.begin_transaction()
            else:
                self.producer.commit_transaction(0)
        except KafkaException as cause:
            return cause if cause.args[0].fatal() else error
        return error

    def discard(self, *, wait_seconds: float | None = 0) -> bool:
        """Close the producer on a thread of its own.

        Args:
            wait_seconds: how long to wait for it; None: for as long as it takes.

        Returns:
            Whether it was closed in time.
        """
        thread = discard(self.producer)
        thread.join(wait_seconds)
        return not thread.is_alive()
