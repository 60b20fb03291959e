"""How a worker is a member of its application's group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Membership in a group of the classic protocol, with the `range` assignor.

    `range` gives partitions of the same number of all topics to the same member, which keeps the
    sources of a task together.

    Args:
        group_id: the application's name.
        instance: name of this member, stable across restarts (`group.instance.id`): it gets its
            own partitions back at once. None: a new member each time.
        session_timeout_seconds: after so long without a heartbeat the member is given up.
        heartbeat_interval_seconds: a rebalance is noticed at the next heartbeat.
        max_poll_interval_seconds: after so long without a fetch the member leaves by itself.
    """

    group_id: str
    instance: str | None = None
    session_timeout_seconds: float = 45.0
    heartbeat_interval_seconds: float = 1.0
    max_poll_interval_seconds: float = 300.0

    def properties(self) -> dict[str, Any]:
        """Return these settings as librdkafka properties."""
        session = round(self.session_timeout_seconds * 1000)
        properties: dict[str, Any] = {
            "group.id": self.group_id,
            "group.protocol": "classic",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": session,
            "heartbeat.interval.ms": round(self.heartbeat_interval_seconds * 1000),
            "max.poll.interval.ms": max(session, round(self.max_poll_interval_seconds * 1000)),
        }
        if self.instance is not None:
            properties["group.instance.id"] = self.instance
        return properties
