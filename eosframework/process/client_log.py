"""Records of librdkafka's own log: the connections that failed, each broker's once in a while."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

CLIENT_LOGGER = "eosframework.kafka.librdkafka"
"""Logger of librdkafka's own records."""

REPEAT_SECONDS = 30.0

BOOTSTRAP = "bootstrap"
"""Stands for the number of a broker that was connected to by its address in the settings."""

_CONNECTION = re.compile(
    r"(?:(?:^|\s|/)(?P<address>[^\s/]+:\d+)/(?P<broker>\d+|bootstrap)"
    r"|(?P<coordinator>Txn|Group)Coordinator: (?P<its_address>[^\s/]+:\d+)): "
    r"(?P<reason>.*?)(?: \(after .*)?$",
    re.DOTALL,
)
COORDINATOR = "coordinator"
"""Stands for the number of a broker that is connected to as a coordinator."""


@dataclass(frozen=True, slots=True)
class FailedConnection:
    """A connection that failed, as librdkafka writes it: `HOST:PORT/BROKER: REASON`.

    That of a coordinator is `TxnCoordinator: HOST:PORT: REASON`.
    """

    address: str
    broker: str
    reason: str

    @classmethod
    def parse(cls, text: str) -> FailedConnection | None:
        """Return the connection that a text of librdkafka is about; None: of none."""
        found = _CONNECTION.search(text)
        if found is None:
            return None
        if found["coordinator"]:
            return cls(found["its_address"], COORDINATOR, found["reason"])
        return cls(found["address"], found["broker"], found["reason"])

    def __str__(self) -> str:
        return f"{self.address}/{self.broker}: {self.reason}"


def name_failed_connection(
    _logger: Any, _name: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Make an event with fields of librdkafka's record of a failed connection."""
    if event.get("logger") == CLIENT_LOGGER and (text := str(event["event"])).startswith("FAIL "):
        failed = FailedConnection.parse(text)
        if failed is not None:
            event.update(
                event="connection_failed",
                broker=failed.address,
                reason=failed.reason,
                repeated_after_seconds=REPEAT_SECONDS,
            )
    return event


class Repetitions(logging.Filter):
    """Limits librdkafka's records, since each of its clients retries 20 times a second.

    One record of each kind passes every `REPEAT_SECONDS`. Records of failed connections are of the
    same kind if the broker's address is the same, whichever client connects; others if their first
    two words, the facility and the client, are the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is written."""
        if record.name != CLIENT_LOGGER:
            return True
        text = record.getMessage()
        failed = FailedConnection.parse(text)
        kind = failed.address if failed else " ".join(text.split(maxsplit=2)[:2])
        now = time.monotonic()
        if now < self._next.get(kind, 0):
            return False
        self._next[kind] = now + REPEAT_SECONDS
        return True
