"""Reads and writes of a sink's entries: by its driver, and by the attempts of its shards.

Receipts of a Kafka sink: a header on every record that names its shard and its row there.
A row has no input record in Kafka. Its origin is its shard, as a topic `sink.NAME` would have it,
and its offset is its position: the number of rows that the shard wrote before it, in all batches.
The sink's entry has the positions of all shards as of its last complete batch. So a missing
position is a lost row, and a repeated one a copy, as for receipts of workers
(`engine/task/receipts`). In place of a transaction a receipt has the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eosframework.application.control_log import ControlLog
from eosframework.engine.task.receipts import Receipt, with_receipt
from eosframework.errors import InstanceFenced
from eosframework.spark.sinks.sink_entry import (
    BatchIdentity,
    ShardProgress,
    SinkBatch,
    batch_key,
    position,
    shard_key,
    shard_of,
    shards_prefix,
)
from eosframework.transactions.ports import Output


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


SETTLE_SECONDS = 120.0
"""Longest wait for an open transaction: brokers look for expired ones every ten seconds."""


@dataclass(frozen=True, slots=True)
class BatchLog:
    """The `TaskLog` of a sink's batches, for its driver."""

    log: ControlLog
    sink: str

    def read(self) -> SinkBatch | None:
        """Return the last batch, once all transactions are decided."""
        key = batch_key(self.sink)
        found = self.log.settled(key, [key]).get(key)
        return None if found is None else SinkBatch.from_entry(found)

    def watch(self) -> SinkBatch | None:
        """Return the decided last batch, without waiting."""
        key = batch_key(self.sink)
        found = self.log.decided(key, [key]).get(key)
        return None if found is None else SinkBatch.from_entry(found)

    def written_end(self) -> int:
        """Return the log end offset, past open transactions."""
        return self.log.written_end()

    def newest(self, since: int = 0) -> tuple[int, SinkBatch] | None:
        """Return the last written batch from an offset on, committed or not."""
        found = self.log.newest(batch_key(self.sink), since)
        if found is None or found[1] is None:
            return None
        return found[0], SinkBatch.from_entry(found[1])

    def output(self, progress: SinkBatch) -> Output:
        """Return the record that commits a batch within a transaction."""
        return self.log.output(batch_key(self.sink), progress.to_entry())

    def shards_of(self, sequence: int) -> dict[int, ShardProgress]:
        """Return the progress of all shards in a batch, once all transactions are decided."""
        found = {
            shard: ShardProgress.from_entry(entry)
            for key, entry in self.log.settled(shards_prefix(self.sink)).items()
            if (shard := shard_of(self.sink, key)) is not None
        }
        return {shard: one for shard, one in found.items() if one.sequence == sequence}


@dataclass(frozen=True, slots=True)
class ShardsLog:
    """The progress of the shards of one batch; progress in earlier batches counts as none.

    Args:
        log: the control topic.
        sink: its name.
        sequence: of the batch.
        batch: for messages.
        since: offset at which its entries may begin; None: it is not known.
    """

    log: ControlLog
    sink: str
    sequence: int
    batch: BatchIdentity
    since: int | None = None

    def read(self, shards: Sequence[int]) -> dict[int, ShardProgress]:
        """Return the progress of shards, once all transactions are decided.

        Raises:
            InstanceFenced: the batch is not the sink's open one any more.
        """
        key = batch_key(self.sink)
        keys = [key, *(shard_key(self.sink, shard) for shard in shards)]
        entries = self.log.settled(key, keys, self.since)
        if key not in entries or not self._is_open(entries[key]):
            raise InstanceFenced(
                f"sink {self.sink!r}: {self.batch} is complete, or was given up, since this "
                f"attempt at shard {shards[0]} was started; another driver continues the sink, and "
                f"this attempt wrote nothing more"
            )
        return self._own(shards, entries)

    def watch(self, shards: Sequence[int]) -> dict[int, ShardProgress]:
        """Return the decided progress of shards, without waiting."""
        keys = [shard_key(self.sink, shard) for shard in shards]
        return self._own(shards, self.log.decided(shards_prefix(self.sink), keys))

    def written_end(self) -> int:
        """Return the log end offset, past open transactions."""
        return self.log.written_end()

    def newest(self, shards: Sequence[int], since: int = 0) -> dict[int, tuple[int, ShardProgress]]:
        """Return the newest progress of shards from an offset on, committed or not."""
        keys = {shard_key(self.sink, shard) for shard in shards}
        found = self.log.newest_of(keys, max(since, self.since or 0))
        entries = {one: entry for one, (_, entry) in found.items() if entry is not None}
        return {
            shard: (found[shard_key(self.sink, shard)][0], progress)
            for shard, progress in self._own(shards, entries).items()
        }

    def _is_open(self, entry: Any) -> bool:
        last = SinkBatch.from_entry(entry)
        return last.sequence == self.sequence and not last.complete

    def _own(self, shards: Sequence[int], entries: Mapping[str, Any]) -> dict[int, ShardProgress]:
        """Return the progress in entries, unless it belongs to an earlier batch."""
        keys = {shard: shard_key(self.sink, shard) for shard in shards}
        found = {
            shard: ShardProgress.from_entry(entries[key])
            for shard, key in keys.items()
            if key in entries
        }
        return {shard: one for shard, one in found.items() if one.sequence >= self.sequence}


@dataclass(frozen=True, slots=True)
class ShardLog:
    """The `TaskLog` of one shard."""

    shards: ShardsLog
    shard: int

    def read(self) -> ShardProgress | None:
        """Return the progress, once all transactions are decided.

        Raises:
            InstanceFenced: the batch is not the sink's open one any more.
        """
        return self.shards.read([self.shard]).get(self.shard)

    def watch(self) -> ShardProgress | None:
        """Return the decided progress, without waiting."""
        return self.shards.watch([self.shard]).get(self.shard)

    def written_end(self) -> int:
        """Return the log end offset, past open transactions."""
        return self.shards.written_end()

    def newest(self, since: int = 0) -> tuple[int, ShardProgress] | None:
        """Return the last written progress from an offset on, committed or not."""
        return self.shards.newest([self.shard], since).get(self.shard)

    def output(self, progress: ShardProgress) -> Output:
        """Return the record that commits progress within a transaction."""
        key = shard_key(self.shards.sink, self.shard)
        return self.shards.log.output(key, progress.to_entry())
