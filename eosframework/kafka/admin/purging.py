"""Removes records that nobody will read again from topics of the application's own.

Deleting needs Delete on the topic, without which no worker starts. Where that is taken away later
the topic grows until its retention removes them; nothing else suffers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.kafka.client.properties import Role, client_properties, new_client
from eosframework.records import Position, TopicPartition

CLOSE_SECONDS = 5.0
"""How long closing waits for answers; what is lost then is asked for by whoever commits next."""

_NEVER_ALLOWED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant Delete on it",
    KafkaError.POLICY_VIOLATION: "set its cleanup.policy to delete",
}
"""Answers that stay the same however often one asks, and what changes them.

A topic that is compacted alone refuses with the second (`DeleteRecordsRequest`, KIP-107).
"""


@dataclass(slots=True)
class _Behind:
    """What is known of one partition.

    Args:
        seen: offsets that were committed, each with the time when this was first known.
        asked: up to where deletion was asked for.
    """

    seen: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])
    asked: int = 0
    look_at: float = 0.0


class RecordPurger:
    """Deletes records behind committed positions (DeleteRecords, KIP-107).

    A partition is looked at only while it is told to be committed. So where positions can go
    back, as those of a database do whose lagging standby was promoted, nothing is deleted by
    what was true before.

    Args:
        settings: the cluster.
        keep_seconds: for so long records stay after their position was committed.
        interval_seconds: between two deletions in a partition.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        keep_seconds: float = 0.0,
        interval_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._keep_seconds = keep_seconds
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._client: Any = None
        self._partitions: dict[TopicPartition, _Behind] = {}
        self._given_up: set[str] = set()
        self._under_way: set[Future[Any]] = set()
        self._events = structlog.get_logger("eosframework.kafka")

    def committed(self, positions: Sequence[Position]) -> None:
        """Say where partitions are now; returns at once, what is asked of brokers goes on.

        Call it after each commit, and after a claim that found another position.

        Args:
            positions: committed for certain. One below an earlier one takes that back.
        """
        now = self._clock()
        due: dict[TopicPartition, int] = {}
        for position in positions:
            if position.offset is None or position.topic in self._given_up:
                continue
            offset = self._advance(position.topic_partition, position.offset, now)
            if offset is not None:
                due[position.topic_partition] = offset
        self._delete(due)

    def close(self) -> None:
        """Wait a moment for what is under way: with its client a request goes, sent or not.

        A worker that runs only until it has caught up may live no longer than its first request.
        """
        wait(self._under_way, CLOSE_SECONDS)
        self._client = None
        self._partitions.clear()

    def _advance(self, partition: TopicPartition, offset: int, now: float) -> int | None:
        """Return the offset before which records are to go; None: not now."""
        behind = self._partitions.setdefault(partition, _Behind())
        while behind.seen and behind.seen[-1][1] > offset:
            behind.seen.pop()
        # So many points are enough, however often somebody commits.
        spacing_seconds = max(self._interval_seconds / 10, self._keep_seconds / 1000)
        if not behind.seen or now - behind.seen[-1][0] >= spacing_seconds:
            behind.seen.append((now, offset))
        if now < behind.look_at:
            return None
        behind.look_at = now + self._interval_seconds
        if self._keep_seconds == 0:
            behind.seen.clear()
            return self._ask_for(behind, offset)
        old_enough: int | None = None
        while behind.seen and behind.seen[0][0] <= now - self._keep_seconds:
            old_enough = behind.seen.popleft()[1]
        return None if old_enough is None else self._ask_for(behind, old_enough)

    @staticmethod
    def _ask_for(behind: _Behind, offset: int) -> int | None:
        if offset <= behind.asked:
            return None
        behind.asked = offset
        return offset

    def _delete(self, due: dict[TopicPartition, int]) -> None:
        if not due:
            return
        if self._client is None:
            properties = client_properties(self._settings, Role.ADMIN)
            self._client = new_client(AdminClient, properties)
        self._client.poll(0)
        try:
            futures = self._client.delete_records(
                [KafkaPartition(*partition, offset) for partition, offset in due.items()],
                request_timeout=self._settings.request_timeout_seconds,
            )
        except KafkaException as error:
            self._events.debug("records_not_purged", error=str(error))
            return
        self._under_way = {future for future in self._under_way if not future.done()}
        self._under_way.update(futures.values())
        for partition, future in futures.items():
            place = TopicPartition(partition.topic, partition.partition)
            future.add_done_callback(partial(self._answered, place))

    def _answered(self, partition: TopicPartition, answer: Future[Any]) -> None:
        """Take an answer, on librdkafka's thread."""
        error = answer.exception()
        if error is None:
            return
        reason = error.args[0] if isinstance(error, KafkaException) else None
        mend = _NEVER_ALLOWED.get(reason.code()) if isinstance(reason, KafkaError) else None
        if mend is None:
            # The next position that is old enough covers this one too.
            self._events.debug("records_not_purged", partition=str(partition), error=str(error))
        elif partition.topic not in self._given_up:
            self._given_up.add(partition.topic)
            self._events.warning(
                "purging_denied",
                topic=partition.topic,
                error=str(error),
                consequence="it grows until its retention.ms removes records",
                mend=mend,
            )
