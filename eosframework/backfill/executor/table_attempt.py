"""One attempt to write a partition's rows to tables: a table writer over Spark's rows.

    B1. a successor watches the position; it continues only if that stands still, or no session
        that could move it is connected, and returns if the position is at the end
    B2. claim: increment the epoch of the position and read it, in one statement; it waits for an
        open transaction, and from then on no other attempt can write
    B3. skip rows that are in the tables already; convert the rest
    B4. write rows and position in one transaction of the database
    B5. decide the outcome: written, continue; unavailable or unknown, repeat B2, which shows it;
        overtaken, end: another attempt has the partition; refused, write the rows before it and end
    B6. at the end of the rows, move the position to the end of the range

Records are kept until they are known to be in the database. Live table writers resume from the same
position.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import structlog

from eosframework import failpoints
from eosframework.backfill.executor.attempt_takeover import SignOfLife, wait_for_turn
from eosframework.backfill.executor.chunk import Run
from eosframework.config import Settings
from eosframework.errors import (
    DatabaseUnavailable,
    InstanceFenced,
    RecordFailed,
    RowRefused,
    RunError,
    Superseded,
)
from eosframework.processing.ports import Message
from eosframework.records import TopicPartition
from eosframework.tables.row_conversion import RowMaker
from eosframework.tables.table_ports import Batch, Claim, RowStore, Seen

PATIENCE_SECONDS = 300.0
"""Longest wait for an unavailable database; then Spark may retry the task."""

FIRST_PAUSE_SECONDS = 0.2


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
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.written = 0
        self._partition = partition
        self._start = start
        self._end = end
        self._maker = maker
        self._store = store
        self._pace = pace
        self._look = look
        self._clock = clock
        self._sleep = sleep
        self._kept: list[Message] = []
        self._confirmed = start
        self._begun_at = clock()
        self._events = structlog.get_logger("eosframework.backfill").bind(partition=str(partition))

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
        batch = self._claimed()
        if self._is_end(batch.claim.next_offset):
            return 0
        for _, messages in rows:
            batch = self._take_in(batch, messages)
        batch.next_offset = max(batch.next_offset, self._end)
        self._write(batch)
        return self.written

    def _is_done_by_another(self) -> bool:
        """Wait until the partition's owner stands still or is done (B1)."""

        def look() -> SignOfLife:
            seen = self._look()
            return SignOfLife(seen, ended=not seen.connected or self._is_end(seen.next_offset))

        last = wait_for_turn(look, self._pace.stall_seconds, clock=self._clock, sleep=self._sleep)
        return isinstance(last.mark, Seen) and self._is_end(last.mark.next_offset)

    def _is_end(self, position: int | None) -> bool:
        return position is not None and position >= self._end

    # --- the claim: B2 --------------------------------------------------------------------------

    def _claimed(self) -> Batch:
        """Claim, and return the empty batch at the position.

        Raises:
            RunError: the database stays unavailable, or lacks records before the range.
        """
        given_up_at = self._clock() + PATIENCE_SECONDS
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            try:
                [claim] = self._store.claim([self._partition])
                break
            except DatabaseUnavailable as error:
                if self._clock() >= given_up_at:
                    raise RunError(
                        f"{self._partition}: the database stayed unavailable for "
                        f"{PATIENCE_SECONDS:g} s ({error}); start the job again to resume"
                    ) from error
                self._events.warning("database_unavailable", error=str(error))
                self._sleep(pause_seconds)
                pause_seconds = min(pause_seconds * 2, self._pace.longest_pause_seconds)
        failpoints.hit("table_writer.after_claim")
        position = self._start if claim.next_offset is None else claim.next_offset
        refuse_gap(self._partition, position, self._start)
        self._events.info("partition_claimed", epoch=claim.epoch, offset=position)
        if position < self._confirmed:
            raise RunError(
                f"{self._partition}: the database went back from offset {self._confirmed} to "
                f"{position}, as after a restore, or after the promotion of an incomplete replica; "
                f"start the job again to resume there"
            )
        self._confirmed = position
        self._begun_at = self._clock()
        return self._maker.empty(claim, position)

    # --- rows: B3 -------------------------------------------------------------------------------

    def _take_in(self, batch: Batch, messages: Sequence[Message]) -> Batch:
        fresh = [m for m in messages if m.offset() >= batch.next_offset]
        if not fresh:
            return batch
        self._kept += fresh
        self._add(batch, fresh)
        is_due = self._clock() - self._begun_at >= self._pace.commit_interval_seconds
        is_full = batch.size >= self._pace.batch_rows or len(self._kept) >= self._pace.kept_records
        return self._write(batch) if is_due or is_full else batch

    def _add(self, batch: Batch, messages: Sequence[Message]) -> None:
        """Convert messages; before a record without a row with `fail`, write the earlier ones.

        Raises:
            RecordFailed: of that record.
        """
        try:
            self._maker.add(messages, batch)
        except RecordFailed as error:
            self._write(batch.up_to(error.offset))
            raise

    # --- writing: B4, B5 ------------------------------------------------------------------------

    def _write(self, batch: Batch) -> Batch:
        """Write a batch and return the next, empty one."""
        while batch.next_offset != batch.claim.next_offset:
            try:
                self._store.write([batch])
            except DatabaseUnavailable as error:
                self._events.warning("database_unavailable", error=str(error))
                batch = self._again(batch)
                continue
            except Superseded as error:
                raise InstanceFenced(
                    f"{self._partition}: another attempt has claimed it and continues"
                ) from error
            except RowRefused as error:
                self._write(batch.up_to(error.offset))
                raise RecordFailed(str(error), offset=error.offset) from error
            failpoints.hit("table_writer.after_commit")
            self.written += batch.size
            batch = self._next(batch.claim, batch.next_offset)
        self._kept.clear()
        self._begun_at = self._clock()
        return batch

    def _again(self, before: Batch) -> Batch:
        """Claim, which shows the outcome of the write, and convert the rest again."""
        batch = self._claimed()
        if batch.next_offset >= before.next_offset:
            self.written += before.size
            return self._next(batch.claim, batch.next_offset)
        self._kept = [message for message in self._kept if message.offset() >= batch.next_offset]
        if self._kept:
            self._add(batch, self._kept)
        batch.next_offset = before.next_offset
        return batch

    def _next(self, claim: Claim, position: int) -> Batch:
        """Return the empty batch after the written position."""
        self._confirmed = position
        return self._maker.empty(replace(claim, next_offset=position), position)


def refuse_gap(partition: TopicPartition, position: int, start: int) -> None:
    """Raise if records between the tables' position and the range would be left out.

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
