"""The watch of a running worker over its topics and its group.

Compares them with what the worker started with: in a look every ten seconds, before a task runs
that was taken over or restored, before a worker that has caught up ends, and after an error:

    another id of a source,          the worker ends and commits nothing more: its offsets and its
    a changelog, an output           state belong to the former topic
    another id of a global table     the table is read again, and look-ups wait
    offsets of another consumer      the worker ends: records may have been passed over
    more partitions of a source      the worker ends: keys have moved
    more partitions of an output     a warning; records are written as before
    a topic that a pattern matches   the worker starts again with the topics of now
    came or was deleted              (`matched_topics`)

Between two looks a worker may process records of a topic that was created again (at most
`LOOK_SECONDS`, and the time of a request). The next look finds that: an id never returns. The error
names the offsets that were processed since the look before it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from eosframework.application.group_members import foreign_offsets, foreign_offsets_error
from eosframework.application.matched_topics import MatchedTopics
from eosframework.application.topic_identity import Use, next_step, replaced
from eosframework.errors import IdentityChanged, MatchedTopicsChanged, RunError
from eosframework.kafka.admin.metadata import TopicIdentity
from eosframework.kafka.admin.requests import REQUEST_FAILED
from eosframework.records import Position, TopicPartition
from eosframework.transactions.ports import Positions

LOOK_SECONDS = 10.0

CONFIRM_SECONDS = 0.5
"""Another id is read again after this time: a broker may lag with the metadata."""

RETRY_SECONDS = 1.0

PAGE = "`eosframework explain page growing-partitions`"


class Cluster(Protocol):
    """The requests of a watch."""

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicIdentity]:
        """Return the identity of each topic that exists."""
        ...

    def committed(self) -> Sequence[Position]:
        """Return the committed positions of the application."""
        ...

    def strangers(self) -> Sequence[str]:
        """Return the members of the group that are no workers of the application."""
        ...

    def resuming(self, topic: str, found: TopicIdentity | None, untouched: Sequence[int]) -> str:
        """Return where to resume in a source that was created again, and the command for it."""
        ...

    def recorded(self, topic: str) -> str | None:
        """Return the id that the control topic has for a topic, as of now; None: it has none."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of one look.

    Args:
        known: the topics that were compared.
        topics: those of them that exist.
        before: positions of the worker when the look began.
        committed: positions of the application.
        strangers: members of its group that are no workers.
        change: of the topics that a pattern matches; None: there is none.
    """

    known: Mapping[str, TopicIdentity]
    topics: Mapping[str, TopicIdentity]
    before: Mapping[TopicPartition, int]
    committed: Sequence[Position] = ()
    strangers: Sequence[str] = field(default_factory=list[str])
    change: str | None = None


class TopicWatch:
    """Compares topics and committed offsets with those that a worker started with.

    Args:
        known: the topics at the worker's start.
        uses: of these topics.
        cluster: the requests, also on another thread.
        own: partitions that the application committed before.
        clock: seconds, monotonic.
        sleep: waits for seconds, on the thread of a look.
        matched: the topics that patterns match; None: there are no patterns.
    """

    def __init__(
        self,
        known: Mapping[str, TopicIdentity],
        uses: Mapping[str, Use],
        cluster: Cluster,
        own: Iterable[TopicPartition] = (),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        matched: MatchedTopics | None = None,
    ) -> None:
        self._matched = matched
        self._known = dict(known)
        self._uses = dict(uses)
        self._cluster = cluster
        self._clock = clock
        self._sleep = sleep
        self._looks_at = clock() + LOOK_SECONDS
        self._not_before = clock()
        self._looking = threading.Lock()
        self._found: Seen | None = None
        self._verified: dict[TopicPartition, int] = {}
        self._own: dict[TopicPartition, int | None] = dict.fromkeys(own)
        """Partitions with offsets of the application, and the last of these that was seen."""
        self._strangers: Sequence[str] = ()
        self._is_renewed = False
        self._events = structlog.get_logger("eosframework.kafka")

    def refuse_new(self, partitions: Iterable[TopicPartition]) -> None:
        """Refuse partitions that a topic did not have at the start.

        Raises:
            RunError: names the topic, and says what to do.
        """
        for topic, number in sorted(partitions):
            known = self._known.get(topic)
            is_new = known is None or number >= known.partitions
            if self._uses.get(topic) is Use.SOURCE and is_new:
                raise self._grown(topic, f"partition {number}")

    def add(self, topic: str, identity: TopicIdentity) -> None:
        """Watch a topic that was chosen while running, too."""
        if topic not in self._known:
            self._known[topic] = identity
            self._uses[topic] = Use.CHOSEN

    def turn(self, positions: Positions) -> None:
        """Handle the last look's result, and begin another look when it is due; never waits.

        Args:
            positions: returns the committed positions of the worker's tasks.

        Raises:
            IdentityChanged: a topic or committed offsets are not those of the start.
            MatchedTopicsChanged: a pattern matches other topics than at the start.
            RunError: a topic that is read has grown; says what to do.
        """
        # The look's thread only assigns `_found`, and only while it holds `_looking`. If it does so
        # between the two halves of this swap, its result is lost, and the next look repeats it.
        found, self._found = self._found, None
        if found is not None:
            self._judge(found, positions)
        if self._clock() >= self._looks_at and self._looking.acquire(blocking=False):
            self._looks_at = self._clock() + LOOK_SECONDS
            before = dict(positions())
            threading.Thread(
                target=self._look_aside, args=(before,), name="eos-watch", daemon=True
            ).start()

    def confirm(self, positions: Positions) -> bool:
        """Look at once; return False if the brokers do not answer.

        Raises:
            IdentityChanged, RunError: as `turn`.
            MatchedTopicsChanged: a topic that a pattern matches was deleted. New ones are left to
                `turn`: a worker whose takeovers each found another one would process nothing.
        """
        if self._clock() < self._not_before:
            return False
        before = dict(positions())
        with self._looking:
            self._found = None
            try:
                found = self._look(before)
            except REQUEST_FAILED as error:
                self._not_before = self._clock() + RETRY_SECONDS
                self._events.warning("topics_not_compared", error=str(error))
                return False
        self._judge(found, positions)
        return True

    def renewed(self) -> bool:
        """Return whether topics of global tables were created again since the last call."""
        was, self._is_renewed = self._is_renewed, False
        return was

    def _look_aside(self, before: Mapping[TopicPartition, int]) -> None:
        try:
            # The next look retries brokers that do not answer; other requests report them.
            with suppress(*REQUEST_FAILED):
                change = None if self._matched is None else self._matched.change()
                self._found = replace(self._look(before), change=change)
        finally:
            self._looking.release()

    def _look(self, before: Mapping[TopicPartition, int]) -> Seen:
        known = dict(self._known)  # The worker's thread adds topics meanwhile.
        topics = self._cluster.topics(known)
        if any(_is_other(topics.get(topic), identity) for topic, identity in known.items()):
            self._sleep(CONFIRM_SECONDS)
            topics = self._cluster.topics(known)
        committed, strangers = self._cluster.committed(), list[str]()
        if committed:
            strangers = [*self._cluster.strangers()]
        return Seen(known, topics, before, committed, strangers)

    def _judge(self, seen: Seen, positions: Positions) -> None:
        for topic, before in sorted(seen.known.items()):
            found = seen.topics.get(topic)
            if found is None or _is_other(found, before):
                self._judge_other(topic, found, positions)
            elif found.partitions > before.partitions:
                self._judge_growth(topic, found)
        self._judge_offsets(seen)
        self._verified = dict(seen.before)
        if seen.change is not None:
            raise MatchedTopicsChanged(seen.change)

    def _judge_other(self, topic: str, found: TopicIdentity | None, positions: Positions) -> None:
        use, before = self._uses[topic], self._known[topic]
        if found is None and self._matched is not None and topic in self._matched.known:
            raise MatchedTopicsChanged(
                f"topic {topic!r} was deleted, and its unread records with it"
            )
        if found is None and use in (Use.OUTPUT, Use.CHOSEN, Use.GLOBAL):
            return  # Transactions cannot commit without it, and report it; rows stay as they are.
        start = replaced(topic, use, before.topic_id, found)
        recorded = self._recorded(topic)
        if use is Use.GLOBAL and found is not None:
            if found.partitions != before.partitions:
                raise IdentityChanged(f"{start}It has another number of partitions. Start again")
            self._events.warning("global_table_replaced", topic=topic, topic_id=found.topic_id)
            self._known[topic] = found
            self._is_renewed = True
        elif use is Use.OUTPUT and found is not None and recorded == found.topic_id:
            self._events.info("topic_accepted", topic=topic, topic_id=found.topic_id)
            self._known[topic] = found
        elif use is Use.OUTPUT and found is not None and recorded is None:
            return  # `apply --accept` has yet to record this one.
        elif recorded != before.topic_id:
            raise IdentityChanged(
                f"{start}The control topic no longer has that id: the application was reset, or "
                f"accepts another topic, since this worker started; start this worker again"
            )
        elif use in (Use.SOURCE, Use.ROWS):
            raise IdentityChanged(start + self._resuming(topic, found, dict(positions())))
        else:
            raise IdentityChanged(start + next_step(topic, use))

    def _recorded(self, topic: str) -> str | None:
        """Return the id that the control topic has; the known one if that cannot be read."""
        if self._uses[topic] in (Use.SOURCE, Use.CHANGELOG, Use.EFFECTS, Use.OUTPUT):
            with suppress(*REQUEST_FAILED):
                return self._cluster.recorded(topic)
        return self._known[topic].topic_id

    def _resuming(
        self, topic: str, found: TopicIdentity | None, now: Mapping[TopicPartition, int]
    ) -> str:
        """Return what was processed since the former topic was last seen, and the next step."""
        own = {p: offset for p, offset in sorted(now.items()) if p.topic == topic}
        since = {p: self._verified.get(p, 0) for p in own}
        moved = [f"{since[p]} to {offset} of {p}" for p, offset in own.items() if since[p] < offset]
        untouched = [p.partition for p, offset in own.items() if since[p] == offset]
        text = ""
        if found is not None and moved:
            text = (
                f"Since the former one was last seen, offsets {', '.join(moved)} were processed. "
            )
        try:
            return text + self._cluster.resuming(topic, found, untouched)
        except REQUEST_FAILED:
            return f"{text}Stop all workers, and start one: it names the positions to set"

    def _judge_offsets(self, seen: Seen) -> None:
        self._strangers = seen.strangers or self._strangers
        if foreign := foreign_offsets(seen.committed, self._own):
            raise IdentityChanged(foreign_offsets_error(foreign, self._strangers, self._own))
        for position in seen.committed:
            if position.offset is not None and not foreign_offsets([position]):
                self._own[position.topic_partition] = position.offset

    def _judge_growth(self, topic: str, found: TopicIdentity) -> None:
        if self._uses[topic] in (Use.SOURCE, Use.GLOBAL):
            raise self._grown(topic, f"{found.partitions} partitions")
        self._events.warning(
            "topic_grown",
            topic=topic,
            partitions_before=self._known[topic].partitions,
            partitions=found.partitions,
            consequence="records are still written; those of a key may go to another partition "
            "than before, and a worker does not start on a changelog that has grown",
            fix=f"see {PAGE}",
        )
        self._known[topic] = found

    def _grown(self, topic: str, found: str) -> RunError:
        known = self._known.get(topic)
        had = "none" if known is None else known.partitions
        before = f"topic {topic!r} has {found}, and had {had} partitions when this"
        if self._uses[topic] is Use.GLOBAL:
            return RunError(
                f"{before} worker started, which reads all of it; what was complete is committed. "
                f"Start the workers again"
            )
        return RunError(
            f"{before} worker started: its keys have moved to other partitions. Nothing of the new "
            f"partitions was processed, and what was complete is committed. Stop all workers and "
            f"continue as {PAGE} says: if no step after the topic keeps state, with "
            f"`eosframework positions set APP {topic}=committed`"
        )


def _is_other(found: TopicIdentity | None, known: TopicIdentity) -> bool:
    return found is None or found.topic_id != known.topic_id
