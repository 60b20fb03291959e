"""One attempt to write a partition's rows to tables: a table writer over Spark's rows.

    B1. a successor watches the position; it continues only if that stands still, or no session
        that could move it is connected, and returns if the position is at the end
    B2. claim the position (`position_claims`, P1 and P2), as long as the patience lasts
    B3. skip rows that are in the tables already; convert the rest
    B4. write rows and position (P3 and P4). If the claim is lost, B2 shows the outcome, and the
        records that are not in the tables are converted again
    B5. at the end of the rows, move the position to the end of the range

Records are kept until they are known to be in the database. Live table writers resume from the same
position.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from eosframework.config import Settings
from eosframework.engine.task.measurements import Measures
from eosframework.errors import DatabaseUnavailable, RunError, SchemaRegistryUnavailable
from eosframework.postgres.tables.position_claims import ClaimPolicy, PositionClaims
from eosframework.postgres.tables.table_ports import Claim, RowMaker, RowStore, Seen
from eosframework.records import TopicPartition
from eosframework.spark.executor.attempt_context import Run
from eosframework.transactions.ports import Message
from eosframework.transactions.task_attempts import SignOfLife, wait_for_turn

PATIENCE_SECONDS = 300.0
"""Longest wait for an unavailable database; then Spark may retry the task."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals and sizes of writes.

    Args:
        batch_rows: rows that are written before the interval has passed.
        kept_records: largest number of unwritten records.
        longest_pause_seconds: between two attempts to reach an unavailable database.
        stall_seconds: time without progress after which another attempt counts as lost.
    """

    commit_interval_seconds: float
    batch_rows: int
    kept_records: int
    longest_pause_seconds: float
    stall_seconds: float

    @classmethod
    def of(cls, settings: Settings) -> Pace:
        """Return the pace from the settings."""
        return cls(
            commit_interval_seconds=settings.backfill.commit_interval_seconds,
            batch_rows=settings.database.batch_rows,
            kept_records=settings.backfill.chunk_records,
            longest_pause_seconds=settings.database.longest_pause_seconds,
            stall_seconds=settings.backfill.stall_seconds,
        )

    @property
    def claim_policy(self) -> ClaimPolicy:
        """Limited patience, because Spark repeats a task; a successor ends the attempt at once."""
        return ClaimPolicy(
            longest_pause_seconds=self.longest_pause_seconds,
            patience_seconds=PATIENCE_SECONDS,
            resume="start the job again to resume",
            superseded_pause_seconds=0.0,
            superseded_in_a_row=1,
            successor="another attempt of its task continues, and this one wrote nothing more",
        )


BeginAt = Callable[[TopicPartition, int, int], int]
"""Takes a partition, its claimed position and the begin of the range."""


class TableAttempt:
    """Writes the rows of one partition.

    Args:
        partition: of a table sink's topic.
        start: begin of the range.
        end: end of the range; the position afterwards.
        maker: converts records of the topic to rows.
        store: the database.
        pace: intervals and sizes of writes.
        look: returns the activity of other attempts, without a claim.
        begin_at: returns where the rows after a claimed position begin; by default a position
            before the range is refused (`refuse_gap`).
        clock: seconds, monotonic.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        maker: RowMaker,
        store: RowStore,
        pace: Pace,
        look: Callable[[], Seen],
        *,
        begin_at: BeginAt | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._partition = partition
        self._start = start
        self._end = end
        self._pace = pace
        self._look = look
        self._begin_at = begin_at or refuse_gap
        self._clock = clock
        self._sleep = sleep
        self._kept: list[Message] = []
        self._read_to = start
        self._confirmed = start
        self._begun_at = clock()
        self._measures = Measures()
        logger = structlog.get_logger("eosframework.backfill").bind(partition=str(partition))
        self._claims = PositionClaims(
            store,
            pace.claim_policy,
            self._begin,
            measures=self._measures,
            clock=clock,
            logger=logger,
        )
        self._task = self._claims.add(partition, maker)

    @property
    def written(self) -> int:
        """Number of rows that this attempt is known to have written."""
        return sum(self._measures.written.values())

    def kept(self, offset: int) -> Message | None:
        """Return a message that is not known to be in the tables; None: there is none."""
        return next((one for one in self._kept if one.offset() == offset), None)

    def run(self, rows: Iterable[Run], attempt_number: int) -> int:
        """Write all rows, and return the number that this attempt has written.

        Args:
            rows: of the partition, in offset order, including those already in the tables.
            attempt_number: 0 only if no other attempt of the partition can be healthy.

        Raises:
            InstanceFenced: another attempt has the partition.
            RecordFailed: a record yields no row, or the database refuses it; the rows before it are
                written.
            RunError: the range begins after the tables' position, or the database stays
                unavailable.
        """
        if attempt_number > 0 and self._is_done_by_another():
            return 0
        self._claim()
        if self._task.batch is not None and self._is_end(self._task.batch.claim.next_offset):
            return 0
        for _, messages in rows:
            self._take_in(messages)
        self._read_to = max(self._read_to, self._end)
        self._move_on()
        self._write()
        return self.written

    def _is_done_by_another(self) -> bool:
        """Wait until the partition's owner stands still or is done (B1).

        Raises:
            RunError: the database stays unavailable.
        """
        is_first = True

        def look() -> SignOfLife:
            nonlocal is_first
            while True:
                try:
                    seen = self._claims.ask(self._look)
                    break
                except DatabaseUnavailable:
                    if not is_first:
                        raise  # A failed look says nothing of the other attempt.
                    self._sleep(self._claims.wait_seconds())
            is_first = False
            return SignOfLife(seen, ended=not seen.connected or self._is_end(seen.next_offset))

        last = wait_for_turn(look, self._pace.stall_seconds, clock=self._clock, sleep=self._sleep)
        return isinstance(last.mark, Seen) and self._is_end(last.mark.next_offset)

    def _is_end(self, position: int | None) -> bool:
        return position is not None and position >= self._end

    # --- the claim: B2 --------------------------------------------------------------------------

    def _claim(self) -> None:
        """Claim the position unless it is held, and convert kept records that are not written.

        Raises:
            RunError: the database stays unavailable, or lacks records before the range.
        """
        if self._task.is_held:
            return
        while not self._task.is_held:
            self._sleep(self._claims.wait_seconds())
            self._claims.claim_due()
        self._begun_at = self._clock()
        self._kept = [m for m in self._kept if m.offset() >= self._task.position]
        if self._kept:
            self._add(self._kept)
        self._move_on()

    def _begin(self, claims: Sequence[Claim]) -> dict[TopicPartition, int]:
        """Return the position; the rows that Spark gave before it cannot be read again (P2)."""
        [claim] = claims
        position = self._start if claim.next_offset is None else claim.next_offset
        position = self._begin_at(self._partition, position, self._start)
        if position < self._confirmed:
            raise RunError(
                f"{self._partition}: the database went back from offset {self._confirmed} to "
                f"{position}, as after a restore, or after the promotion of an incomplete replica; "
                f"start the job again to resume there"
            )
        self._confirmed = position
        return {self._partition: position}

    # --- rows: B3 -------------------------------------------------------------------------------

    def _take_in(self, messages: Sequence[Message]) -> None:
        """Keep and convert messages; write when enough of them wait.

        Raises:
            RecordFailed: a record gives no row and the policy is to fail; earlier ones are written.
        """
        fresh = [m for m in messages if m.offset() >= self._task.position]
        if not fresh:
            return
        self._kept += fresh
        self._read_to = fresh[-1].offset() + 1
        self._add(fresh)
        batch = self._task.batch
        if (
            batch is None
            or self._task.failure is not None
            or self._clock() - self._begun_at >= self._pace.commit_interval_seconds
            or batch.size >= self._pace.batch_rows
            or len(self._kept) >= self._pace.kept_records
        ):
            self._write()

    def _add(self, messages: Sequence[Message]) -> None:
        """Convert messages; without the schema registry, discard them and claim again later."""
        try:
            self._task.add(messages)
        except SchemaRegistryUnavailable as error:
            self._claims.discard(self._task, error)

    def _move_on(self) -> None:
        """Extend the batch to the end of what was read: the last records may be missing."""
        batch = self._task.batch
        if batch is not None and self._task.failure is None:
            batch.next_offset = max(batch.next_offset, self._read_to)

    # --- writing: B4 ----------------------------------------------------------------------------

    def _write(self) -> None:
        """Write until all that was read is in the tables."""
        while not self._task.is_held or self._task.has_progress or self._kept:
            self._claim()
            self._claims.write([self._task])
            if self._task.is_held:
                self._confirmed = self._task.position
                self._kept.clear()
        self._begun_at = self._clock()


def refuse_gap(partition: TopicPartition, position: int, start: int) -> int:
    """Return the position; raise if records between it and the range would be left out.

    Raises:
        RunError: names both.
    """
    if position < start:
        raise RunError(
            f"{partition}: the tables have the rows before offset {position}, and the range "
            f"begins at {start}: the records between them would never be written. Start a job with "
            f"--from '{partition}={position}', or set the position: eosframework positions set APP "
            f"--tables '{partition}={start}'"
        )
    return position
