"""Warning of outputs that the retention of their topic deletes as soon as they are written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import structlog

from eosframework.engine.conversions import moment
from eosframework.transactions.ports import Output

LOOK_SECONDS = 1.0
"""Minimum interval between two looks at the outputs of a slice."""


class OldOutputs:
    """Looks at outputs now and then, and warns once per topic.

    Brokers delete a segment whose *largest* timestamp is too old, so a single old record among
    newer ones is kept: only the newest of a look counts.

    Args:
        kept_ms: how long each topic keeps records by their timestamps; tasks share it, and topics
            of which was warned are removed.
        topics: the outputs of the task.
        clock: seconds, monotonic.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        kept_ms: dict[str, int],
        topics: Collection[str],
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._kept_ms = kept_ms
        self._watched = kept_ms.keys() & set(topics)
        self._clock = clock
        self._now = now
        self._not_before = 0.0
        self._events = structlog.get_logger("eosframework.worker")

    def look(self, outputs: Iterable[Output]) -> None:
        """Warn of topics whose outputs among these are all too old."""
        if not self._watched or self._clock() < self._not_before:
            return
        self._watched &= self._kept_ms.keys()
        newest: dict[str, int] = {}
        for output in outputs:
            topic, time_ms = output[0], output[6]
            if topic in self._watched and time_ms > newest.get(topic, -1):
                newest[topic] = time_ms
        if newest:
            self._not_before = self._clock() + LOOK_SECONDS
        now_ms = round(self._now() * 1000)
        for topic, time_ms in newest.items():
            if now_ms - time_ms > self._kept_ms[topic]:
                self._warn(topic, time_ms, now_ms - self._kept_ms.pop(topic))

    def _warn(self, topic: str, time_ms: int, since_ms: int) -> None:
        self._events.warning(
            "output_deleted_soon",
            topic=topic,
            event_time=moment(time_ms),
            kept_since=moment(since_ms),
            reason="brokers delete records by their event times (retention.ms): these are gone "
            "soon after they are written",
            fix=f"kafka-configs --alter --topic {topic} --add-config retention.ms=-1",
        )
