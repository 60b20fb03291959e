"""The transactional producer: confluent_kafka's, with the protection that librdkafka lacks.

librdkafka speaks transaction protocol V1, in which the producer epoch stays the same from one
transaction to the next. A request that it retried after a broken connection may reach the broker a
second time, late, and is then taken for part of the next transaction. The remedy is to take the
transactional.id again with a new producer, so that the straggler's epoch is outdated. That happens

- on every abort, since librdkafka reuses the sequence numbers of the records it purges;
- after a commit during which a connection broke, before the next transaction can begin.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, NoReturn, Self

import structlog
from confluent_kafka import KafkaException, TopicPartition

from eosframework.errors import (
    Retriable,
    TaskFenced,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
)
from eosframework.kafka.admin.verification import require_transaction_verification
from eosframework.kafka.client.background import DRAIN
from eosframework.kafka.client.defaults import Properties, producer_properties
from eosframework.kafka.client.throttling import Deadline, Throttling
from eosframework.kafka.producer.incarnation import Incarnation
from eosframework.kafka.producer.producer_states import Event, ProducerState, StateTable
from eosframework.kafka.taxonomy import Call, CallFailed, exception_for, kafka_error, raise_for

ABORT_SECONDS = 2.0
"""The longest wait of an abort for the old producer. Its success only makes the re-init quicker."""

RECYCLE_SECONDS = 30.0
"""The longest duration of a replacement if the caller gave no timeout."""

CLOSE_SECONDS = 5.0
"""The longest wait of `close` for a broker that does not answer."""

_USER_CALLBACKS = ("stats_cb", "error_cb", "throttle_cb", "on_delivery", "dr_cb")
"""A user who gives one has to poll, as with confluent_kafka: it runs on the polling thread."""


class TransactionalProducer:
    """A `confluent_kafka.Producer` whose transactions a delayed request cannot tear.

    Code written for confluent_kafka runs on it: the constructor, the five transactional calls,
    `produce`, `poll`, `flush` and the rest have its names and arguments, and every exception is a
    `KafkaException` whose `args[0]` is the `KafkaError`; it is also the class of
    `eosframework.errors` that says what follows. `produce_batch` is left out: it drops headers.

    `produce` is the current confluent producer's own method, so that a record costs no further
    call. It changes when the producer is recycled: look it up once per transaction, not once for
    all.

    Args:
        config: librdkafka properties, as `confluent_kafka.Producer` takes them.
        protection: False only to measure the cost of the protection, and in tests that show its
            purpose: nothing is recycled, as with a bare producer.
        assume_transaction_verification: start although the brokers' settings cannot be read.
        properties: more of them, as keywords.

    Raises:
        ConfigurationError: names the property that would break the guarantee.
    """

    produce: Callable[..., None]

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        protection: bool = True,
        assume_transaction_verification: bool = False,
        **properties: Any,
    ) -> None:
        self._properties: Properties = producer_properties({**(config or {}), **properties})
        self.transactional_id = str(self._properties["transactional.id"])
        self._protection = protection
        self._assume_verification = assume_transaction_verification
        self._states = StateTable(self.transactional_id)
        self._lock = threading.Lock()
        self._final_error: Exception | None = None
        self._candidate: Incarnation | None = None
        self._events = structlog.get_logger("eosframework.kafka").bind(
            transactional_id=self.transactional_id
        )
        self._adopt(Incarnation(self._properties))
        if not any(name in self._properties for name in _USER_CALLBACKS):
            DRAIN.add(self)

    @property
    def state(self) -> ProducerState:
        """The producer's state, which decides the calls that are allowed next."""
        return self._states.state

    @property
    def statistics(self) -> str | None:
        """Newest statistics of librdkafka, as JSON; None: there were none yet.

        There are none at all without the property `statistics.interval.ms`.
        """
        return self._current.statistics.text

    @property
    def throttling(self) -> Throttling:
        """Times for which brokers throttle the current producer, as far as they were polled."""
        return self._current.throttling

    def serve(self) -> None:
        """Serve queued events, also while another thread waits in a call."""
        self._current.serve(0)

    def init_transactions(self, timeout: float = -1) -> None:
        """Take the transactional.id: fence its last owner and end its open transaction.

        Raises:
            StartRefused: the brokers do not verify transactions, so they cannot be protected.
            TransactionError: as `KafkaException`; if `Retriable`, call again.
        """
        self._require(Event.INITED)
        deadline = Deadline.from_timeout(timeout)
        if self._protection:
            require_transaction_verification(
                self._properties,
                assume=self._assume_verification,
                timeout_seconds=deadline.timeout(at_most=10.0),
            )
        try:
            self._call(Call.INIT, self._current.init, deadline)
        except Retriable:
            if not self._current.reached_brokers:  # as in `_replace`
                self._exchange(Incarnation(self._properties))
            raise
        self._states.move(Event.INITED)

    def begin_transaction(self) -> None:
        """Begin a transaction; a suspect producer is replaced first.

        Raises:
            TransactionError: as `KafkaException`; no transaction is open.
        """
        if self.state is ProducerState.SUSPECT:
            self.recycle()
        self._require(Event.BEGUN)
        with self._lock:
            self._call(Call.BEGIN, self._current.begin)
            self._states.move(Event.BEGUN)

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Make the consumer's `positions` part of the transaction.

        Args:
            positions: next offset to read per partition (last processed + 1).
            group_metadata: `consumer_group_metadata()` taken when the batch was polled.
            timeout: seconds; librdkafka may overrun it by `socket.timeout.ms`.

        Raises:
            TransactionError: as `KafkaException`; abort, unless its class says otherwise.
        """
        self._require(Event.OFFSETS_SENT)
        send = self._producer.send_offsets_to_transaction
        self._call(Call.SEND_OFFSETS, send, positions, group_metadata, timeout)

    def commit_transaction(self, timeout: float = -1) -> None:
        """Make the outputs and the offsets visible together, or not at all.

        1. `commit_unverified`  2. `verify`

        Raises:
            TransactionAborted: nothing was committed; abort, then process the input again.
            OutcomeUnknown: it may be committed; commit again, or `recycle()` and read offsets.
            TaskFenced: another producer has the id, or the transaction outlasted its timeout.
        """
        self.commit_unverified(timeout)
        self.verify()

    def commit_unverified(self, timeout: float = -1) -> None:
        """Commit, and leave `verify` to the caller.

        Raises:
            TransactionError: as `commit_transaction`.
        """
        self._require(Event.COMMIT_SENT)
        deadline = Deadline.from_timeout(timeout)
        if self.state is ProducerState.IN_TRANSACTION:
            self._call(Call.PRODUCE, self._current.deliver, deadline)
        self._states.move(Event.COMMIT_SENT)
        try:
            self._call(Call.COMMIT, self._producer.commit_transaction, deadline.timeout())
        except TransactionAborted:
            self._states.move(Event.REFUSED)
            raise
        self._states.move(Event.COMMITTED)

    def verify(self, timeout: float = RECYCLE_SECONDS) -> bool:
        """Replace the producer if a request of the committed transaction may be in flight.

        That may fail: the commit is done nevertheless, and the next begin tries again.

        Args:
            timeout: seconds for the replacement; below 0: none.

        Returns:
            True if the producer was suspect.
        """
        if self.state is not ProducerState.ENDED:
            return False
        faults = self._current.stragglers.faults() if self._protection else None
        if faults is None:
            self._states.move(Event.VERIFIED)
            return False
        self._states.move(Event.DOUBTED)
        self._events.warning("producer_suspect", faults=dict(faults))
        try:
            self.recycle(timeout)
        except TransactionError as error:
            self._events.warning("recycle_failed", error=str(error))
        return True

    def abort_transaction(self, timeout: float = -1) -> None:
        """Make sure that nothing of the open transaction becomes visible.

        1. Ask the broker to abort, for a short time: the re-init need not wait then.
        2. Take the id with a new producer: no request of the old one can take effect any more.
        3. Close the old producer on another thread.

        Raises:
            TaskFenced: another producer has the id and keeps it.
            OutcomeUnknown: the abort followed a commit that may have been done.
            TransactionError: the id could not be initialized again; call again.
        """
        self._require(Event.ABORTED)
        deadline = Deadline.from_timeout(timeout)
        undecided = self.state is ProducerState.UNDECIDED
        refusal = self._abort_here(deadline) if self.state is not ProducerState.SUSPECT else None
        self._states.move(Event.ABORTED)
        if self._protection:
            self._replace(deadline)
        else:
            self._states.move(Event.VERIFIED)
        if undecided and refusal is not None:
            raise_for(
                refusal,
                Call.COMMIT,
                transactional_id=self.transactional_id,
                detail="aborted after a commit that was not confirmed",
            )

    def recycle(self, timeout: float = RECYCLE_SECONDS) -> None:
        """Take the id again with a new producer: fence the old one's requests in flight.

        Ends an open transaction. After a fenced or failed call only the caller can know that this
        process still owns the id; calling this states it.

        Args:
            timeout: seconds; below 0: none.

        Raises:
            TransactionError: as `KafkaException`; call again, or close.
        """
        self._states.require(Event.RECYCLED)
        self._replace(Deadline.from_timeout(timeout))

    @contextmanager
    def transaction(self, timeout: float = -1) -> Generator[Self]:
        """Commit when the block ends, abort when it raises.

        Raises:
            TransactionError: as `commit_transaction`; an abortable one was aborted.
        """
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction(timeout)
        except BaseException as error:
            self._abort_after(error, timeout)
            raise

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports and other callbacks."""
        return self._call(Call.PRODUCE, self._producer.poll, timeout)

    def flush(self, timeout: float = -1) -> int:
        """Wait until all records are delivered, and return how many are not."""
        return self._call(Call.PRODUCE, self._producer.flush, timeout)

    def deliver(self, timeout: float = -1) -> None:
        """Wait until all records are delivered.

        Raises:
            TransactionError: as `KafkaException`; the open transaction can only be aborted.
        """
        deadline = Deadline.from_timeout(timeout)
        self._call(Call.PRODUCE, self._current.deliver, deadline)
        self._call(Call.PRODUCE, self._current.raise_first_error)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop queued records; the transaction can only be aborted then."""
        self._producer.purge(in_queue, in_flight, blocking)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the cluster's metadata."""
        return self._producer.list_topics(*([topic] if topic else []), timeout=timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id."""
        return self._producer.cluster_id(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use other credentials from the next connection on, also after a recycle."""
        self._properties |= {"sasl.username": username, "sasl.password": password}
        self._producer.set_sasl_credentials(username, password)

    def explain(self, error: BaseException) -> CallFailed:
        """Return the classified error of an exception raised by `produce`."""
        cause = self._cause(error)
        return exception_for(cause, Call.PRODUCE, transactional_id=self.transactional_id)

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Give the producer up, waiting at most `timeout` seconds for unreachable brokers.

        An open or undecided transaction is aborted, so that readers need not wait for its timeout;
        if a successor has the id, the broker refuses that. A suspect producer takes its id once
        more first, so that no straggler can open a transaction that no producer will end.

        Returns:
            True if everything was closed in time.
        """
        deadline = Deadline.from_timeout(timeout)
        if self.state is ProducerState.CLOSED:
            return True
        if self.state in (ProducerState.IN_TRANSACTION, ProducerState.UNDECIDED):
            with suppress(TransactionError):
                self._abort_here(deadline)
        elif self.state is ProducerState.SUSPECT:
            try:
                self._replace(deadline)
            except TransactionError as error:
                self._events.warning("close_without_recycle", error=str(error))
        DRAIN.remove(self)
        with self._lock:
            self._states.move(Event.CLOSED)
        if self._candidate is not None:
            self._candidate.discard()
        return self._current.discard(wait_seconds=None if timeout < 0 else deadline.timeout())

    def drain_while_idle(self) -> None:
        """Serve queued events, unless a transaction is open: its callbacks belong to the owner."""
        if self._lock.acquire(blocking=False):
            try:
                if self.state in (ProducerState.NEW, ProducerState.READY, ProducerState.SUSPECT):
                    self._current.serve(0)
            finally:
                self._lock.release()

    def __len__(self) -> int:
        return len(self._producer)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _adopt(self, incarnation: Incarnation) -> None:
        self._current = incarnation
        self._producer = incarnation.producer
        self.produce = incarnation.producer.produce

    def _require(self, event: Event) -> None:
        """Raise unless `event` may happen; after a final error, that error."""
        if (
            self.state in (ProducerState.FENCED, ProducerState.FAILED)
            and self._final_error is not None
        ):
            raise self._final_error
        self._states.require(event)

    def _replace(self, deadline: Deadline) -> None:
        """Take the id with a new producer; keep that one if it only needs more time."""
        candidate = self._candidate = self._candidate or Incarnation(self._properties)
        try:
            self._call(Call.INIT, candidate.init, deadline)
        except BaseException as error:
            # 1. a single broker stands still, and the controller fences it  2. it resumes, and
            # answers a request for metadata before it is unfenced: there is no broker
            # 3. librdkafka forgets all brokers, bootstrap.servers included, and does not look for
            # them again. So a producer that reaches none does not only need more time.
            if not isinstance(error, Retriable) or not candidate.reached_brokers:
                self._candidate = None
                candidate.discard()
            raise
        self._candidate = None
        self._exchange(candidate, Event.RECYCLED)

    def _exchange(self, new: Incarnation, event: Event | None = None) -> None:
        with self._lock:
            old = self._current
            self._adopt(new)
            if event is not None:
                self._states.move(event)
        old.discard()

    def _abort_here(self, deadline: Deadline) -> TransactionError | None:
        """Abort with the old producer, and return its error; only a fence is raised."""
        timeout = (
            deadline.timeout(at_most=ABORT_SECONDS) if self._protection else deadline.timeout()
        )
        try:
            self._call(Call.ABORT, self._producer.abort_transaction, timeout, moves=False)
        except TaskFenced:
            self._states.move(Event.FENCED)
            raise
        except TransactionError as error:
            if not self._protection:
                raise
            return error
        return None

    def _abort_after(self, error: BaseException, timeout: float) -> None:
        """Abort because of `error`, which a failure of the abort must not hide."""
        if self.state is not ProducerState.IN_TRANSACTION:
            return
        try:
            self.abort_transaction(timeout)
        except Exception as second:
            error.add_note(f"aborting its transaction failed as well: {second}")
            self._events.warning("abort_failed", error=str(second))

    def _call(
        self, call: Call, function: Callable[..., Any], *arguments: Any, moves: bool = True
    ) -> Any:
        """Call librdkafka; classify its error, and move the state if the error is final."""
        try:
            return function(*arguments)
        except (KafkaException, SystemError) as error:
            self._raise(self._cause(error), call, moves)

    def _raise(self, error: BaseException, call: Call, moves: bool) -> NoReturn:
        try:
            raise_for(error, call, transactional_id=self.transactional_id)
        except (TaskFenced, TransactionFatal) as raised:
            fenced = isinstance(raised, TaskFenced)
            if moves and (kafka_error(error).fatal() or not fenced):
                self._final_error = raised
                self._states.move(Event.FENCED if fenced else Event.FAILED)
            raise

    def _cause(self, error: BaseException) -> BaseException:
        in_transaction = self.state in (ProducerState.IN_TRANSACTION, ProducerState.UNDECIDED)
        return self._current.cause(error, in_transaction=in_transaction)
