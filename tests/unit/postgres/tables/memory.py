"""A row store in memory, with faults that a test chooses: for the worker's decisions only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from eosframework.errors import RowRefused, Superseded
from eosframework.postgres.tables.table_ports import Batch, Claim, Deletion, RefusedRow, Written
from eosframework.records import TopicPartition


@dataclass
class MemoryStore:
    """A RowStore.

    Args:
        write_faults: for the next writes in turn: the error, and whether it was written all the
            same; None: no fault.
        refuses: tells whether the database refuses a row.
    """

    rows: dict[str, list[Any]] = field(default_factory=dict)
    positions: dict[TopicPartition, int | None] = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    refused: list[RefusedRow] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    claim_faults: list[Exception] = field(default_factory=list)
    write_faults: list[tuple[Exception, bool] | None] = field(default_factory=list)
    refuses: Callable[[Any], bool] = lambda row: False

    def claim(self, partitions: Sequence[TopicPartition]) -> list[Claim]:
        self.calls.append("claim")
        if self.claim_faults:
            raise self.claim_faults.pop(0)
        for partition in partitions:
            self.epochs[partition] = self.epochs.get(partition, 0) + 1
        return [Claim(p, self.epochs[p], self.positions.get(p)) for p in partitions]

    def write(self, batches: Sequence[Batch]) -> Written:
        self.calls.append("write")
        fault = self.write_faults.pop(0) if self.write_faults else None
        if fault is not None and not fault[1]:
            raise fault[0]
        self._check(batches)
        for batch in batches:
            self.positions[batch.claim.partition] = batch.next_offset
            self.refused += batch.refused
            for table in batch.tables:
                kept = self.rows.setdefault(table.table.table, [])
                for row in table.rows:
                    kept.append(("deleted", row.keys) if isinstance(row, Deletion) else row)
        if fault is not None:
            raise fault[0]
        return Written()

    def _check(self, batches: Sequence[Batch]) -> None:
        gone = [
            batch.claim.partition
            for batch in batches
            if self.epochs[batch.claim.partition] != batch.claim.epoch
            or self.positions.get(batch.claim.partition) != batch.claim.next_offset
        ]
        if gone:
            raise Superseded("claimed by another", partitions=gone)
        for batch in batches:
            for table in batch.tables:
                for row, origin in zip(table.rows, table.origins, strict=True):
                    if self.refuses(row):
                        raise RowRefused(
                            f"refused {row}",
                            partition=batch.claim.partition,
                            offset=origin.offset(),
                        )

    def close(self) -> None:
        self.calls.append("close")
