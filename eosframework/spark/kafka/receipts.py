"""Receipts of a Kafka sink: a header on every record that names its shard and its row there.

A row has no input record in Kafka. Its origin is its shard, as a topic `sink.NAME` would have it,
and its offset is its position: the number of rows that the shard wrote before it, in all batches.
The sink's entry has the positions of all shards as of its last complete batch. So a missing
position is a lost row, and a repeated one a copy, as for receipts of workers
(`processing/transaction/receipts`). In place of a transaction a receipt has the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eosframework.processing.ports import Output
from eosframework.processing.transaction.receipts import Receipt, with_receipt
from eosframework.spark.sink_entry import SinkBatch, position


@dataclass(frozen=True, slots=True)
class ShardReceipts:
    """The receipts of one shard in one batch.

    Args:
        application: owner of the sink.
        sink: its name.
        shard: number of the shard.
        since: position at which receipts begin.
        base: position of the batch's first row.
        sequence: of the batch.
    """

    application: str
    sink: str
    shard: int
    since: int
    base: int
    sequence: int

    def added(self, outputs: Sequence[Output], first: int) -> list[Output]:
        """Return outputs with their receipts.

        Args:
            outputs: the records, in order.
            first: number of the first one within the batch, from 0.
        """
        place = self.base + first
        return [with_receipt(one, str(self._of(place + n))) for n, one in enumerate(outputs)]

    def _of(self, place: int) -> Receipt:
        number = place - self.since
        gap = min(number, 1)
        topic, sequence = receipts_topic(self.sink), self.sequence
        return Receipt(
            self.application, self.since, topic, self.shard, place, 0, 1, number, gap, sequence
        )


def receipts_of(application: str, sink: str, shard: int, batch: SinkBatch) -> ShardReceipts | None:
    """Return the receipts of a shard in an open batch; None: its rows get none."""
    if batch.receipts_since is None:
        return None
    since, base = position(batch.receipts_since, shard), position(batch.positions, shard)
    return ShardReceipts(application, sink, shard, since, base, batch.sequence)


def receipts_topic(sink: str) -> str:
    """Return the name that stands for a topic in the receipts of a sink."""
    return f"sink.{sink}"


def moved(positions: Sequence[int], counts: Mapping[int, int]) -> tuple[int, ...]:
    """Return the positions of shards that wrote more rows.

    Args:
        positions: of each shard, from 0.
        counts: number of rows by shard.
    """
    shards = max(len(positions), *(shard + 1 for shard in counts), 0)
    return tuple(position(positions, shard) + counts.get(shard, 0) for shard in range(shards))
