"""The connections of one librdkafka client that broke, as its own log tells of them.

With `debug=broker` librdkafka logs each change of a connection's state, none of them suppressed.
The record is queued by the thread that finds a connection broken, before it gives the requests of
that connection back to be repeated (`rd_kafka_broker_fail`: `rd_kafka_broker_set_state`, then
`rd_kafka_bufq_purge`). So whoever has the answer to a repeated request finds the record in the
queue of the client, and one poll brings it. An idle client logs nothing.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Any, Protocol

DEBUG_CONTEXT = "broker"
"""Of librdkafka's `debug`: the one that tells of the states of connections."""

INFO_LEVEL, DEBUG_LEVEL = 6, 7
"""librdkafka's own levels, which are syslog's: the one that it has by default, and the last."""

_CHANGE = re.compile(r"(\S+): Broker changed state (\w+) -> (\w+)$")

_CONNECTED = frozenset({"UP", "REAUTH"})
"""States in which requests of the application are on their way; REAUTH is in the middle of UP."""


class Logger(Protocol):
    """What librdkafka's records go to, such as a `logging.Logger`."""

    def log(self, level: int, form: str, *arguments: Any) -> object:
        """Take a record, with a level as `logging` has it."""
        ...


class ConnectionLog:
    """The `logger` of a client: notes its connections, and passes on what its user asked for.

    Args:
        forward: the user's logger.
        forward_from: the lowest level that is passed on, as `logging` has it.

    Attributes:
        opened: how many connections came into use.
        broken: by broker, how many that were in use broke.
    """

    def __init__(self, forward: Logger, forward_from: int = logging.INFO) -> None:
        self.opened = 0
        self.broken: Counter[str] = Counter()
        self._forward = forward
        self._forward_from = forward_from

    def log(self, level: int, form: str, *arguments: Any) -> None:
        """Take a record of librdkafka: its facility, the client's name, and the text."""
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
