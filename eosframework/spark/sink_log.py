"""Reads and writes of a sink's entries: by its driver, and by the attempts of its shards."""

from __future__ import annotations

from dataclasses import dataclass

from eosframework.application.control_log import ControlLog
from eosframework.errors import InstanceFenced
from eosframework.processing.ports import Output
from eosframework.spark.sink_entry import (
    BatchIdentity,
    ShardProgress,
    SinkBatch,
    batch_key,
    shard_key,
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
        prefix = shards_prefix(self.sink)
        found = {
            int(key.removeprefix(prefix)): ShardProgress.from_entry(entry)
            for key, entry in self.log.settled(prefix).items()
        }
        return {shard: one for shard, one in found.items() if one.sequence == sequence}


@dataclass(frozen=True, slots=True)
class ShardLog:
    """The `TaskLog` of one shard in one batch; progress in earlier batches counts as none.

    Args:
        log: the control topic.
        sink: its name.
        shard: number of the shard.
        sequence: of the batch.
        batch: for messages.
        since: offset at which its entries may begin; None: it is not known.
    """

    log: ControlLog
    sink: str
    shard: int
    sequence: int
    batch: BatchIdentity
    since: int | None = None

    def read(self) -> ShardProgress | None:
        """Return the progress, once all transactions are decided.

        Raises:
            InstanceFenced: the batch is not the sink's open one any more.
        """
        keys = shard_key(self.sink, self.shard), batch_key(self.sink)
        entries = self.log.settled(batch_key(self.sink), keys, self.since)
        last = SinkBatch.from_entry(entries[keys[1]]) if keys[1] in entries else None
        if last is None or last.sequence != self.sequence or last.complete:
            raise InstanceFenced(
                f"shard {self.shard} of sink {self.sink!r}: {self.batch} is complete, or was given "
                f"up, since this attempt was started; another driver continues the sink, and this "
                f"attempt wrote nothing more"
            )
        found = entries.get(keys[0])
        return None if found is None else self._own(ShardProgress.from_entry(found))

    def watch(self) -> ShardProgress | None:
        """Return the decided progress, without waiting."""
        key = shard_key(self.sink, self.shard)
        found = self.log.decided(key, [key]).get(key)
        return None if found is None else self._own(ShardProgress.from_entry(found))

    def written_end(self) -> int:
        """Return the log end offset, past open transactions."""
        return self.log.written_end()

    def newest(self, since: int = 0) -> tuple[int, ShardProgress] | None:
        """Return the last written progress from an offset on, committed or not."""
        found = self.log.newest(shard_key(self.sink, self.shard), max(since, self.since or 0))
        if found is None or found[1] is None:
            return None
        progress = self._own(ShardProgress.from_entry(found[1]))
        return None if progress is None else (found[0], progress)

    def output(self, progress: ShardProgress) -> Output:
        """Return the record that commits progress within a transaction."""
        return self.log.output(shard_key(self.sink, self.shard), progress.to_entry())

    def _own(self, progress: ShardProgress) -> ShardProgress | None:
        """Return the progress unless it belongs to an earlier batch."""
        return None if progress.sequence < self.sequence else progress
