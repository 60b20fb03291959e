"""Broken connections of one librdkafka client, read from its own log.

With `debug=broker` librdkafka logs each change of a connection's state, without suppressing any.
The thread that finds a connection broken queues the record before it returns that connection's
requests to the retry queue (`rd_kafka_broker_fail`: `rd_kafka_broker_set_state`, then
`rd_kafka_bufq_purge`). So when a retried request is answered, the record is in the client's queue,
and one poll delivers it. An idle client logs nothing.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Any, Protocol

DEBUG_CONTEXT = "broker"
"""The context of librdkafka's `debug` that logs connection states."""

INFO_LEVEL, DEBUG_LEVEL = 6, 7
"""librdkafka's own levels, which are syslog's: its default and the last one."""

_CHANGE = re.compile(r"(\S+): Broker changed state (\w+) -> (\w+)$")

_CONNECTED = frozenset({"UP", "REAUTH"})
"""States with application requests in flight; REAUTH occurs in the middle of UP."""


class Logger(Protocol):
    """A receiver of librdkafka's log records, such as a `logging.Logger`."""

    def log(self, level: int, form: str, *arguments: Any) -> object:
        """Handle a record, with a level of `logging`."""
        ...


class ConnectionLog:
    """The `logger` of a client: counts connections, and forwards the records its user wants.

    Args:
        forward: the user's logger.
        forward_from: the lowest level to forward, as in `logging`.

    Attributes:
        opened: the number of connections that came into use.
        broken: by broker, the number of used connections that broke.
    """

    def __init__(self, forward: Logger, forward_from: int = logging.INFO) -> None:
        self.opened = 0
        self.broken: Counter[str] = Counter()
        self._forward = forward
        self._forward_from = forward_from

    def log(self, level: int, form: str, *arguments: Any) -> None:
        """Handle a record of librdkafka: its facility, the client's name, and the text."""
        if arguments and arguments[0] == "STATE":
            self._note(str(arguments[-1]))
        if level >= self._forward_from:
            self._forward.log(level, form, *arguments)

    def _note(self, text: str) -> None:
        change = _CHANGE.search(text)
        if change is None:
            self.broken[f"cannot read {text!r}"] += 1
            return
        broker, before, after = change.groups()
        if before not in _CONNECTED and after in _CONNECTED:
            self.opened += 1
        elif before in _CONNECTED and after not in _CONNECTED:
            self.broken[broker] += 1
