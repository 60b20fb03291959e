"""Deletion of records in internal topics that no task will read again.

It needs Delete on the topic; no worker starts without it. If that ACL is revoked later, the topic
grows until its retention removes the records; nothing else is affected.
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
"""The longest wait of `close` for responses; the next owner's commits repeat lost requests."""

_NEVER_ALLOWED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant Delete on it",
    KafkaError.POLICY_VIOLATION: "set its cleanup.policy to delete",
}
"""Permanent errors, each with its fix.

POLICY_VIOLATION is the response for a topic that is only compacted (`DeleteRecordsRequest`,
KIP-107).
"""


@dataclass(slots=True)
class _Progress:
    """Deletion state of one partition.

    Args:
        seen: committed offsets, each with the time at which it was first known.
        requested: the offset of the last deletion request.
        look_at: the earliest time of the next deletion.
    """

    seen: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])
    requested: int = 0
    look_at: float = 0.0


class RecordPurger:
    """Deletes records below committed positions (DeleteRecords, KIP-107).

    It considers a partition only while commits of it are reported. Positions can go back, as those
    of a database whose lagging standby was promoted; a position that is no longer reported deletes
    nothing.

    Args:
        settings: how to reach the cluster.
        keep_seconds: the time for which records stay after their position was committed.
        interval_seconds: between two deletions in a partition.
        clock: seconds, monotonic.
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
        self._partitions: dict[TopicPartition, _Progress] = {}
        self._given_up: set[str] = set()
        self._under_way: set[Future[Any]] = set()
        self._events = structlog.get_logger("eosframework.kafka")

    def committed(self, positions: Sequence[Position]) -> None:
        """Record committed positions and request deletions that are due; never waits.

        Call it after each commit, and after a claim that found another position.

        Args:
            positions: certainly committed. One below an earlier one revokes that.
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
        """Wait up to `CLOSE_SECONDS` for pending requests: closing the client would drop them.

        A worker that runs only until it has caught up may end before its first request is sent.
        """
        wait(self._under_way, CLOSE_SECONDS)
        self._client = None
        self._partitions.clear()

    def _advance(self, partition: TopicPartition, offset: int, now: float) -> int | None:
        """Return the offset below which to delete records; None: nothing is due."""
        progress = self._partitions.setdefault(partition, _Progress())
        while progress.seen and progress.seen[-1][1] > offset:
            progress.seen.pop()
        # Bounds the number of points kept, however frequent the commits are.
        spacing_seconds = max(self._interval_seconds / 10, self._keep_seconds / 1000)
        if not progress.seen or now - progress.seen[-1][0] >= spacing_seconds:
            progress.seen.append((now, offset))
        if now < progress.look_at:
            return None
        progress.look_at = now + self._interval_seconds
        if self._keep_seconds == 0:
            progress.seen.clear()
            return self._ask_for(progress, offset)
        old_enough: int | None = None
        while progress.seen and progress.seen[0][0] <= now - self._keep_seconds:
            old_enough = progress.seen.popleft()[1]
        return None if old_enough is None else self._ask_for(progress, old_enough)

    @staticmethod
    def _ask_for(progress: _Progress, offset: int) -> int | None:
        if offset <= progress.requested:
            return None
        progress.requested = offset
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
        """Handle a response, on librdkafka's thread."""
        error = answer.exception()
        if error is None:
            return
        reason = error.args[0] if isinstance(error, KafkaException) else None
        fix = _NEVER_ALLOWED.get(reason.code()) if isinstance(reason, KafkaError) else None
        if fix is None:
            # The next deletion in this partition covers this one too.
            self._events.debug("records_not_purged", partition=str(partition), error=str(error))
        elif partition.topic not in self._given_up:
            self._given_up.add(partition.topic)
            self._events.warning(
                "purging_denied",
                topic=partition.topic,
                error=str(error),
                consequence="it grows until its retention.ms removes records",
                fix=fix,
            )
