"""A partition that is carried into tables: its claim, and the rows that wait to be written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eosframework.errors import EosError
from eosframework.processing.worker_views import TaskView
from eosframework.records import TopicPartition
from eosframework.tables.row_conversion import RowMaker
from eosframework.tables.table_ports import Batch, Claim


class TaskState(StrEnum):
    """Where a partition's task is in its life."""

    UNCLAIMED = "unclaimed"
    RUNNING = "running"
    CLOSED = "closed"


@dataclass(slots=True)
class PartitionTask:
    """One partition: its claim, and the rows that wait to be written."""

    partition: TopicPartition
    maker: RowMaker
    state: TaskState = TaskState.UNCLAIMED
    batch: Batch | None = None
    end_reached: int = 0
    claim_at: float = 0.0
    attempts: int = 0
    overtaken: int = 0
    records: int = 0
    failure: EosError | None = None
    in_doubt: tuple[Batch, int] | None = None
    """What was being written when the database went away, with how many records it came from."""

    @property
    def position(self) -> int:
        """The next offset to read; 0 before it is known."""
        return self.batch.next_offset if self.batch else 0

    @property
    def may_have_more(self) -> bool:
        """Whether the partition is not read to its last stable offset, as far as is known."""
        return self.end_reached < self.position or self.batch is None

    @property
    def has_progress(self) -> bool:
        """Whether a write would move the position."""
        return self.batch is not None and self.batch.next_offset != self.batch.claim.next_offset

    def begin(self, claim: Claim, offset: int) -> None:
        """Begin a batch at `offset`; the first write of all stores it, rows or not."""
        self.batch = self.maker.empty(claim, offset)

    def drop(self, claim_at: float) -> None:
        """Forget rows and claim."""
        self.state, self.batch, self.failure = TaskState.UNCLAIMED, None, None
        self.records, self.end_reached, self.claim_at = 0, 0, claim_at

    def turned_out_written(self, claim: Claim) -> tuple[Batch, int] | None:
        """Return what was in doubt if `claim`, the next one, shows that it was written."""
        doubt, self.in_doubt = self.in_doubt, None
        if doubt is None:
            return None
        batch, _ = doubt
        is_next = claim.epoch == batch.claim.epoch + 1
        return doubt if is_next and claim.next_offset == batch.next_offset else None

    def view(self) -> TaskView:
        """Return what there is to see of it."""
        read_to = {self.partition: max(self.position, self.end_reached)} if self.batch else {}
        return TaskView(str(self.partition), self.state.value, read_to)
