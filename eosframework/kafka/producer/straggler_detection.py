"""Straggler detection: finds producers that may still have a request in flight.

librdkafka retries a request by itself when its connection breaks, and the caller sees success. The
first request may arrive later, and the brokers then take it for part of the next transaction. The
producer's own connection log shows such breaks (`connection_log`), and is read without a wait.

Elapsed time is no sign, and neither is `txretries` of the statistics, which rises in healthy
transactions. Statistics contain the breaks, too, but a sample of each producer lists all partitions
of its topics, and librdkafka makes it whether it is read or not (ADR 18).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from eosframework.kafka.client.connection_log import ConnectionLog

POLLS = 100
"""A callback that raises ends a poll early, with the rest still queued."""


class StragglerDetection:
    """Connection faults of one producer since its last check.

    Args:
        connections: of the producer.
        serve: polls the producer once, without a wait; True if the whole queue was served.
    """

    def __init__(self, connections: ConnectionLog, serve: Callable[[], bool]) -> None:
        self._connections = connections
        self._serve = serve
        self._known: Counter[str] = Counter()

    def faults(self) -> Mapping[str, int] | None:
        """Return the faults that make the producer suspect; None: no request can be in flight.

        Call it after the last call of a transaction has returned: the record of a break because of
        which librdkafka retried a request of the transaction is in the queue by then. The log of a
        producer that never logged a connection cannot be trusted.
        """
        if not self._all_served():
            return {"its log could not be read": 1}
        if not self._connections.opened:
            return {"its log shows no connection": 1}
        return (self._connections.broken - self._known) or None

    def ignore_earlier_faults(self) -> None:
        """Ignore earlier faults: before the first transaction no request could be late for it.

        A late InitProducerId raises the epoch of the producer that sent it, which is fenced then.
        """
        if self._all_served():
            self._known = self._connections.broken.copy()

    def _all_served(self) -> bool:
        return any(self._serve() for _ in range(POLLS))
