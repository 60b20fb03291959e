"""Reads and writes of a sink's entries: by its driver, and by the attempts of its shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eosframework.application.control_log import ControlLog
from eosframework.errors import InstanceFenced
from eosframework.processing.ports import Output
from eosframework.spark.sink_entry import (
    BatchIdentity,
    ShardProgress,
    SinkBatch,
    batch_key,
    shard_key,
    shard_of,
    shards_prefix,
)

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
