"""A table sink's task: one partition with its claim and the rows that are not written yet."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eosframework.errors import EosError
from eosframework.processing.worker_views import TaskView
from eosframework.records import TopicPartition
from eosframework.tables.row_conversion import RowMaker
from eosframework.tables.table_ports import Batch, Claim


class TaskState(StrEnum):
    """States of a partition's task."""

    UNCLAIMED = "unclaimed"
    RUNNING = "running"
    CLOSED = "closed"


@dataclass(slots=True)
class PartitionTask:
    """One partition with its claim and the rows that are not written yet."""

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
    """Batch whose COMMIT got no answer, and the number of records that it was made from."""

    @property
    def position(self) -> int:
        """The next offset to read; 0 before it is known."""
        return self.batch.next_offset if self.batch else 0

    @property
    def may_have_more(self) -> bool:
        """True unless the partition is known to be read to its last stable offset."""
        return self.end_reached < self.position or self.batch is None

    @property
    def has_progress(self) -> bool:
        """True if a write would change the position."""
        return self.batch is not None and self.batch.next_offset != self.batch.claim.next_offset

    def begin(self, claim: Claim, offset: int) -> None:
        """Begin a batch at `offset`; a partition's first write stores it even without rows."""
        self.batch = self.maker.empty(claim, offset)

    def drop(self, claim_at: float) -> None:
        """Discard rows and claim.

        Args:
            claim_at: clock time from which the partition may be claimed again, in seconds.
        """
        self.state, self.batch, self.failure = TaskState.UNCLAIMED, None, None
        self.records, self.end_reached, self.claim_at = 0, 0, claim_at

    def confirmed_batch(self, claim: Claim) -> tuple[Batch, int] | None:
        """Return the batch in doubt if the next claim, `claim`, shows that it was written."""
        doubt, self.in_doubt = self.in_doubt, None
        if doubt is None:
            return None
        batch, _ = doubt
        is_next = claim.epoch == batch.claim.epoch + 1
        return doubt if is_next and claim.next_offset == batch.next_offset else None

    def view(self) -> TaskView:
        """Return a snapshot for other threads."""
        read_to = {self.partition: max(self.position, self.end_reached)} if self.batch else {}
        return TaskView(str(self.partition), self.state.value, read_to)
