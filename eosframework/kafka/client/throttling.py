"""Throttling of clients by quotas of the brokers.

A broker answers a request that exceeds a quota at once, names the time for which it reads nothing
more from the connection, and librdkafka sends on regardless (KIP-219). Whatever is sent meanwhile
times out, unless the client waits.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Self

import structlog

WARN_SECONDS = 60.0
"""Least seconds between two warnings of this process about clients of one kind."""

_warn_at: dict[str, float] = {}
_announced_seconds: defaultdict[str, float] = defaultdict(float)


def announced_seconds(client: str) -> float:
    """Return the sum of all times announced to this process's clients of a kind."""
    return _announced_seconds[client]


class Throttling:
    """The `throttle_cb` of a client: keeps the announced times, and warns.

    Args:
        client: kind of the client, for the warning.
        forward: the user's own `throttle_cb`, or None.
    """

    def __init__(self, client: str, forward: Callable[[Any], object] | None = None) -> None:
        self.seconds = 0.0
        """Sum of the times announced since `restart`."""
        self._client = client
        self._forward = forward
        self._until = 0.0

    def __call__(self, event: Any) -> None:
        """Receive librdkafka's ThrottleEvent; its time is 0 once a broker throttles no longer."""
        seconds, now = float(event.throttle_time), time.monotonic()
        self.seconds += seconds
        self._until = max(self._until, now + seconds)
        _announced_seconds[self._client] += seconds
        if seconds > 0 and now >= _warn_at.get(self._client, 0.0):
            _warn_at[self._client] = now + WARN_SECONDS
            structlog.get_logger("eosframework.kafka").warning(
                "client_throttled",
                client=self._client,
                broker=event.broker_name,
                seconds=round(seconds, 3),
                quota=f"{self._client}_byte_rate or request_percentage",
                advice="raise the quota of its user or client.id; kafka-configs.sh --describe "
                "--entity-type users --entity-type clients lists the quotas",
            )
        if self._forward is not None:
            self._forward(event)

    def restart(self) -> None:
        """Begin another sum."""
        self.seconds = 0.0

    def remaining_seconds(self) -> float:
        """Return the time for which some broker still reads nothing from this client."""
        return max(0.0, self._until - time.monotonic())


class Deadline:
    """A moment on the monotonic clock, or none.

    Args:
        seconds: from now; None: there is no deadline.
    """

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    @classmethod
    def from_timeout(cls, timeout: float) -> Self:
        """Return the deadline of a confluent_kafka `timeout`; below 0: none."""
        return cls(None if timeout < 0 else timeout)

    def timeout(self, at_most: float | None = None) -> float:
        """Return the seconds left, as confluent_kafka takes them: -1 without a deadline."""
        if self._at is None:
            return -1.0 if at_most is None else at_most
        left = max(0.0, self._at - time.monotonic())
        return left if at_most is None else min(left, at_most)

    @property
    def is_over(self) -> bool:
        """True once the moment has passed."""
        return self._at is not None and time.monotonic() >= self._at
