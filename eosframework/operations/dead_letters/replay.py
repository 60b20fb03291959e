"""Sends chosen dead letters through the topology again, each exactly once.

    R1. init the one id that replays of an application have: an earlier one is fenced, and what it
        left open is ended
    R2. read the marks in the registry, settled: they tell what was replayed for good
    R3. read the letters; leave out what is not meant, and what is marked
    R4. one transaction: records of one partition of letters, and the marks that they were replayed
    R5. decide: committed, on to the next; in doubt, take the id again, and R2 tells

A replay that is killed is started again and goes on; of two at a time the later one goes on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from eosframework.application.control_log import RegistryLog
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
from eosframework.kafka.producer.producer_pool import KafkaOutputs
from eosframework.kafka.worker_clients import producers
from eosframework.operations.dead_letters.dead_letter import Letter
from eosframework.operations.dead_letters.dead_letter_reader import Letters
from eosframework.operations.dead_letters.selection import Choice
from eosframework.operations.dead_letters.targets import Target
from eosframework.processing.ports import Commit, TransactionalOutput
from eosframework.records import TopicPartition
from eosframework.txnid import TransactionalId, control_topic

LETTERS_IN_TRANSACTION = 500

ATTEMPTS = 5
"""How often a transaction is tried again."""

Batch = list[tuple[Letter, Range]]


@dataclass(slots=True)
class Replayed:
    """What a replay did.

    Args:
        counts: how many records went to each topic.
    """

    counts: Counter[str] = field(default_factory=Counter[str])

    @property
    def total(self) -> int:
        """How many letters were replayed."""
        return self.counts.total()


def marks_of(application: str, settings: Settings, admin: ClusterAdmin) -> ReplayMarks:
    """Return the marks in an application's registry."""
    seconds = 2 * settings.worker.transaction_timeout_seconds
    log = RegistryLog(application, settings.kafka, admin, settle_seconds=seconds)
    return ReplayMarks(log)


def replay(
    application: str,
    settings: Settings,
    admin: ClusterAdmin,
    letters: Letters,
    choice: Choice,
    targets: Mapping[str, Target],
    on_progress: Callable[[int], None] = lambda done: None,
) -> Replayed:
    """Replay the letters that are chosen and were not replayed before.

    Args:
        application: its name; its registry exists.
        settings: of its workers.
        admin: asks the cluster.
        letters: of the application.
        choice: which of them.
        targets: by input topic, where its records go; letters of others are left out.
        on_progress: told how many letters are through.

    Raises:
        InstanceFenced: another replay of the application was started; what is marked is done.
        RunError: a record is refused, or no transaction can succeed; what is marked is done.
        ClusterUnreachable: nobody answered.
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
    """One replay whose id is taken (R2 to R5).

    Args:
        routes: by input topic, where its records go and how many partitions that has.
    """

    def __init__(
        self,
        application: str,
        outputs: KafkaOutputs,
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
        """Replay letters of one partition that are not marked yet, in their order."""
        waiting = [it for it in batch if it[0].origin.topic in self._routes]
        waiting = self._unmarked(partition, waiting)
        size, attempts = LETTERS_IN_TRANSACTION, 0
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

    def _unmarked(self, partition: TopicPartition, batch: Sequence[tuple[Letter, Range]]) -> Batch:
        marks = self._marks_of(partition)
        return [(letter, range_) for letter, range_ in batch if letter.offset not in marks]

    def _transaction(self, partition: TopicPartition, chunk: Batch) -> TransactionError | None:
        before = self._marks_of(partition)
        marks = before.with_(range_ for _, range_ in chunk)
        output = self._output
        try:
            output.begin()
            for letter, _ in chunk:
                topic, partitions = self._routes[letter.origin.topic]
                output.produce(*letter.again(self._application, topic, partitions))
            for entry in self._marks.outputs(marks, before):
                output.produce(*entry)
        except TransactionError as error:
            return error
        except Exception as error:
            return output.explain(error)
        [committed] = self._outputs.commit([Commit(output, (), None)])
        if committed.error is None:
            self._marked[partition] = marks
            if committed.recycled:  # that may have fenced a successor, which has marked others
                self._marked = self._marks.settled(self._topic_ids)
        return committed.error

    def _next_size(self, error: TransactionError, chunk: Batch, attempts: int) -> int:
        """Return how many letters the next transaction takes.

        Raises:
            RunError: the one that is refused is known, or it was tried often enough.
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
                f"{attempts} attempts: {error}. Those before are replayed; start the same again"
            ) from error
        return len(chunk)

    def _recover(self, error: TransactionError, age_seconds: float) -> None:
        """Take the id again, after which the marks tell what happened (R5).

        A transaction that is younger than its timeout was fenced by a successor only.
        """
        self._events.warning("replay_retried", error=str(error))
        if isinstance(error, TransactionFatal):
            raise RunError(str(error)) from error
        is_fenced = isinstance(error, TaskFenced) and not isinstance(error, IdExpired)
        if is_fenced and age_seconds < self._timeout_seconds:
            raise InstanceFenced(
                f"another replay of application {self._application!r} was started and goes on; "
                f"this one ends. What either of them has replayed is marked, and is left out by "
                f"the next one"
            ) from error
        [unmended] = self._outputs.recycle([self._output])
        if unmended is not None:
            raise unmended from error
        self._marked = self._marks.settled(self._topic_ids)
