"""Decides whether a producer may still have a frame on its way to a broker: a straggler.

librdkafka repeats a request by itself when its connection breaks, and the caller sees success.
The first frame may arrive later, and the brokers then take it for part of the next transaction.
What tells is the producer's own log of its connections (`connection_log`), read without a wait.

Elapsed time is no sign, and neither is `txretries` of the statistics, which rises in healthy
transactions. Statistics have the breaks, too, but a sample of each producer lists all partitions
of its topics, and librdkafka makes it whether it is asked for or not (ADR 18).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from eosframework.kafka.client.connection_log import ConnectionLog

POLLS = 100
"""A callback that raises ends a poll early, with the rest still queued."""


class Suspicion:
    """What is known about the connections of one producer.

    Args:
        connections: of the producer.
        serve: polls the producer once, without a wait, and tells whether everything that was
            queued has been served.
    """

    def __init__(self, connections: ConnectionLog, serve: Callable[[], bool]) -> None:
        self._connections = connections
        self._serve = serve
        self._known: Counter[str] = Counter()

    def faults(self) -> Mapping[str, int] | None:
        """Return the faults that make the producer suspect; None: no frame can be on its way.

        To be called after the last call of a transaction has returned: a break because of which
        librdkafka repeated a request of the transaction is in the queue by then. A producer of
        which no connection was ever seen has no log that could be trusted.
        """
        if not self._all_served():
            return {"its log could not be read": 1}
        if not self._connections.opened:
            return {"its log tells of no connection": 1}
        return (self._connections.broken - self._known) or None

    def take_faults_as_known(self) -> None:
        """Forget what broke until now: before the first transaction nothing could be late for it.

        A late InitProducerId raises the epoch of the producer that sent it, which is fenced then.
        """
        if self._all_served():
            self._known = self._connections.broken.copy()

    def _all_served(self) -> bool:
        return any(self._serve() for _ in range(POLLS))
