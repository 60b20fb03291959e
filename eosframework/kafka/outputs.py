"""The worker's producers: one for each transactional.id, committed together in rounds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from confluent_kafka import KafkaError

from eosframework import failpoints
from eosframework.errors import ClusterUnreachable, TransactionError
from eosframework.kafka.background import DRAIN
from eosframework.kafka.crew import Crew, Hung
from eosframework.kafka.deadline import Deadline
from eosframework.kafka.permissions import unwritable
from eosframework.kafka.positions import to_kafka
from eosframework.kafka.producer import CLOSE_SECONDS, TransactionalProducer
from eosframework.kafka.properties import new_client
from eosframework.kafka.states import State
from eosframework.kafka.statistics import ClientStatistics
from eosframework.kafka.taxonomy import Call, exception_for, kafka_error
from eosframework.kafka.watch import PROCESS_WATCH, ConnectionWatch
from eosframework.processing.ports import Commit, Committed, TransactionalOutput

THREADS = 16

LEAVE_BEHIND_SECONDS = 1.0
"""How long a call may outlast its own timeout before it counts as one that never returns."""


class KafkaOutput:
    """One transactional.id with its current producer.

    Args:
        make: makes a producer with the id, which it has to take yet.
        transaction_timeout_seconds: no call of a transaction need take longer.
        client: librdkafka properties that reach the cluster.
        topics: what it may write to, as far as that is known.
    """

    def __init__(
        self,
        make: Callable[[], TransactionalProducer],
        transaction_timeout_seconds: float,
        client: Mapping[str, Any],
        topics: Sequence[str] = (),
    ) -> None:
        self.producer = make()
        self.transactional_id = self.producer.transactional_id
        self._sending: tuple[TransactionalProducer, float] | None = None
        self._make = make
        self._timeout_seconds = transaction_timeout_seconds
        self._client = client
        self._topics = topics

    @property
    def produce(self) -> Callable[..., None]:
        """`produce(*output)` of the current producer; changes when it is recycled."""
        return self.producer.produce

    @property
    def statistics(self) -> str | None:
        """Librdkafka's newest statistics of the current producer; None: there were none yet."""
        return self.producer.statistics

    def explain(self, error: Exception) -> TransactionError:
        """Return what an exception out of `produce` means."""
        return self.cause(cast("TransactionError", self.producer.explain(error)))

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            OutcomeUnknown: the producer is suspect and was not replaced yet. The worker has to
                do that, because it has to read the committed offsets afterwards.
            TransactionError: no transaction is open.
        """
        if self.producer.state is State.SUSPECT:
            raise self.timed_out(Call.COMMIT, "its producer is suspect and was not replaced yet")
        self.producer.begin_transaction()

    def poll(self, timeout_seconds: float = 0) -> None:
        """Serve delivery reports, so that the producer's queue drains."""
        self.producer.poll(timeout_seconds)

    def abort(self, timeout_seconds: float) -> None:
        """Make sure that nothing of the open transaction becomes visible, and recycle.

        Raises:
            TransactionError: the id could not be taken again.
        """
        if self.producer.state in (State.IN_TRANSACTION, State.UNDECIDED, State.SUSPECT):
            self.producer.abort_transaction(timeout_seconds)
        else:
            self.recycle(timeout_seconds)

    def recycle(self, timeout_seconds: float) -> None:
        """Replace the producer: fence whatever the old one may have in flight.

        Raises:
            TransactionError: the id could not be taken again.
        """
        if self.producer.state is State.NEW:
            self.producer.init_transactions(timeout_seconds)
        else:
            self.producer.recycle(timeout_seconds)

    def send(self, commit: Commit) -> None:
        """Send the offsets and commit; whether a frame may be in flight is left to `verify`.

        Raises:
            TransactionError: what became of it instead.
        """
        producer = self.producer
        if commit.positions:  # a relay's are among its outputs
            self._send_offsets(producer, commit)
        failpoints.hit("transaction.after_send_offsets")
        failpoints.hit("transaction.before_commit")
        if producer is self.producer:
            producer.commit_unverified(self._timeout_seconds)
        failpoints.hit("transaction.after_commit")

    def sends_offsets_for(self, seconds: float) -> bool:
        """Tell whether the current producer has been sending offsets for longer than that."""
        if self._sending is None:
            return False
        producer, since = self._sending
        return producer is self.producer and time.monotonic() - since > seconds

    def attempt(
        self, step: Callable[[], object], deadline: Deadline, call: Call
    ) -> TransactionError | None:
        """Run `step`, which uses the producer, and return what it raised.

        A step whose turn comes after the deadline, because others waited in vain, does nothing.
        """
        if deadline.is_over:
            return self.timed_out(call, "others waited until now for brokers that do not answer")
        producer = self.producer
        try:
            step()
        except TransactionError as error:
            return self.cause(error)
        finally:
            if producer is not self.producer:  # left behind, and back too late: see `leave_behind`
                producer.close(0)
        return None

    def leave_behind(self) -> TransactionError:
        """Give up a producer inside a call that does not return; `recycle` takes the id again.

        It must not be closed meanwhile: that would free what the call is using. `attempt` does so
        should the call ever return.
        """
        DRAIN.remove(self.producer)
        self.producer = self._make()
        return self.timed_out(Call.COMMIT, "librdkafka did not return from a call")

    def timed_out(self, call: Call, detail: str) -> TransactionError:
        """Return what it means that `call` brought no answer in time."""
        error = exception_for(
            KafkaError(KafkaError._TIMED_OUT),  # noqa: SLF001
            call,
            transactional_id=self.transactional_id,
            detail=detail,
        )
        return cast("TransactionError", error)

    def cause(self, error: TransactionError) -> TransactionError:
        """Return the error with the topics that may not be written, if that is why.

        Where a topic may not even be described, records are rejected before they are sent, with
        the error of a partition that does not exist (_INCONSISTENT): but that is not their fault.
        """
        known = kafka_error(error)
        if known.code() not in (
            KafkaError._INCONSISTENT,  # noqa: SLF001
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ):
            return error
        denied = unwritable(self._client, self._topics, self._timeout_seconds)
        if not denied:
            return error
        refused = exception_for(
            KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, known.str() or ""),
            Call.PRODUCE,
            transactional_id=self.transactional_id,
            detail=f"the ACL that is missing: Write and Describe on topic {', '.join(denied)}",
        )
        return cast("TransactionError", refused)

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


