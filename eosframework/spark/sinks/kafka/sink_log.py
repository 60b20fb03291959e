"""The entries of a sink as owned keys: of its driver, and of the attempts at its shards.

Receipts of a Kafka sink: a header on every record that names its shard and its row there.
A row has no input record in Kafka. Its origin is its shard, as a topic `sink.NAME` would have it,
and its offset is its position: the number of rows that the shard wrote before it, in all batches.
The sink's entry has the positions of all shards as of its last complete batch. So a missing
position is a lost row, and a repeated one a copy, as for receipts of workers
(`engine/task/receipts`). In place of a transaction a receipt has the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eosframework.application.journal import KafkaJournal
from eosframework.engine.task.receipts import Receipt, with_receipt
from eosframework.errors import InstanceFenced
from eosframework.spark.sinks.sink_entry import (
    ShardProgress,
    SinkBatch,
    batch_key,
    position,
    shard_key,
    shard_of,
    shards_prefix,
)
from eosframework.transactions.ports import Output
from eosframework.transactions.session.owned_keys import Claim
from eosframework.txnid import TransactionalId

LENGTHS_BYTES = 4
"""The lengths of a receipt's name and value, and what it may add to that of its record."""


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


def receipt_bytes(application: str, sink: str) -> int:
    """Return the most bytes that a receipt adds to a record."""
    far = 2**40
    shard = ShardReceipts(application, sink, shard=far, since=far, base=2 * far, sequence=far)
    [made] = shard.added([("", None, None, -1, None, None, 0, None)], far)
    return sum(len(name) + len(value or b"") + LENGTHS_BYTES for name, value in made[7] or ())


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


LOST = "What the sink has committed is unknown: use a new checkpoint and another sink name"


def batch_claim(application: str, sink: str) -> Claim[SinkBatch]:
    """Return the claim of a sink by its driver; its progress is the last batch."""
    return Claim(
        str(TransactionalId.sink_driver(application, sink)),
        f"sink {sink!r} of application {application!r}",
        batch_key(sink),
        SinkBatch.from_entry,
        SinkBatch.to_entry,
        lambda batch: batch.attempt,
    )


def shard_claim(application: str, sink: str, shard: int, sequence: int) -> Claim[ShardProgress]:
    """Return the claim of a shard; progress in batches before `sequence` counts as none."""

    def read(entry: Any) -> ShardProgress | None:
        progress = ShardProgress.from_entry(entry)
        return progress if progress.sequence >= sequence else None

    return Claim(
        str(TransactionalId.sink(application, sink, shard)),
        f"shard {shard} of sink {sink!r} of application {application!r}",
        shard_key(sink, shard),
        read,
        ShardProgress.to_entry,
        lambda progress: progress.attempt,
    )


def open_check(sink: str, batch: SinkBatch) -> dict[str, Callable[[Any], None]]:
    """Return the check that a batch is still the open one of its sink, by key; see `OwnedKeys`."""

    def check(entry: Any) -> None:
        last = None if entry is None else SinkBatch.from_entry(entry)
        if last is None or last.sequence != batch.sequence or last.complete or last.given_up:
            raise InstanceFenced(
                f"sink {sink!r}: {batch.batch} is complete, or was given up, since this attempt "
                f"was started; another driver continues the sink, and this attempt wrote nothing "
                f"more"
            )

    return {batch_key(sink): check}


def shards_in(journal: KafkaJournal, sink: str, sequence: int) -> dict[int, ShardProgress]:
    """Return the progress of all shards in a batch, once all transactions are decided."""
    return progress_in(journal.settled_under(shards_prefix(sink)), sink, sequence)


def progress_in(entries: Mapping[str, Any], sink: str, sequence: int) -> dict[int, ShardProgress]:
    """Return the progress of the shards in a batch that some entries have."""
    found = {
        shard: ShardProgress.from_entry(entry)
        for key, entry in entries.items()
        if (shard := shard_of(sink, key)) is not None
    }
    return {shard: one for shard, one in found.items() if one.sequence == sequence}
