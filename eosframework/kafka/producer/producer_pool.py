"""The worker's producers: one for each transactional.id, committed together in rounds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from eosframework.errors import ClusterUnreachable, TransactionError, worst
from eosframework.kafka.client.call_threads import CallThreads, Hung
from eosframework.kafka.client.properties import new_client
from eosframework.kafka.client.statistics import ClientStatistics
from eosframework.kafka.client.throttling import Deadline
from eosframework.kafka.producer.output_topics import OutputTopics
from eosframework.kafka.producer.producer_slot import ProducerSlot, abort, recycle
from eosframework.kafka.producer.transactional import CLOSE_SECONDS, TransactionalProducer
from eosframework.kafka.taxonomy import Call
from eosframework.transactions.ports import Commit, Committed, TransactionalOutput

THREADS = 16

ABANDON_SECONDS = 1.0
"""Time beyond its own timeout after which a call is abandoned."""


class ProducerPool:
    """Opens, commits and closes the producers of a worker's tasks, overlapping their waits.

    Args:
        client: librdkafka properties that reach the cluster, with the user's own.
        transaction_timeout_seconds: the broker aborts an unfinished transaction after this time.
        request_timeout_seconds: a call that sends offsets is abandoned after this time.
        assume_transaction_verification: start although the brokers' settings cannot be read.
        topics: the output topics, as far as they are known.
        protection: False only to measure the cost of the straggler protection, and in tests.
        statistics: collects the producers' statistics; None: there are no metrics.
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
        statistics: ClientStatistics | None = None,
    ) -> None:
        self._client = dict(client)
        self._timeout_seconds = transaction_timeout_seconds
        self._request_timeout_seconds = request_timeout_seconds
        self._assume_verification = assume_transaction_verification
        self._topics = OutputTopics(client, topics)
        self._protection = protection
        self._statistics = statistics
        self._threads = CallThreads(THREADS)

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        """Init every id, in parallel: fences the last owners and ends their open transactions.

        Raises:
            ConfigurationError: names the librdkafka property that cannot be used.
            StartRefused: the brokers do not verify transactions.
            TransactionError: an id could not be initialized; the other outputs are closed again.
        """
        slots = [self._make(name) for name in transactional_ids]
        answers = self._threads.each(self._init, slots)
        if failures := [answer for answer in answers if isinstance(answer, Exception)]:
            self.close(slots)
            raise worst(failures)
        return [*slots]

    def commit(
        self, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> list[Committed]:
        """Send offsets and commit each transaction on other threads, then check for stragglers.

        A suspect producer is recycled before this returns. Never raises for one commit's failure:
        its `Committed.error` has the error, so that the other commits are not affected. A call that
        has not returned when its transaction expires is abandoned; one that sends offsets sooner,
        because that is how librdkafka waits for a coordinator that has gone.

        Args:
            commits: of different outputs.
            within_seconds: calls that have not returned by then are abandoned.
        """
        seconds = min(self._timeout_seconds, within_seconds or self._timeout_seconds)
        stalled = threading.Event()
        deadline = Deadline(seconds)

        slots = _slots([commit.output for commit in commits])
        producers = _producers(slots)

        def send(commit: Commit) -> TransactionError | None:
            slot = _slot(commit.output)
            left = Deadline(0) if stalled.is_set() else deadline
            return slot.attempt(
                producers[slot], lambda producer: slot.send(producer, commit), left, Call.COMMIT
            )

        def is_stalled(commit: Commit, waited_seconds: float) -> bool:
            limit = self._request_timeout_seconds
            if _slot(commit.output).is_throttled_for_long():
                return True
            if waited_seconds > limit and _slot(commit.output).sends_offsets_for(limit):
                stalled.set()  # the calls that follow would wait for the same coordinator
                return True
            return False

        answers = self._threads.each(send, commits, seconds, is_stalled=is_stalled)
        for slot in slots:
            slot.note_throttling()
        errors = [
            slot.abandon() if isinstance(answer, Hung) else answer
            for slot, answer in zip(slots, answers, strict=True)
        ]
        return [
            Committed(error, was_suspect, slot.throttled_seconds)
            for slot, error, was_suspect in zip(
                slots, errors, self._verify(commits, seconds), strict=True
            )
        ]

    def abort(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        """Make sure that nothing of the open transactions becomes visible, and recycle.

        Returns:
            For each output the error that prevented its re-init, or None.
        """
        return self._end(abort, outputs)

    def recycle(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        """Replace the producers: fence requests that the old ones may have in flight.

        Returns:
            For each output the error that prevented its re-init, or None.
        """
        return self._end(recycle, outputs)

    def close(self, outputs: Sequence[TransactionalOutput]) -> None:
        """Discard the producers; a suspect one is re-inited first."""
        deadline = Deadline(CLOSE_SECONDS)
        self._threads.each(lambda slot: slot.producer.close(deadline.timeout()), _slots(outputs))

    def stop(self) -> None:
        """End the threads; the outputs have been closed."""
        self._threads.stop()

    def _end(
        self,
        end: Callable[[TransactionalProducer, float], None],
        outputs: Sequence[TransactionalOutput],
    ) -> list[TransactionError | None]:
        """Run `end` for all outputs at once; a call that does not return is abandoned."""
        deadline = Deadline(self._timeout_seconds)

        slots = _slots(outputs)
        producers = _producers(slots)

        def ended(slot: ProducerSlot) -> TransactionError | None:
            return slot.attempt(
                producers[slot],
                lambda producer: end(producer, deadline.timeout()),
                deadline,
                Call.INIT,
            )

        answers = self._threads.each(ended, slots, self._timeout_seconds + ABANDON_SECONDS)
        return [
            slot.abandon() if isinstance(answer, Hung) else answer
            for slot, answer in zip(slots, answers, strict=True)
        ]

    def _verify(self, commits: Sequence[Commit], seconds: float) -> list[bool]:
        """Replace the suspect producers."""
        deadline = Deadline(seconds)
        return [
            found is True
            for found in self._threads.each(
                lambda commit: _slot(commit.output).producer.verify(deadline.timeout()), commits
            )
        ]

    def _make(self, transactional_id: str) -> ProducerSlot:
        properties = {
            **self._client,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": round(self._timeout_seconds * 1000),
            **(self._statistics.producer_properties() if self._statistics else {}),
        }
        make = partial(
            TransactionalProducer,
            protection=self._protection,
            assume_transaction_verification=self._assume_verification,
        )
        slot = ProducerSlot(
            lambda: new_client(make, properties), self._timeout_seconds, self._topics
        )
        if self._statistics is not None:
            self._statistics.watch(slot)
        return slot

    def _init(self, slot: ProducerSlot) -> Exception | None:
        try:
            slot.producer.init_transactions(self._timeout_seconds)
        except ClusterUnreachable as error:
            return slot.timed_out(Call.INIT, str(error))
        except Exception as error:
            return error
        return None


def _producers(slots: Sequence[ProducerSlot]) -> dict[ProducerSlot, TransactionalProducer]:
    """Return the producers that the calls of a round use.

    A call that begins late, after its producer was abandoned, must not use the next one.
    """
    return {slot: slot.producer for slot in slots}


def _slots(outputs: Sequence[TransactionalOutput]) -> list[ProducerSlot]:
    return [_slot(output) for output in outputs]


def _slot(output: TransactionalOutput) -> ProducerSlot:
    if not isinstance(output, ProducerSlot):
        raise TypeError(f"{output!r} is not an output of ProducerPool.open; expected one")
    return output
