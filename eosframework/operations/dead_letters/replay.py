"""Replay: sends selected dead letters through the topology again, each exactly once.

    R1. init the one transactional id of an application's replays: this fences an earlier replay and
        ends its open transaction
    R2. read the replay marks in the control topic, with no transaction undecided: they are final
    R3. read the dead letters; leave out those not selected, and those with a mark
    R4. one transaction: the records of dead letters of one partition, and their marks
    R5. decide the outcome (`transactions/session`); in doubt, init the id again and return to R2

A killed replay can be started again and resumes. Of two concurrent replays the later one continues.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from eosframework.application.context import ApplicationContext
from eosframework.application.control_log import ControlLog
from eosframework.application.replay_marks import Marks, Range, ReplayMarks
from eosframework.config import Settings
from eosframework.errors import DataRejected, RunError, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import size_limits
from eosframework.kafka.worker_clients import producers
from eosframework.operations.dead_letters.dead_letter import (
    Choice,
    DeadLetter,
    DeadLetters,
    RecordGone,
    ReplayedByPartition,
)
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Graph
from eosframework.transactions.ports import Commit, TransactionalOutput, TransactionalOutputs
from eosframework.transactions.session.session_group import SessionCounts, SessionGroup, SessionUser
from eosframework.transactions.session.session_policy import Policy
from eosframework.transactions.session.session_states import Outcome
from eosframework.transactions.session.transaction_session import TransactionSession
from eosframework.txnid import TransactionalId, control_topic


@dataclass(frozen=True, slots=True)
class Target:
    """A topic from which the records of one input topic can be processed again.

    Args:
        topic: its name.
        sub_topology: the sub-topology that reads it.
        is_own: only the application reads it.
    """

    topic: str
    sub_topology: str
    is_own: bool


def targets(graph: Graph) -> Mapping[str, Target]:
    """Return the target of each input topic that a dead letter may name.

    It is the application's replay topic for this input if declared, else the input topic itself.
    """
    own = {repartition.topic for repartition in graph.repartitions}
    found = {
        source.topic: Target(source.topic, part.name, source.topic in own)
        for part in graph.sub_topologies
        for source in part.sources
    }
    for part in graph.sub_topologies:
        for source in part.sources:
            if source.retry_of is not None and source.retry_of.delay_ms is None:
                found[source.retry_of.topic] = found[source.topic]
    return found


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The dead letters of a selection.

    Args:
        counts: number by target.
        already: number of replayed ones; they are left out.
        unread_topics: by topic that no source reads, such as the changelog of a window that failed
            when it closed: the number of dead letters left out.
        gone: texts about dead letters whose records are gone; they are left out.
    """

    counts: Counter[Target] = field(default_factory=Counter[Target])
    already: int = 0
    unread_topics: Counter[str] = field(default_factory=Counter[str])
    gone: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Number of dead letters to replay."""
        return self.counts.total()

    @property
    def by_topic(self) -> list[tuple[Target, int]]:
        """Targets with their counts, by topic."""
        return sorted(self.counts.items(), key=lambda counted: counted[0].topic)

    def as_data(self, application: str, done: int, *, dry_run: bool) -> dict[str, Any]:
        """Return it as plain data, for JSON.

        Args:
            application: its name.
            done: number of dead letters that were replayed.
            dry_run: the replay was only planned.
        """
        return {
            "application": application,
            "dry_run": dry_run,
            "chosen": self.total,
            "replayed": done,
            "replayed_before": self.already,
            "into": {target.topic: count for target, count in self.by_topic},
            "left_out": dict(self.unread_topics),
            "gone": list(self.gone),
        }

    def lines(self, done: int, *, dry_run: bool) -> list[str]:
        """Return the plan as lines of text; see `as_data`."""
        verb = "would be replayed" if dry_run else "chosen"
        lines = [f"{self.total:,} dead letters {verb}, {self.already:,} were replayed before"]
        lines += [
            f"  {count:,} into {target.topic}, read by {target.sub_topology}"
            for target, count in self.by_topic
        ]
        lines += [
            f"  {count:,} of {topic} are left out: not an input of the topology"
            for topic, count in sorted(self.unread_topics.items())
        ]
        lines += [f"  {text}" for text in self.gone]
        if not dry_run:
            lines.append(f"{done:,} replayed")
        return lines

    def refuse_shared(self) -> None:
        """Raise if records would go to topics that other consumers may read.

        Raises:
            StartRefused: names the topics, and the alternatives.
        """
        shared = sorted(target.topic for target in self.counts if not target.is_own)
        if shared:
            raise StartRefused(
                f"replayed records would go to {', '.join(shared)}, where all consumers would see "
                f"them (with the header __eos.errors.replayed). To accept that, give "
                f"--into-source; for a replay topic that only this application reads, declare "
                f"`replay: true` next to dead_letter and run `eosframework apply`"
            )


def plan_replay(
    letters: DeadLetters, choice: Choice, targets: Mapping[str, Target], marked: ReplayedByPartition
) -> ReplayPlan:
    """Count the dead letters that a replay would send; changes nothing.

    Raises:
        ClusterUnreachable: the cluster did not answer.
    """
    counts: Counter[Target] = Counter()
    unread_topics: Counter[str] = Counter()
    gone: list[str] = []
    already = 0
    for partition, batch in letters.batches():
        marks = marked.get(partition)
        for letter, _ in batch:
            if not choice.takes(letter):
                continue
            target = targets.get(letter.origin.topic)
            if target is None:
                unread_topics[letter.origin.topic] += 1
            elif marks is not None and letter.offset in marks:
                already += 1
            else:
                try:
                    letters.whole(letter)
                except RecordGone as error:
                    gone.append(str(error))
                else:
                    counts[target] += 1
    return ReplayPlan(counts, already, unread_topics, tuple(gone))


DEAD_LETTERS_IN_TRANSACTION = 500
SHOWN_REFUSALS = 3

Batch = list[tuple[DeadLetter, Range]]


@dataclass(slots=True)
class Replayed:
    """The result of a replay.

    Args:
        counts: number of records by target topic.
        refused: of each dead letter whose record brokers refuse, its place and the reason.
    """

    counts: Counter[str] = field(default_factory=Counter[str])
    refused: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def total(self) -> int:
        """Number of replayed dead letters."""
        return self.counts.total()


def marks_of(application: str, settings: Settings, admin: ClusterAdmin) -> ReplayMarks:
    """Return the replay marks in an application's control topic."""
    seconds = 2 * settings.worker.transaction_timeout_seconds
    log = ControlLog(application, settings.kafka, admin, settle_seconds=seconds)
    return ReplayMarks(log)


