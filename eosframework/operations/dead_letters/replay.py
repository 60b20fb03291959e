"""Replay: sends selected dead letters through the topology again, each exactly once.

A replay claims the one transactional id of an application's replays, then reads the replay marks in
the control topic: they are final. It leaves out dead letters that are not selected, or have a mark.
Each transaction has the records of dead letters of one stretch of a partition, and the marks of
that stretch, an owned key (`transactions/session/owned_keys`).

A killed replay can be started again and resumes. Of two concurrent replays the later one continues.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from eosframework.application.context import ApplicationContext
from eosframework.application.journal import KafkaJournal
from eosframework.application.replay_marks import (
    PREFIX,
    STRETCH,
    Marks,
    Range,
    mark_key,
    marks_in,
)
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
from eosframework.transactions.ports import Journal, Output, TransactionalOutputs
from eosframework.transactions.session.owned_keys import Claim, KeyWork, OwnedKey, OwnedKeys
from eosframework.transactions.session.session_states import Policy
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


def marked_of(context: ApplicationContext, letters: DeadLetters) -> ReplayedByPartition:
    """Return the replayed dead letters of an application, by partition.

    Raises:
        ClusterUnreachable: the cluster did not answer.
    """
    journal = KafkaJournal(context.graph.application, context.settings.kafka, context.admin)
    return marks_in(journal.decided_under(PREFIX), letters.topic_ids)


def replay(
    application: str,
    settings: Settings,
    admin: ClusterAdmin,
    letters: DeadLetters,
    choice: Choice,
    targets: Mapping[str, Target],
    on_progress: Callable[[int], object] = lambda done: None,
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
    timeout_seconds = settings.worker.transaction_timeout_seconds
    topics = sorted({target.topic for target in targets.values()})
    facts = admin.describe_topics(topics)
    written = [*topics, control_topic(application)]
    outputs = producers(settings, size_limits(facts.values()), written)
    sending = _Replay(
        application,
        outputs,
        KafkaJournal(application, settings.kafka, admin, settle_seconds=2 * timeout_seconds),
        letters.topic_ids,
        {name: (target.topic, facts[target.topic].partitions) for name, target in targets.items()},
        timeout_seconds,
        whole=letters.whole,
    )
    try:
        sending.claim()
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
        sending.close()
        outputs.stop()


class _Replay(KeyWork[Any]):
    """A replay that owns its transactional id.

    Args:
        journal: has the marks.
        topic_ids: of the dead-letter topics.
        routes: by input topic, the target topic and its number of partitions.
        whole: returns a dead letter with its whole record.
    """

    def __init__(
        self,
        application: str,
        outputs: TransactionalOutputs,
        journal: Journal,
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
        self._topic_ids = topic_ids
        self._routes = routes
        self._chunk: Batch = []
        self._size = DEAD_LETTERS_IN_TRANSACTION
        policy = Policy(
            timeout_seconds,
            successor=f"another replay of application {application!r}",
            advice="Dead letters that were replayed are marked; start the replay again, and it "
            "leaves them out",
        )
        events = structlog.get_logger("eosframework.dead_letters").bind(application=application)
        lost = "Which dead letters were replayed is unknown"
        self._keys: OwnedKeys[Any] = OwnedKeys(
            outputs, journal, policy, events, lost=lost, clock=clock, sleep=sleep
        )
        self._journal = journal
        self._opened: list[OwnedKey[Any]] = []
        self._entries: dict[str, Any] = {}
        self._marked: dict[TopicPartition, Marks] = {}

    def claim(self) -> None:
        """Take the id from an earlier replay, and read the marks.

        Raises:
            InstanceFenced: another replay took it meanwhile.
            RunError: the brokers refuse the id.
            ClusterUnreachable: the cluster did not answer for long.
        """
        claim = self._claim_of("")
        self._opened = self._keys.claim([claim])
        super().__init__(self._opened[0])
        entries = self._keys.patiently(lambda: self._journal.settled_under(PREFIX), claim.name)
        self._entries, self._marked = dict(entries), marks_in(entries, self._topic_ids)

    def _claim_of(self, key: str) -> Claim[Any]:
        id_ = str(TransactionalId.replay(self._application))
        name = f"the replay of dead letters of application {self._application!r}"
        return Claim(id_, name, key, lambda entry: entry, lambda entry: entry)

    def send(self, partition: TopicPartition, batch: Batch) -> None:
        """Replay unmarked dead letters of one partition, in offset order."""
        marks = self._marked.get(partition) or Marks(partition, self._topic_ids[partition.topic])
        waiting = [
            (letter, range_)
            for letter, range_ in batch
            if letter.origin.topic in self._routes and letter.offset not in marks
        ]
        self._size = DEAD_LETTERS_IN_TRANSACTION
        while waiting:
            stretch = waiting[0][0].offset // STRETCH
            self._chunk = [it for it in waiting[: self._size] if it[0].offset // STRETCH == stretch]
            after = marks.with_(stretch, [range_ for _, range_ in self._chunk])
            key = mark_key(partition, stretch)
            self.owned.move_to(self._claim_of(key), self._entries.get(key))
            if self._keys.write(self.owned, self._records(), after.entry(stretch)):
                self._marked[partition] = marks = after
                self._entries[key] = self.owned.known
                self.replayed.counts.update(self._target(letter) for letter, _ in self._chunk)
                waiting = waiting[len(self._chunk) :]
            else:
                waiting = [it for it in waiting if it[0].place not in self.replayed.refused]

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

    def close(self) -> None:
        """Close the producer."""
        self._keys.close(self._opened)

    def reject(self, error: DataRejected) -> None:
        """Send half as many dead letters at a time, and leave out the one that is refused alone."""
        if len(self._chunk) == 1:
            letter = self._chunk[0][0]
            topic = self._target(letter)
            self.replayed.refused[letter.place] = f"{letter.place} by {topic}: {error}"
        self._size = max(len(self._chunk) // 2, 1)

    def _target(self, letter: DeadLetter) -> str:
        return self._routes[letter.origin.topic][0]

    def _records(self) -> Iterator[list[Output]]:
        """Yield the records one at a time: they may be many times as large as dead letters."""
        for letter, _ in self._chunk:
            route = self._routes[letter.origin.topic]
            yield [self._whole(letter).again(self._application, *route)]


def _is_whole(letters: DeadLetters, letter: DeadLetter) -> bool:
    """Return whether the record of a dead letter can be had; the plan has named the others."""
    try:
        letters.whole(letter)
    except RecordGone:
        return False
    return True
