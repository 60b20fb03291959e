"""Membership of a worker in its application's consumer group."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from eosframework.kafka.client.properties import CLIENT_ID


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Membership in a group of the classic protocol, with the `range` assignor.

    `range` assigns the partitions with the same number of all topics to the same member, which
    keeps the sources of a task together.

    Args:
        group_id: the application's name.
        instance: the static member's name (`group.instance.id`), stable across restarts: the member
            gets its own partitions back at once. None: a dynamic member.
        session_timeout_seconds: the coordinator removes the member after this time without a
            heartbeat.
        heartbeat_interval_seconds: a rebalance is noticed at the next heartbeat.
        max_poll_interval_seconds: the member leaves after this time without a fetch.
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


_FORMAT, _GENERATION_BYTES = b"CGMDv2:", 4


def member_id(membership: bytes) -> str:
    """Return the member id in group metadata; empty: it is that of no member.

    librdkafka reports neither a lapse nor the metadata's content. It takes the id away after a
    lapsed session and an unknown member, and the generation after an illegal one. Brokers accept
    offsets without a generation from a static member while the group is empty, and always from a
    client without a member id (`ClassicGroup.validateOffsetCommit`).

    Args:
        membership: `rd_kafka_consumer_group_metadata_write` with its format:
            "CGMDv2:" GENERATION GROUP 0 MEMBER 0 ...
    """
    _, found, rest = membership.partition(_FORMAT)
    if not found:
        raise AssertionError(f"group metadata of another format than {_FORMAT!r}: {membership!r}")
    generation = int.from_bytes(rest[:_GENERATION_BYTES], sys.byteorder, signed=True)
    _, member, *_ = rest[_GENERATION_BYTES:].split(b"\0")
    return member.decode() if generation >= 0 else ""


WORKER = ".worker"
"""The end of the client id of a worker's consumer."""


def worker_client_id(client_id: str) -> str:
    """Return a member's client id, which states that it is a worker."""
    return f"{client_id}{WORKER}"


def is_worker(client_id: str) -> bool:
    """Return whether a member is a worker, by its client id, which may begin as its user chose."""
    return client_id.startswith(CLIENT_ID) or client_id.endswith(WORKER)
