"""Writer headers: records to internal topics name the backfill task that wrote them.

Live, the tasks that write a repartition topic run at the same time, so its order is roughly that of
event time. A backfill's tasks write it one after the other, and the stage that reads it merges by
writer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eosframework.backfill.spark.spark_rows import WRITER_HEADER
from eosframework.errors import TransactionError
from eosframework.processing.ports import TransactionalOutput

_Headers = Sequence[tuple[str, bytes | None]] | None


class MarkedOutput:
    """A `TransactionalOutput` that adds a header to records of some topics.

    Args:
        output: the wrapped output.
        topics: the topics.
        writer: value of the header.
    """

    def __init__(self, output: TransactionalOutput, topics: frozenset[str], writer: str) -> None:
        self._output = output
        self._topics = topics
        self._header = WRITER_HEADER, writer.encode()

    @property
    def transactional_id(self) -> str:
        """The wrapped output's transactional id."""
        return self._output.transactional_id

    @property
    def produce(self) -> Callable[..., None]:
        """`produce(*output)` of the current producer; changes when it is recycled."""
        produce, topics, own = self._output.produce, self._topics, self._header

        def with_writer_header(
            topic: str,
            value: bytes | None,
            key: bytes | None,
            partition: int,
            encoded: Any,
            also_told: Any,
            timestamp: int,
            headers: _Headers,
        ) -> None:
            if topic in topics:
                headers = [*headers, own] if headers else [own]
            produce(topic, value, key, partition, encoded, also_told, timestamp, headers)

        return with_writer_header

    def explain(self, error: Exception) -> TransactionError:
        """Return the meaning of an exception from `produce`."""
        return self._output.explain(error)

    def begin(self) -> None:
        """Begin a transaction."""
        self._output.begin()

    def poll(self, timeout_seconds: float = 0) -> None:
        """Serve delivery reports, so that the producer's queue drains."""
        self._output.poll(timeout_seconds)

    def deliver(self) -> None:
        """Wait until the brokers have acknowledged all records."""
        self._output.deliver()
