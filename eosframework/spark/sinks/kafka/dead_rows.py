"""Dead letters of rows: in the place of the record, in the forms of a topology's.

A row has no record in Kafka. As in receipts (`sink_log`) its origin is its shard, as a topic
`sink.NAME` would have it, and its offset the number of rows that the shard wrote before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eosframework.engine.failures.failure_handler import Site, dead_letter
from eosframework.engine.failures.failure_headers import HEADER_BATCH, Headers
from eosframework.spark.session.spark_rows import RowMessage
from eosframework.spark.sinks.kafka.sink_log import receipts_topic
from eosframework.spark.sinks.refused_rows import REASON, ROW
from eosframework.spark.sinks.sink_entry import SinkBatch, position
from eosframework.topology.graph.graph import OnError, Policy
from eosframework.transactions.ports import Output


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Makes the dead letters of a batch.

    Args:
        topic: for them.
        step: label of the sink that refused the rows.
        sink: name of the sink that writes them.
        batch: that has the rows.
        most_bytes: the largest record that the topic takes; None: unknown.
    """

    topic: str
    step: str
    sink: str
    batch: SinkBatch
    most_bytes: int | None

    def replace(
        self, outputs: list[Output], columns: Mapping[str, list[Any]], seen: Counter[int]
    ) -> None:
        """Put dead letters in the place of the records of refused rows.

        Args:
            outputs: successive records.
            columns: of their rows.
            seen: number of rows before them by shard; theirs are added.
        """
        for n, (shard, reason) in enumerate(zip(columns["shard"], columns[REASON], strict=True)):
            if reason is not None:
                outputs[n] = self._made(shard, seen[shard], outputs[n], reason, columns[ROW][n])
            seen[shard] += 1

    def _made(self, shard: int, row: int, output: Output, reason: str, text: str) -> Output:
        place = position(self.batch.positions, shard) + row
        headers: Headers = [*(output[7] or ()), (HEADER_BATCH, str(self.batch.batch).encode())]
        # The time of the row may be the reason, so the dead letter has that of its batch.
        opened = self.batch.written_at
        origin = receipts_topic(self.sink)
        message = RowMessage((origin, shard, place, output[2], text.encode(), opened, headers))
        site = Site(self.step, OnError(Policy.DEAD_LETTER, self.topic))
        return dead_letter(site, message, ValueError(f"the row {reason}"), opened, self.most_bytes)
