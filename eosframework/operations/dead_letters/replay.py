"""Replay: sends selected dead letters through the topology again, each exactly once.

    R1. init the one transactional id of an application's replays: this fences an earlier replay and
        ends its open transaction
    R2. read the replay marks in the control topic, with no transaction undecided: they are final
    R3. read the dead letters; leave out those not selected, and those with a mark
    R4. one transaction: the records of dead letters of one partition, and their marks
    R5. decide the outcome: committed, next batch; unknown, init the id again and return to R2

A killed replay can be started again and resumes. Of two concurrent replays the later one continues.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from eosframework.application.control_log import ControlLog
from eosframework.application.replay_marks import Marks, Range, ReplayMarks
from eosframework.config import Settings
from eosframework.errors import (
    DataRejected,
    IdExpired,
    InstanceFenced,
    RunError,
    TaskFenced,
    TransactionError,
    TransactionFatal,
)
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import size_limits
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.kafka.worker_clients import producers
from eosframework.operations.dead_letters.dead_letter import DeadLetter
from eosframework.operations.dead_letters.dead_letter_reader import DeadLetters
from eosframework.operations.dead_letters.replay_plan import Target
from eosframework.operations.dead_letters.selection import Choice
from eosframework.processing.ports import Commit, TransactionalOutput
from eosframework.processing.transaction.producing import produce_all
from eosframework.records import TopicPartition
from eosframework.txnid import TransactionalId, control_topic

DEAD_LETTERS_IN_TRANSACTION = 500

ATTEMPTS = 5
"""Retries of a transaction."""

Batch = list[tuple[DeadLetter, Range]]


@dataclass(slots=True)
class Replayed:
    """The result of a replay.

    Args:
        counts: number of records by target topic.
    """

    counts: Counter[str] = field(default_factory=Counter[str])

    @property
    def total(self) -> int:
        """Number of replayed dead letters."""
        return self.counts.total()


def marks_of(application: str, settings: Settings, admin: ClusterAdmin) -> ReplayMarks:
    """Return the replay marks in an application's control topic."""
    seconds = 2 * settings.worker.transaction_timeout_seconds
    log = ControlLog(application, settings.kafka, admin, settle_seconds=seconds)
    return ReplayMarks(log)


def replay(
    application: str,
    settings: Settings,
    admin: ClusterAdmin,
    letters: DeadLetters,
    choice: Choice,
    targets: Mapping[str, Target],
    on_progress: Callable[[int], None] = lambda done: None,
) -> Replayed:
    """Replay the selected dead letters that have no replay mark yet.

    Args:
        application: its name; its control topic exists.
        settings: of its workers.
        admin: admin client of the cluster.
        letters: of the application.
        choice: the selection.
        targets: by input topic, the target of its records; dead letters of other topics are left
            out.
        on_progress: called with the number of dead letters replayed so far.

    Raises:
        InstanceFenced: another replay of the application was started; marked dead letters are done.
        RunError: a record is refused, or no transaction can succeed; marked dead letters are done.
        ClusterUnreachable: the cluster did not answer.
        StartRefused: the brokers do not verify transactions.
    """
    topics = sorted({target.topic for target in targets.values()})
    facts = admin.describe_topics(topics)
    written = [*topics, control_topic(application)]
    outputs = producers(settings, size_limits(facts.values()), written)
    opened: list[TransactionalOutput] = []
    try:
        opened = outputs.open([str(TransactionalId.replay(application))])
        sending = _Replay(
            application,
            outputs,
            opened[0],
            marks_of(application, settings, admin),
            letters.topic_ids,
            {
                name: (target.topic, facts[target.topic].partitions)
                for name, target in targets.items()
            },
            settings.worker.transaction_timeout_seconds,
        )
        for partition, batch in letters.batches():
            chosen = [(letter, range_) for letter, range_ in batch if choice.takes(letter)]
            sending.send(partition, chosen)
            on_progress(sending.replayed.total)
        return sending.replayed
    finally:
        outputs.close(opened)
        outputs.stop()