class KafkaRound:
    """Commits on the threads of a crew.

    Args:
        commits: of different outputs.
        crew: makes the calls.
        watch: looks at this process's connections when they have returned.
        seconds: what has not returned by then is left behind.
        request_timeout_seconds: an answer about offsets that takes longer does not come.
    """

    def __init__(
        self,
        commits: Sequence[Commit],
        crew: Crew,
        watch: ConnectionWatch,
        seconds: float,
        request_timeout_seconds: float,
    ) -> None:
        self._commits = [*commits]
        self._crew = crew
        self._watch = watch
        self._seconds = seconds
        self._request_timeout_seconds = request_timeout_seconds
        self._deadline = Deadline(seconds)
        self._stalled = threading.Event()
        self._began_at = self._answered_at = time.monotonic()
        self._calls = crew.start(self._send, commits)

    @property
    def took_seconds(self) -> float:
        """How long it took until the last answer."""
        return self._answered_at - self._began_at

    def is_done(self) -> bool:
        """Tell whether every call has returned."""
        return self._calls.are_done()

    def join(self, commits: Sequence[Commit]) -> None:
        """Begin further commits, of other outputs; all are waited for together."""
        self._commits += commits
        self._deadline = Deadline(self._seconds)
        self._calls.join(self._crew.start(self._send, commits))

    def results(self) -> list[Committed]:
        """Wait for every answer; then look once for signs of a straggler.

        A producer found suspect is recycled before this returns. Never raises for one
        commit's failure: its `Committed.error` says it, so that the others are not affected.
        A call that has not returned when its transaction expires is left behind; one that sends
        offsets sooner, because that is how librdkafka waits for a coordinator that has gone.
        """
        answers = self._calls.results(self._seconds, is_stalled=self._is_stalled)
        errors = [
            _output(commit).leave_behind() if isinstance(answer, Hung) else answer
            for commit, answer in zip(self._commits, answers, strict=True)
        ]
        return [
            Committed(error, was_suspect)
            for error, was_suspect in zip(errors, self._verify(), strict=True)
        ]

    def _send(self, commit: Commit) -> TransactionError | None:
        output = _output(commit)
        own = Deadline(0) if self._stalled.is_set() else self._deadline
        error = output.attempt(lambda: output.send(commit), own, Call.COMMIT)
        self._answered_at = time.monotonic()
        return error

    def _is_stalled(self, commit: Commit, waited_seconds: float) -> bool:
        limit = self._request_timeout_seconds
        if waited_seconds > limit and _output(commit).sends_offsets_for(limit):
            self._stalled.set()  # those whose turn is to come would wait for the same coordinator
            return True
        return False

    def _verify(self) -> list[bool]:
        """Look once, and replace the producers found suspect."""
        look, deadline = self._watch.look(), Deadline(self._seconds)
        return [
            found is True
            for found in self._crew.each(
                lambda commit: _output(commit).producer.verify(look, deadline.timeout()),
                self._commits,
            )
        ]


