"""A task's output: one transactional.id, whose producer is replaced if it is suspect or hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError

from eosframework.errors import (
    OutcomeUnknown,
    TransactionAborted,
    TransactionError,
    TransactionThrottled,
)
from eosframework.kafka.client.background import DRAIN
from eosframework.kafka.client.partitioner import to_kafka
from eosframework.kafka.client.throttling import Deadline
from eosframework.kafka.producer.output_topics import OutputTopics
from eosframework.kafka.producer.producer_states import ProducerState
from eosframework.kafka.producer.transactional import TransactionalProducer
from eosframework.kafka.taxonomy import (
    Call,
    as_transaction_error,
    exception_for,
    kafka_error,
)
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Commit

CAREFUL_SECONDS = 60.0
"""Time after a throttle for which each transaction expects another one."""


class ProducerSlot:
    """One transactional.id with its current producer.

    Args:
        make: creates a producer with the id, not yet initialized.
        transaction_timeout_seconds: the longest duration of any call of a transaction.
        topics: the output topics, to explain errors.
    """

    def __init__(
        self,
        make: Callable[[], TransactionalProducer],
        transaction_timeout_seconds: float,
        topics: OutputTopics,
    ) -> None:
        self.producer = make()
        self.transactional_id = self.producer.transactional_id
        self.throttled_seconds = 0.0
        """Time for which the brokers throttled the last transaction."""
        self._careful_until = 0.0
        self._sending: tuple[TransactionalProducer, float] | None = None
        self._used: set[TransactionalProducer] = set()
        self._using = threading.Lock()
        self._make = make
        self._timeout_seconds = transaction_timeout_seconds
        self._longest_throttle_seconds = transaction_timeout_seconds / 2
        self._topics = topics

    @property
    def is_suspect(self) -> bool:
        """True if the producer may have a frame in flight, and was not replaced yet."""
        return self.producer.state is ProducerState.SUSPECT

    @property
    def produce(self) -> Callable[..., None]:
        """`produce(*output)` of the current producer; changes when it is recycled."""
        return self.producer.produce

    @property
    def statistics(self) -> str | None:
        """Newest statistics of the current producer; None: there were none yet."""
        return self.producer.statistics

    def explain(self, error: Exception) -> TransactionError:
        """Return the classified error of an exception raised by `produce`."""
        return self.cause(as_transaction_error(self.producer.explain(error)))

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            OutcomeUnknown: the producer is suspect and was not replaced yet. Only the worker may
                replace it, because it has to read the committed offsets afterwards.
            TransactionError: no transaction is open.
        """
        if self.producer.state is ProducerState.SUSPECT:
            raise self.timed_out(Call.COMMIT, "its producer is suspect and was not replaced yet")
        self.producer.begin_transaction()

    def poll(self, timeout_seconds: float = 0) -> None:
        """Serve delivery reports, so that the producer's queue drains."""
        self.producer.poll(timeout_seconds)

    def deliver(self) -> None:
        """Wait until the brokers have acknowledged all records.

        Raises:
            TransactionError: nothing of the open transaction may be kept.
        """
        try:
            self.producer.deliver(self._timeout_seconds)
        except TransactionError as error:
            raise self.cause(error) from error

    def send(self, producer: TransactionalProducer, commit: Commit) -> None:
        """Send the offsets and commit; the check for stragglers is left to `verify`.

        Raises:
            TransactionError: the classified failure.
        """
        if time.monotonic() < self._careful_until:
            producer.deliver(self._timeout_seconds)
            self._wait_while_throttled(producer)
        if commit.positions:  # an outbox relay writes its positions as outputs
            self._send_offsets(producer, commit)
        failpoints.hit("transaction.after_send_offsets")
        if commit.decide is not None:
            producer.deliver(self._timeout_seconds)
            commit.decide()
        failpoints.hit("transaction.before_commit")
        if producer is self.producer:
            self._commit(producer, is_decided=commit.decide is not None)
        failpoints.hit("transaction.after_commit")

    def _commit(self, producer: TransactionalProducer, *, is_decided: bool) -> None:
        try:
            producer.commit_unverified(self._timeout_seconds)
        except TransactionAborted as error:
            if is_decided:
                raise OutcomeUnknown(
                    f"decided in the database, but not committed: {error}"
                ) from error
            raise

    def _wait_while_throttled(self, producer: TransactionalProducer) -> None:
        """Send nothing while brokers read nothing: each request would time out.

        Raises:
            TransactionThrottled: that takes more than half of the transaction timeout.
        """
        producer.serve()
        seconds = producer.throttling.remaining_seconds()
        if seconds > self._longest_throttle_seconds:
            raise TransactionThrottled(
                f"transactional.id {self.transactional_id}: a quota of the brokers throttles this "
                f"client for {seconds:.1f} s, and a transaction may take {self._timeout_seconds:g} "
                f"s",
                seconds=seconds,
            )
        time.sleep(seconds)

    def is_throttled_for_long(self) -> bool:
        """Return whether brokers read nothing more of the transaction in time; during a call."""
        self.producer.serve()
        return self.producer.throttling.remaining_seconds() > self._longest_throttle_seconds

    def note_throttling(self) -> None:
        """Keep the time for which brokers throttled the transaction, before a recycle forgets it.

        Transactions after a throttled one wait for all deliveries, and for the time that brokers
        announce with them, before they send their offsets.
        """
        self.producer.serve()
        self.throttled_seconds = self.producer.throttling.seconds
        if self.throttled_seconds > 0:
            self._careful_until = time.monotonic() + CAREFUL_SECONDS

    def sends_offsets_for(self, seconds: float) -> bool:
        """Return whether the current producer has been sending offsets for longer than that."""
        if self._sending is None:
            return False
        producer, since = self._sending
        return producer is self.producer and time.monotonic() - since > seconds

    def attempt(
        self,
        producer: TransactionalProducer,
        step: Callable[[TransactionalProducer], object],
        deadline: Deadline,
        call: Call,
    ) -> TransactionError | None:
        """Run `step` with a producer of this slot, and return its error.

        A step whose turn comes after the deadline, because others waited in vain, does nothing;
        nor does one whose producer was abandoned before.

        Args:
            producer: the current one when the caller decided to make the call.
            step: receives the producer.
            deadline: of the call's beginning.
            call: for the error.
        """
        if deadline.is_over or not self._use(producer):
            return self.timed_out(call, "others waited until now for brokers that do not answer")
        try:
            step(producer)
        except TransactionError as error:
            return self.cause(error)
        finally:
            self._end_use(producer)
        return None

    def abandon(self) -> TransactionError:
        """Abandon a producer inside a call that does not return; `recycle` takes the id again.

        It must not be closed meanwhile: that would free memory that the call is using. `attempt`
        closes it should the call ever return.
        """
        # 1. the caller's patience ends  2. the call returns, or has not even begun  3. the caller
        # abandons the producer. The lock decides which of both is the last one: it closes.
        abandoned, new = self.producer, self._make()
        DRAIN.remove(abandoned)
        with self._using:
            self.producer = new
            is_used = abandoned in self._used
        if not is_used:
            abandoned.close(0)
        return self.timed_out(Call.COMMIT, "librdkafka did not return from a call")

    def _use(self, producer: TransactionalProducer) -> bool:
        """Keep the producer from being closed; False: it was abandoned, and must not be used."""
        with self._using:
            if producer is not self.producer:
                return False
            self._used.add(producer)
            return True

    def _end_use(self, producer: TransactionalProducer) -> None:
        with self._using:
            self._used.discard(producer)
            is_abandoned = producer is not self.producer
        if is_abandoned:
            producer.close(0)

    def timed_out(self, call: Call, detail: str) -> TransactionError:
        """Return the classified error of a call without an answer in time."""
        failed = exception_for(
            KafkaError(KafkaError._TIMED_OUT),  # noqa: SLF001
            call,
            transactional_id=self.transactional_id,
            detail=detail,
        )
        return as_transaction_error(failed)

    def cause(self, error: TransactionError) -> TransactionError:
        """Return the error, extended by the topics that this principal may not write, if any.

        If a topic may not even be described, records are rejected before they are sent, with the
        error of a partition that does not exist (_INCONSISTENT), which is not their fault.
        """
        self._topics.look_after(error)
        known = kafka_error(error)
        if known.code() not in (
            KafkaError._INCONSISTENT,  # noqa: SLF001
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ):
            return error
        denied = self._topics.unwritable(self._timeout_seconds)
        if not denied:
            return error
        refused = exception_for(
            KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, known.str() or ""),
            Call.PRODUCE,
            transactional_id=self.transactional_id,
            detail=f"the ACL that is missing: Write and Describe on topic {', '.join(denied)}",
        )
        return as_transaction_error(refused)

    def _send_offsets(self, producer: TransactionalProducer, commit: Commit) -> None:
        positions = [to_kafka(position) for position in commit.positions]
        sending = self._sending = producer, time.monotonic()
        try:
            producer.send_offsets_to_transaction(
                positions, commit.membership, self._timeout_seconds
            )
        finally:
            if self._sending is sending:
                self._sending = None


def abort(producer: TransactionalProducer, timeout_seconds: float) -> None:
    """Make sure that nothing of the open transaction becomes visible, and recycle.

    Raises:
        TransactionError: the id could not be initialized again.
    """
    if producer.state in (
        ProducerState.IN_TRANSACTION,
        ProducerState.UNDECIDED,
        ProducerState.SUSPECT,
    ):
        producer.abort_transaction(timeout_seconds)
    else:
        recycle(producer, timeout_seconds)


def recycle(producer: TransactionalProducer, timeout_seconds: float) -> None:
    """Take the id again: fence requests that the old librdkafka producer may have in flight.

    Raises:
        TransactionError: the id could not be initialized again.
    """
    if producer.state is ProducerState.NEW:
        producer.init_transactions(timeout_seconds)
    else:
        producer.recycle(timeout_seconds)