def marked_of(context: ApplicationContext, letters: DeadLetters) -> ReplayedByPartition:
    """Return the replayed dead letters of an application, by partition.

    Raises:
        ClusterUnreachable: the cluster did not answer.
    """
    marks = marks_of(context.graph.application, context.settings, context.admin)
    return marks.decided(letters.topic_ids)


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
        RunError: brokers refuse records; all others are replayed. Or no transaction can succeed;
            marked dead letters are done.
        ClusterUnreachable: the cluster did not answer, or no transaction was committed for the
            session's patience; marked dead letters are done.
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
            whole=letters.whole,
        )
        for partition, batch in letters.batches():
            chosen = [
                (letter, range_)
                for letter, range_ in batch
                if choice.takes(letter) and _is_whole(letters, letter)
            ]
            sending.send(partition, chosen)
            on_progress(sending.replayed.total)
        sending.raise_refused()
        return sending.replayed
    finally:
        outputs.close(opened)
        outputs.stop()


class _Replay(SessionUser[TransactionSession, None]):
    """A replay that owns its transactional id (R2 to R5).

    Args:
        routes: by input topic, the target topic and its number of partitions.
        whole: returns a dead letter with its whole record.
    """

    def __init__(
        self,
        application: str,
        outputs: TransactionalOutputs,
        output: TransactionalOutput,
        marks: ReplayMarks,
        topic_ids: Mapping[str, str],
        routes: Mapping[str, tuple[str, int]],
        timeout_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        whole: Callable[[DeadLetter], DeadLetter] = lambda letter: letter,
    ) -> None:
        self.replayed = Replayed()
        self._whole = whole
        self._application = application
        self._marks = marks
        self._topic_ids = topic_ids
        self._routes = routes
        self._marked = marks.settled(topic_ids)
        self._chunk: Batch = []
        self._next = Marks(TopicPartition("", 0), "")
        self._size = DEAD_LETTERS_IN_TRANSACTION
        policy = Policy(
            timeout_seconds,
            successor=f"another replay of application {application!r}",
            advice="Dead letters that were replayed are marked; start the replay again, and it "
            "leaves them out",
        )
        self._session = TransactionSession(output, policy, clock)
        events = structlog.get_logger("eosframework.dead_letters").bind(application=application)
        self._group = SessionGroup(outputs, self, SessionCounts(), events, clock, sleep)

    def send(self, partition: TopicPartition, batch: Batch) -> None:
        """Replay unmarked dead letters of one partition, in offset order."""
        waiting = [it for it in batch if it[0].origin.topic in self._routes]
        waiting = self._unmarked(partition, waiting)
        self._size = DEAD_LETTERS_IN_TRANSACTION
        while waiting:
            self._chunk, before = waiting[: self._size], self._marks_of(partition)
            self._next = before.with_(range_ for _, range_ in self._chunk)
            self._group.transact(self._session, partial(self._fill, before))
            # The marks are in the transaction of the records, so they show what was committed.
            unmarked = self._unmarked(partition, waiting)
            left = [it for it in unmarked if it[0].place not in self.replayed.refused]
            kept = {letter.offset for letter, _ in unmarked}
            self.replayed.counts.update(
                self._routes[letter.origin.topic][0]
                for letter, _ in waiting
                if letter.offset not in kept
            )
            waiting = left

    def raise_refused(self) -> None:
        """Raise if brokers refused records, after all others were replayed.

        Raises:
            RunError: names the first ones.
        """
        if not (reasons := list(self.replayed.refused.values())):
            return
        more = len(reasons) - SHOWN_REFUSALS
        raise RunError(
            f"the records of {len(reasons)} dead letters are refused: "
            f"{'; '.join(reasons[:SHOWN_REFUSALS])}{f'; and {more} more' if more > 0 else ''}. "
            f"{self.replayed.total} others were replayed. Raise the topic's max.message.bytes, "
            f"then run the same command again"
        )

    def committed(self, session: TransactionSession, seconds: float) -> None:
        """Take the marks of the transaction as committed."""
        self._marked[self._next.partition] = self._next

    def reject(self, session: TransactionSession, error: DataRejected) -> None:
        """Send half as many dead letters at a time, and leave out the one that is refused alone."""
        if len(self._chunk) == 1:
            letter = self._chunk[0][0]
            topic = self._routes[letter.origin.topic][0]
            self.replayed.refused[letter.place] = f"{letter.place} by {topic}: {error}"
        self._size = max(len(self._chunk) // 2, 1)

    def read(self, sessions: Sequence[TransactionSession]) -> Sequence[None]:
        """Read the marks again (R5); a replay that was suspended may find those of another one."""
        self._marked = self._marks.settled(self._topic_ids)
        return [None for _ in sessions]

    def outcome(self, session: TransactionSession, found: None) -> Outcome:
        """Return whether the dead letters of the last transaction have their marks."""
        left = self._unmarked(self._next.partition, self._chunk)
        return Outcome.NOT_COMMITTED if left else Outcome.COMMITTED

    def _marks_of(self, partition: TopicPartition) -> Marks:
        known = self._marked.get(partition)
        return known or Marks(partition, self._topic_ids[partition.topic])

    def _unmarked(self, partition: TopicPartition, batch: Batch) -> Batch:
        marks = self._marks_of(partition)
        return [(letter, range_) for letter, range_ in batch if letter.offset not in marks]

    def _fill(self, before: Marks) -> Commit:
        """Produce the records of some dead letters, and their marks (R4)."""
        for letter, _ in self._chunk:
            route = self._routes[letter.origin.topic]
            # One at a time: whole records may be many times as large as their dead letters.
            self._session.produce([self._whole(letter).again(self._application, *route)])
        self._session.produce(self._marks.outputs(self._next, before))
        return Commit(self._session.output, (), None)


def _is_whole(letters: DeadLetters, letter: DeadLetter) -> bool:
    """Return whether the record of a dead letter can be had; the plan has named the others."""
    try:
        letters.whole(letter)
    except RecordGone:
        return False
    return True