class KafkaOutputs:
    """Opens, commits and closes the producers of a worker's tasks, overlapping their waits.

    Args:
        client: librdkafka properties that reach the cluster, and further ones of the user's.
        transaction_timeout_seconds: after so long the broker aborts an unfinished transaction.
        request_timeout_seconds: an answer about offsets that takes longer does not come.
        assume_transaction_verification: start although the brokers' setting cannot be read.
        topics: what the outputs write to, as far as that is known.
        protection: False only to measure what the straggler protection costs, and in tests.
        watch: looks at this process's connections.
        statistics: looks at the producers, for metrics; None: nobody does.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        *,
        transaction_timeout_seconds: float = 30.0,
        request_timeout_seconds: float = 10.0,
        assume_transaction_verification: bool = False,
        topics: Sequence[str] = (),
        protection: bool = True,
        watch: ConnectionWatch = PROCESS_WATCH,
        statistics: ClientStatistics | None = None,
    ) -> None:
        self._client = dict(client)
        self._timeout_seconds = transaction_timeout_seconds
        self._request_timeout_seconds = request_timeout_seconds
        self._assume_verification = assume_transaction_verification
        self._topics = topics
        self._protection = protection
        self._watch = watch
        self._statistics = statistics
        self._crew = Crew(THREADS)

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        """Init every id, in parallel: fences the last owners and ends what they left open.

        Raises:
            ConfigurationError: names the librdkafka property that cannot be used.
            StartRefused: the brokers do not verify transactions.
            TransactionError: an id could not be had; those that could are closed again.
        """
        outputs: list[TransactionalOutput] = [self._make(name) for name in transactional_ids]
        for error in self._crew.each(self._init, outputs):
            if isinstance(error, Exception):
                self.close(outputs)
                raise error
        return outputs

    def commit(
        self, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> list[Committed]:
        """Send offsets and commit each transaction; then look once for signs of a straggler.

        See `begin_commit`, and `KafkaRound.results`.
        """
        return self.begin_commit(commits, within_seconds).results()

    def begin_commit(
        self, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> KafkaRound:
        """Begin to send offsets and to commit each transaction, on other threads.

        Until the results were taken nothing else may be done with these outputs.

        Args:
            commits: of different outputs.
            within_seconds: leave calls behind that have not returned by then.
        """
        seconds = min(self._timeout_seconds, within_seconds or self._timeout_seconds)
        return KafkaRound(commits, self._crew, self._watch, seconds, self._request_timeout_seconds)

    def abort(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        """Make sure that nothing of the open transactions becomes visible, and recycle.

        Returns:
            For each output why its id could not be taken again, or None.
        """
        return self._end(KafkaOutput.abort, outputs)

    def recycle(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        """Replace the producers: fence whatever the old ones may have in flight.

        Returns:
            For each output why its id could not be taken again, or None.
        """
        return self._end(KafkaOutput.recycle, outputs)

    def close(self, outputs: Sequence[TransactionalOutput]) -> None:
        """Discard the producers; one that is suspect is re-inited first."""
        deadline = Deadline(CLOSE_SECONDS)
        self._crew.each(
            lambda output: cast("KafkaOutput", output).producer.close(deadline.timeout()), outputs
        )

    def stop(self) -> None:
        """End the threads; the outputs have been closed."""
        self._crew.stop()

    def _end(
        self,
        end: Callable[[KafkaOutput, float], None],
        outputs: Sequence[TransactionalOutput],
    ) -> list[TransactionError | None]:
        """Run `end` for all outputs at once; one that does not return is left behind."""
        deadline = Deadline(self._timeout_seconds)

        def ended(output: TransactionalOutput) -> TransactionError | None:
            own = cast("KafkaOutput", output)
            return own.attempt(lambda: end(own, deadline.timeout()), deadline, Call.INIT)

        answers = self._crew.each(ended, outputs, self._timeout_seconds + LEAVE_BEHIND_SECONDS)
        return [
            cast("KafkaOutput", output).leave_behind() if isinstance(answer, Hung) else answer
            for output, answer in zip(outputs, answers, strict=True)
        ]

    def _make(self, transactional_id: str) -> KafkaOutput:
        properties = {
            **self._client,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": round(self._timeout_seconds * 1000),
        }
        make = partial(
            TransactionalProducer,
            watch=self._watch,
            protection=self._protection,
            assume_transaction_verification=self._assume_verification,
        )
        output = KafkaOutput(
            lambda: new_client(make, properties), self._timeout_seconds, self._client, self._topics
        )
        if self._statistics is not None:
            self._statistics.watch(output)
        return output

    def _init(self, output: TransactionalOutput) -> Exception | None:
        own = cast("KafkaOutput", output)
        try:
            own.producer.init_transactions(self._timeout_seconds)
        except ClusterUnreachable as error:
            return own.timed_out(Call.INIT, str(error))
        except Exception as error:
            return error
        return None


def _output(commit: Commit) -> KafkaOutput:
    return cast("KafkaOutput", commit.output)
