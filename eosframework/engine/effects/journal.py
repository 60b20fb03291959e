"""The journal of effects: one transaction for all entries of a worker that are due (J3, J5).

While a transaction is committed, on a thread of its own, the next entries gather. Each sends the
offset from which the next owner has to read, under the membership of the assignment: the group
refuses it if this process has lost the partition, also if it has inited its id again.

An entry is never lost by a failed transaction: it is written again until it is committed, which
changes nothing if it was committed before. So no outcome has to be read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import structlog

from eosframework.engine.effects.entries import Entry, output_of
from eosframework.engine.effects.task_effects import TaskEffects
from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    Retriable,
    RunError,
    TaskFenced,
    TransactionError,
    TransactionFatal,
)
from eosframework.records import Position
from eosframework.transactions import failpoints
from eosframework.transactions.ports import (
    Commit,
    Output,
    Purger,
    TransactionalOutput,
    TransactionalOutputs,
)
from eosframework.transactions.producing import produce_all
from eosframework.txnid import TransactionalId

RETRY_SECONDS = (0.2, 3.0)
"""The first and the longest pause after a transaction that failed; it doubles."""

CLOSE_SECONDS = 10.0
"""The longest wait for a transaction under way before its producer is closed."""


@dataclass(slots=True, eq=False)
class Write:
    """An entry on its way.

    Args:
        written: called when it is committed.
        place: offset of its record, or of an earlier one of the same transaction.
    """

    task: TaskEffects
    key: str
    entry: Entry
    written: Callable[[], None]
    place: int = 0

    def delivered(self, _error: Any, message: Any) -> None:
        """Note the offset of the record."""
        if message is not None and (offset := message.offset()) is not None:
            self.place = max(offset, 0)


class Background(Protocol):
    """Runs transactions next to the main thread."""

    def submit(self, function: Callable[[], list[_Ended]], /) -> Future[list[_Ended]]:
        """Begin a function."""
        ...

    def shutdown(self, wait: bool = True) -> None:
        """End."""
        ...


class AtOnce:
    """Runs transactions on the main thread, for drivers; see `Background`."""

    def submit(self, function: Callable[[], list[_Ended]], /) -> Future[list[_Ended]]:
        """Run a function."""
        ended: Future[list[_Ended]] = Future()
        ended.set_result(function())
        return ended

    def shutdown(self, wait: bool = True) -> None:
        """Do nothing."""


def in_background() -> Background:
    """Return a thread for transactions."""
    return ThreadPoolExecutor(1, thread_name_prefix="eosframework-effects")


@dataclass(slots=True, eq=False)
class _Writer:
    """One id of the journal, with its producer."""

    output: TransactionalOutput
    waiting: list[Write] = field(default_factory=list[Write])
    is_broken: bool = False
    """Its id has to be inited before it is used again."""
    is_unlisted: bool = False
    """Its id was inited, and its entries of ownership have to be written anew (K6)."""
    not_before: float = 0.0
    failures: int = 0


@dataclass(slots=True, eq=False)
class _Part:
    """The part of one id in a round.

    Args:
        commits: False: its id is inited instead.
    """

    writer: _Writer
    writes: Sequence[Write] = ()
    records: Sequence[Output] = ()
    positions: Sequence[Position] = ()
    commits: bool = True


@dataclass(frozen=True, slots=True)
class _Ended:
    part: _Part
    error: TransactionError | None
    inited: bool = False


class Journal:
    """Writes entries.

    Args:
        outputs: opens the producers; used by nothing else.
        membership: returns the membership of the assignment; None: there is none.
        renew: writes the entries of ownership of tasks anew (K6).
        background: runs transactions.
        clock: seconds, monotonic.
        now: seconds since the epoch.
        fenced_seconds: the wait after a fence, for a successor to show itself.
        purger: deletes records that are not needed any more; None: they are kept.
    """

    def __init__(
        self,
        outputs: TransactionalOutputs,
        membership: Callable[[], Any],
        renew: Callable[[Iterable[TransactionalId]], None],
        background: Background,
        *,
        clock: Callable[[], float],
        now: Callable[[], float] = time.time,
        fenced_seconds: float = 6.0,
        purger: Purger | None = None,
    ) -> None:
        self._outputs = outputs
        self._membership = membership
        self._renew = renew
        self._background = background
        self._clock = clock
        self.now = now
        self._fenced_seconds = fenced_seconds
        self._purger = purger
        self._writers: dict[str, _Writer] = {}
        self._round: Future[list[_Ended]] | None = None
        self._events = structlog.get_logger("eosframework.effects")
        self._tasks: dict[str, set[TaskEffects]] = {}

    @property
    def is_writing(self) -> bool:
        """True while a transaction is under way."""
        return self._round is not None

    def open(self, ids: Sequence[str]) -> None:
        """Take ids (J1).

        Raises:
            TransactionError: one could not be inited.
        """
        outputs = self._outputs.open(ids)
        self._writers |= {output.transactional_id: _Writer(output) for output in outputs}

    def join(self, task: TaskEffects) -> None:
        """Write for a task from now on."""
        self._tasks.setdefault(task.transactional_id, set()).add(task)

    def add(self, write: Write) -> None:
        """Write an entry with the next transaction."""
        self._writers[write.task.transactional_id].waiting.append(write)

    def turn(self) -> None:
        """Take the results of a transaction, and begin the next one.

        Raises:
            RunError: none can succeed until its cause is fixed.
        """
        while True:
            if self._round is not None:
                if not self._round.done():
                    return
                ended, self._round = self._round.result(), None
                for one in ended:
                    self._take(one)
            if not (parts := [*self._due()]):
                return
            self._round = self._background.submit(partial(self._run, parts, self._membership()))

    def leave(self, tasks: Iterable[TaskEffects]) -> None:
        """Write no more for tasks; the last one of an id closes its producer."""
        for task in tasks:
            members = self._tasks.get(task.transactional_id, set())
            members.discard(task)
            if (writer := self._writers.get(task.transactional_id)) is not None:
                writer.waiting = [w for w in writer.waiting if w.task is not task]
        self.close_unused()

    def close_unused(self) -> None:
        """Close the producers of ids without a task."""
        unused = [id_ for id_ in self._writers if not self._tasks.get(id_)]
        if not unused:
            return
        self._finish_round()
        self._outputs.close([self._writers.pop(id_).output for id_ in unused])

    def close(self) -> None:
        """End; all tasks have left."""
        self.close_unused()
        self._background.shutdown(wait=False)
        self._outputs.stop()
        if self._purger is not None:
            self._purger.close()

    def _finish_round(self) -> None:
        """Wait for the transaction under way: its producer is in use."""
        if self._round is None:
            return
        try:
            ended = self._round.result(CLOSE_SECONDS)
        except TimeoutError:
            return
        self._round = None
        for one in ended:
            if one.error is None and one.part.commits:
                self._written(one.part)
            else:
                one.part.writer.waiting[:0] = one.part.writes
                one.part.writer.is_broken = one.error is not None

    # --- on the main thread ----------------------------------------------------------------------

    def _due(self) -> Iterable[_Part]:
        now, has_right = self._clock(), self._membership() is not None
        for id_, writer in self._writers.items():
            if now < writer.not_before or not has_right:
                continue
            if writer.is_broken:
                yield _Part(writer, commits=False)
                continue
            if writer.is_unlisted and not self._is_listed(id_, writer):
                continue
            if writer.waiting:
                writes, writer.waiting = writer.waiting, []
                yield self._part(writer, writes)

    def _part(self, writer: _Writer, writes: Sequence[Write]) -> _Part:
        records: list[Output] = []
        positions: dict[TaskEffects, Position] = {}
        now_ms = self.now() * 1000
        for write in writes:
            topic, number = write.task.partition
            first = write.task not in positions
            if first:
                needed = write.task.first_needed(now_ms)
                positions[write.task] = Position(topic, number, needed)
            delivered = write.delivered if first else None
            records.append(output_of(topic, number, write.key, write.entry, delivered))
        return _Part(writer, writes, records, [*positions.values()])

    def _is_listed(self, id_: str, writer: _Writer) -> bool:
        """Write the entries of ownership anew (K6)."""
        try:
            self._renew([task.identity for task in self._tasks.get(id_, ())])
        except (Retriable, ClusterUnreachable) as error:
            self._wait(writer, error)
            return False
        writer.is_unlisted = False
        return True

    def _take(self, ended: _Ended) -> None:
        part, writer = ended.part, ended.part.writer
        writer.is_unlisted = writer.is_unlisted or ended.inited
        if (error := ended.error) is None:
            if part.commits:
                writer.failures = 0
                self._written(part)
            else:
                writer.is_broken = False
            return
        writer.waiting[:0] = part.writes
        writer.is_broken = True
        if isinstance(error, TransactionFatal | DataRejected):
            raise RunError(f"the journal of effects cannot be written: {error}") from error
        self._wait(writer, error)

    def _wait(self, writer: _Writer, error: Exception) -> None:
        first, longest = RETRY_SECONDS
        pause = min(first * 2**writer.failures, longest)
        if isinstance(error, TaskFenced):
            pause = self._fenced_seconds
        writer.failures += 1
        writer.not_before = self._clock() + pause
        self._events.warning(
            "effects_not_written",
            transactional_id=writer.output.transactional_id,
            error=str(error),
            entries=len(writer.waiting),
            retry_seconds=round(pause, 1),
        )

    def _written(self, part: _Part) -> None:
        places: dict[TaskEffects, int] = {}
        for write in part.writes:
            place = places.setdefault(write.task, write.place)
            write.task.note(write.key, write.entry, place)
        for write in part.writes:
            if not write.task.is_closed:
                write.written()
        if self._purger is not None:
            self._purger.committed(part.positions)

    # --- in the background -----------------------------------------------------------------------

    def _run(self, parts: Sequence[_Part], membership: Any) -> list[_Ended]:
        ended: list[_Ended] = []
        begun: list[_Part] = []
        for part in parts:
            if not part.commits:
                [error] = self._outputs.abort([part.writer.output])
                ended.append(_Ended(part, error, inited=error is None))
                continue
            try:
                part.writer.output.begin()
                produce_all(part.writer.output, part.records)
            except TransactionError as error:
                ended.append(_Ended(part, error))
            else:
                begun.append(part)
        if not begun:
            return ended
        failpoints.hit("effects.before_write")
        results = self._outputs.commit(
            [Commit(part.writer.output, part.positions, membership) for part in begun]
        )
        failpoints.hit("effects.after_write")
        for part, result in zip(begun, results, strict=True):
            ended.append(_Ended(part, result.error, inited=result.recycled))
        return ended
