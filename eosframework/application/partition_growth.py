"""Reactions to topics that get more partitions while a worker runs.

    topics of tasks          the worker ends before it takes a new partition over: no other start
                             would be allowed either until the user has decided about moved keys
    global tables            the worker ends: rows in new partitions would not be found
    output topics            a warning; records are written as before

The group reports the first kind within seconds, when it reassigns its partitions. A periodic look
at all topics finds the others, and the first kind in workers without partitions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

import structlog

from eosframework.config import KafkaSettings
from eosframework.errors import RunError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.requests import REQUEST_FAILED
from eosframework.records import TopicPartition

LOOK_SECONDS = 10.0

PAGE = "docs/howto/growing-partitions.md"

Count = Callable[[], Mapping[str, int]]
"""Returns the number of partitions of each topic; topics that do not exist may be left out."""


class PartitionGrowth:
    """Compares partition counts with those at the worker's start.

    Args:
        known: number of partitions by topic, at the start.
        read: topics whose partitions are tasks.
        whole: topics that every process reads whole.
        count: asks the cluster, on another thread.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        known: Mapping[str, int],
        read: Collection[str],
        whole: Collection[str],
        count: Count,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known = dict(known)
        self._read = frozenset(read)
        self._whole = frozenset(whole)
        self._count = count
        self._clock = clock
        self._looks_at = clock() + LOOK_SECONDS
        self._looking = threading.Lock()
        self._found: Mapping[str, int] = {}
        self._events = structlog.get_logger("eosframework.kafka")

    def refuse_new(self, partitions: Iterable[TopicPartition]) -> None:
        """Refuse partitions that a topic did not have at the start.

        Raises:
            RunError: names the topic, and says what to do.
        """
        for topic, number in sorted(partitions):
            if topic in self._read and number >= self._known.get(topic, number + 1):
                raise self._error(topic, f"partition {number}")

    def turn(self) -> None:
        """Handle the last look's result, and begin another look when it is due; never waits.

        Raises:
            RunError: a topic that is read has grown; says what to do.
        """
        # The look's thread only assigns `_found`, and only while it holds `_looking`. If it does so
        # between the two halves of this swap, its result is lost, and the next look repeats it.
        found, self._found = self._found, {}
        for topic, count in sorted(found.items()):
            if count > self._known.get(topic, count):
                self._judge(topic, count)
        if self._clock() >= self._looks_at and self._looking.acquire(blocking=False):
            self._looks_at = self._clock() + LOOK_SECONDS
            threading.Thread(target=self._look, name="eos-growth", daemon=True).start()

    def _look(self) -> None:
        try:
            # The next look retries brokers that do not answer; other requests report them.
            with suppress(*REQUEST_FAILED):
                self._found = self._count()
        finally:
            self._looking.release()

    def _judge(self, topic: str, count: int) -> None:
        if topic in self._read or topic in self._whole:
            raise self._error(topic, f"{count} partitions")
        self._events.warning(
            "topic_grown",
            topic=topic,
            partitions_before=self._known[topic],
            partitions=count,
            consequence="records are still written; those of a key may go to another partition "
            "than before, and a worker does not start on a changelog that has grown",
            fix=f"see {PAGE}",
        )
        self._known[topic] = count

    def _error(self, topic: str, found: str) -> RunError:
        before = f"topic {topic!r} has {found}, and had {self._known[topic]} partitions when this"
        if topic in self._whole:
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


def partition_counter(settings: KafkaSettings, topics: Collection[str]) -> Count:
    """Return a function that counts the partitions of topics, with a client of its own.

    Args:
        settings: how to reach the cluster.
        topics: the topics to count.
    """
    clients: list[ClusterAdmin] = []

    def count() -> Mapping[str, int]:
        # Created by the first look: a worker that ends before it needs no further client.
        if not clients:
            clients.append(ClusterAdmin(settings))
        return clients[0].partition_counts(topics)

    return count