class _Replay:
    """A replay that owns its transactional id (R2 to R5).

    Args:
        routes: by input topic, the target topic and its number of partitions.
    """

    def __init__(
        self,
        application: str,
        outputs: ProducerPool,
        output: TransactionalOutput,
        marks: ReplayMarks,
        topic_ids: Mapping[str, str],
        routes: Mapping[str, tuple[str, int]],
        timeout_seconds: float,
    ) -> None:
        self.replayed = Replayed()
        self._application = application
        self._outputs = outputs
        self._output = output
        self._marks = marks
        self._topic_ids = topic_ids
        self._routes = routes
        self._timeout_seconds = timeout_seconds
        self._marked = marks.settled(topic_ids)
        self._events = structlog.get_logger("eosframework.dead_letters").bind(
            application=application
        )

    def send(self, partition: TopicPartition, batch: Batch) -> None:
        """Replay unmarked dead letters of one partition, in offset order."""
        waiting = [it for it in batch if it[0].origin.topic in self._routes]
        waiting = self._unmarked(partition, waiting)
        size, attempts = DEAD_LETTERS_IN_TRANSACTION, 0
        while waiting:
            chunk = waiting[:size]
            began_at = time.monotonic()
            error = self._transaction(partition, chunk)
            if error is None:
                attempts = 0
            else:
                attempts += 1
                size = self._next_size(error, chunk, attempts)
                self._recover(error, time.monotonic() - began_at)
            # Also after an error: the marks are in the transaction of the records, so they show
            # whether it was committed.
            left = self._unmarked(partition, waiting)
            kept = {letter.offset for letter, _ in left}
            self.replayed.counts.update(
                self._routes[letter.origin.topic][0]
                for letter, _ in waiting
                if letter.offset not in kept
            )
            waiting = left

    def _marks_of(self, partition: TopicPartition) -> Marks:
        known = self._marked.get(partition)
        return known or Marks(partition, self._topic_ids[partition.topic])

    def _unmarked(self, partition: TopicPartition, batch: Batch) -> Batch:
        marks = self._marks_of(partition)
        return [(letter, range_) for letter, range_ in batch if letter.offset not in marks]

    def _transaction(self, partition: TopicPartition, chunk: Batch) -> TransactionError | None:
        before = self._marks_of(partition)
        marks = before.with_(range_ for _, range_ in chunk)
        output = self._output
        records = [
            letter.again(self._application, *self._routes[letter.origin.topic])
            for letter, _ in chunk
        ]
        try:
            output.begin()
            produce_all(output, [*records, *self._marks.outputs(marks, before)])
        except TransactionError as error:
            return error
        [committed] = self._outputs.commit([Commit(output, (), None)])
        if committed.error is None:
            self._marked[partition] = marks
            if committed.recycled:  # this may have fenced a successor that marked others
                self._marked = self._marks.settled(self._topic_ids)
        return committed.error

    def _next_size(self, error: TransactionError, chunk: Batch, attempts: int) -> int:
        """Return the number of dead letters of the next transaction.

        Raises:
            RunError: the refused record is identified, or the attempts are exhausted.
        """
        if isinstance(error, DataRejected):
            if len(chunk) == 1:
                letter = chunk[0][0]
                raise RunError(
                    f"the record of dead letter {letter.place} is refused by "
                    f"{self._routes[letter.origin.topic][0]} ({error}). Those before it are "
                    f"replayed. Raise the topic's max.message.bytes, or leave this one out with "
                    f"--offsets"
                ) from error
            return len(chunk) // 2
        if attempts > ATTEMPTS:
            raise RunError(
                f"dead letters from {chunk[0][0].place} on could not be replayed in "
                f"{attempts} attempts: {error}. Those before are replayed; start the replay again"
            ) from error
        return len(chunk)

    def _recover(self, error: TransactionError, age_seconds: float) -> None:
        """Init the id again; the marks then show whether the transaction was committed (R5).

        Only a successor can have fenced a transaction that is younger than its timeout.
        """
        self._events.warning("replay_retried", error=str(error))
        if isinstance(error, TransactionFatal):
            raise RunError(str(error)) from error
        is_fenced = isinstance(error, TaskFenced) and not isinstance(error, IdExpired)
        if is_fenced and age_seconds < self._timeout_seconds:
            raise InstanceFenced(
                f"another replay of application {self._application!r} was started; "
                f"this one ends. Dead letters that either has replayed are marked, and the next "
                f"replay leaves them out"
            ) from error
        [unmended] = self._outputs.recycle([self._output])
        if unmended is not None:
            raise unmended from error
        self._marked = self._marks.settled(self._topic_ids)
