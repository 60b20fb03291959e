"""Non-blocking look at the members of a consumer group."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import structlog
from confluent_kafka import KafkaException

from eosframework.config import KafkaSettings
from eosframework.engine.restoration.standby_assignment import Member
from eosframework.kafka.admin.requests import AdminRequests


class KafkaGroupMembers(AdminRequests):
    """The current members of a group; implements `state_ports.GroupLook`.

    Args:
        settings: how to reach the cluster.
        group: its id.
    """

    def __init__(self, settings: KafkaSettings, group: str) -> None:
        super().__init__(settings)
        self._group = group
        self._future: Future[Any] | None = None

    def ask(self) -> None:
        """Send a request unless one is pending."""
        if self._future is None:
            seconds = self._deadline_seconds
            asked = self._client.describe_consumer_groups([self._group], request_timeout=seconds)
            self._future = asked[self._group]

    def answer(self) -> Sequence[Member] | None:
        """Return the static members, once per answer; None: there is no answer yet."""
        self._client.poll(0)
        future = self._future
        if future is None or not future.done():
            return None
        self._future = None
        try:
            described = future.result()
        except KafkaException as error:
            structlog.get_logger("eosframework.state").warning(
                "group_not_described", group=self._group, error=str(self._explained(error))
            )
            return None
        return [
            Member(member.group_instance_id, member.host)
            for member in described.members
            if member.group_instance_id
        ]

    def close(self) -> None:
        """Forget the pending request."""
        self._future = None
