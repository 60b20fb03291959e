"""Producer groups: the tasks that share a producer, and so a transaction and its outcome.

    one begins              the transaction is open for all of them
    one has to commit       all that progressed commit: records already sent cannot be left out
    one fails               all that take part are rewound; the others wait for the producer
    the id is fenced        all are rewound: each partition may have another owner
    data is rejected        the task at fault is unknown: each is replayed apart from the others
    a run breaks off        nothing of the transaction is ever committed

A task whose data was rejected, or whose records take long, has transactions of its own for a while
(`APART_SECONDS`), in turns with those of the others on the same producer: a rejection rewinds this
task alone, and the others wait for one slice of its records and their commit at most.

Transaction numbers, stream time and stores belong to each task. So the outcome of a transaction can
be read from the offsets of each partition, and a partition that moves to another group loses
nothing. By default all tasks of a worker are one group.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from eosframework.engine.task.measurements import Measures
from eosframework.engine.task.open_decision import OpenDecision
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.task.task_time import TaskTime, watermarks
from eosframework.errors import DataRejected, RowsRefused, TransactionError
from eosframework.records import TopicPartition
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Commit, Output, TransactionalOutput
from eosframework.transactions.producing import produce_all
from eosframework.transactions.session.session_states import State
from eosframework.transactions.session.transaction_session import TransactionSession

APART_SECONDS = 60.0
"""Time for which a task has transactions of its own after its data was rejected or took long."""


class _GroupTask(Protocol):
    """The part of a task that its producer group uses; see `engine.task.task.Task`."""

    state: TaskState
    records_in_transaction: int

    @property
    def time(self) -> TaskTime: ...
    @property
    def partitions(self) -> Sequence[TopicPartition]: ...
    @property
    def has_open_progress(self) -> bool: ...
    @property
    def has_rest(self) -> bool: ...
    @property
    def has_pending(self) -> bool: ...
    @property
    def closes_windows_again(self) -> bool: ...
    def enter(self, state: TaskState) -> None: ...
    def commit(self) -> Commit: ...
    def committed(self) -> None: ...
    def reject(self, error: DataRejected) -> None: ...
    def replay_alone(self) -> None: ...
    def drop(self) -> None: ...


T = TypeVar("T", bound=_GroupTask)

_IN_SERVICE = frozenset({State.READY, State.OPEN})


class ProducerGroup(Generic[T]):
    """One producer and its tasks.

    A failure takes the tasks of the transaction out of service, a fence all of them. Each of these
    runs as soon as its own state is up to date: a long restore holds up no other task.

    Args:
        session: of the producer.
        clock: seconds, monotonic.
        measures: counts committed transactions; None: nothing is measured.
        decision: the open transaction, if a database decides it.
    """

    def __init__(
        self,
        session: TransactionSession[Any],
        clock: Callable[[], float],
        measures: Measures | None = None,
        decision: OpenDecision | None = None,
    ) -> None:
        self.session = session
        self._decision = decision
        self.tasks: list[T] = []
        self._clock = clock
        self._measures = measures
        self._began_at: float | None = None
        self.out: list[T] = []
        """Tasks that were rewound and do not run before the producer is recovered."""
        self._members: set[T] = set()
        self._bisecting: set[T] = set()
        self._apart_until: dict[T, float] = {}
        self._side: T | None = None
        """Of the last transaction that was begun: the task that was apart; None: the others."""
        self._last_apart: T | None = None
        self._committing: list[T] = []
        self._is_broken = False

    @property
    def transactional_id(self) -> str:
        """The id of the producer."""
        return self.session.transactional_id

    @property
    def output(self) -> TransactionalOutput:
        """The producer."""
        return self.session.output

    @property
    def is_clean(self) -> bool:
        """True if no transaction is open or undecided, and no frame may be in flight."""
        return self.session.state is State.READY and not self.output.is_suspect

    @property
    def partitions(self) -> list[TopicPartition]:
        """The source partitions of all tasks."""
        return [partition for task in self.tasks for partition in task.partitions]

    @property
    def began_at(self) -> float | None:
        """Clock time at which the open transaction began; None: none is open."""
        return self._began_at

    @property
    def has_open_progress(self) -> bool:
        """True if the open transaction has something that may be committed."""
        return not self._is_broken and any(task.has_open_progress for task in self.tasks)

    @property
    def records(self) -> int:
        """The number of records in the open transaction."""
        return sum(task.records_in_transaction for task in self.tasks)

    @property
    def room(self) -> int | None:
        """The most records that the open transaction may still take; None: there is no limit."""
        size = self.session.size
        return None if size.limit is None else size.room(self.records)

    @contextmanager
    def whole(self) -> Generator[None]:
        """Keep the transaction from being committed if an exception leaves the block.

        The exception leaves outputs, state and positions at different records. After a
        TransactionError the recovery drops the transaction. Any other exception ends the worker,
        whose last commit leaves this group out.
        """
        try:
            yield
        except TransactionError:
            raise
        except BaseException:
            self._is_broken = True
            raise

    def takes_part(self, task: T) -> bool:
        """Return whether a task has run something in the open transaction."""
        return task in self._members

    def is_alone(self, task: T) -> bool:
        """Return whether no other task takes part in the open transaction."""
        return self._members <= {task}

    def bisects(self, task: T, is_bisecting: bool) -> None:
        """Note whether a task replays its data in smaller transactions."""
        (self._bisecting.add if is_bisecting else self._bisecting.discard)(task)

    def keep_apart(self, task: T) -> None:
        """Give a task transactions of its own for `APART_SECONDS` from now on."""
        self._apart_until[task] = self._clock() + APART_SECONDS

    def is_awaited(self, task: T) -> bool:
        """Return whether others wait for the commit of the open transaction that a task is in.

        While the task at fault is not found, no transaction lasts for the commit interval; later
        the others have their interval between two transactions of that task.
        """
        if task not in self._members or not (self._bisecting or self._apart_until):
            return False
        suspects = self._bisecting - self._apart_until.keys()
        return self._side is not None or any(suspect.has_pending for suspect in suspects)

    def may_run(self, task: T) -> bool:
        """Return whether a task may run records now.

        Each task of a worker asks in each turn, so it looks at all of them only while one is apart.
        """
        session = self.session
        if session.state not in _IN_SERVICE or session.size.rest_seconds > 0:
            return False
        if not self._bisecting and not self._apart_until:
            return True
        side = self._side_of(task, has_records=task.has_pending)
        if self._members:
            return side is self._side
        return side is self._next_side(side)

    def _side_of(self, task: T, *, has_records: bool) -> T | None:
        """Return a task if it runs apart; None: with the others.

        Args:
            task: of this group.
            has_records: it runs records. What the clock causes runs with the others, unless it is
                what was rejected.
        """
        if len(self.tasks) == 1:
            return None
        if task in self._bisecting:
            return task
        return task if has_records and task in self._apart_until else None

    def _next_side(self, asking: T | None) -> T | None:
        """Return the side that may begin: after a task that is apart the others, then the next."""
        waiting = [
            self._side_of(task, has_records=True)
            for task in self.tasks
            if task.state is TaskState.RUNNING and (task.has_pending or task.closes_windows_again)
        ]
        if self._side is not None and None in waiting:
            return None
        apart = [task for task in waiting if task is not None]
        if not apart:
            return None if waiting else asking
        last = self._last_apart
        later = apart[apart.index(last) + 1 :] if last in apart else []
        return (later or apart)[0]

    def begin(self, task: T, *, has_records: bool) -> None:
        """Add a task to the transaction, and open it if none is open (step 1).

        Args:
            task: of this group.
            has_records: it runs records; False: what the clock causes.

        Raises:
            TransactionError: no transaction is open.
        """
        if not self._members:
            self._forget_expired()
            self._side = self._side_of(task, has_records=has_records)
            self._last_apart = self._side or self._last_apart
        self._members.add(task)  # If the begin fails, the records that were taken come again.
        if self._began_at is None:
            self.session.begin()
            self._began_at = self._clock()
            if self._decision is not None:
                self._decision.begin()
            failpoints.hit("transaction.after_begin")

    def taken(self, outputs: Sequence[Output]) -> Sequence[Output]:
        """Return the outputs to produce; a database that decides gets its rows and copies."""
        return outputs if self._decision is None else self._decision.taken(outputs)

    def _forget_expired(self) -> None:
        """Let the tasks run with the others again whose time apart is over."""
        if self._apart_until:
            now = self._clock()
            left = {task: until for task, until in self._apart_until.items() if until > now}
            self._apart_until = left

    def leave(self, task: T) -> None:
        """Remove a task from the transaction, which is over when the last one leaves."""
        self._members.discard(task)
        if not self._members:
            self._began_at = None

    def age_seconds(self) -> float:
        """Return the age of the open transaction; 0 if none is open."""
        return 0.0 if self._began_at is None else self._clock() - self._began_at

    def commit(self) -> Commit:
        """Return the part of all tasks in the next commit round (steps 3 and 4).

        All records were fetched under the same membership: a rebalance between two tasks' records
        would have taken all partitions away.

        Raises:
            TransactionError: nothing of the transaction may be kept.
        """
        self._committing = [task for task in self.tasks if task.has_open_progress]
        with self.whole():
            commits = [task.commit() for task in self._committing]
            self._announce()
        positions = [position for commit in commits for position in commit.positions]
        decide = None if self._decision is None else self._decision.prepared(positions)
        return Commit(self.output, positions, commits[0].membership, decide)

    def _announce(self) -> None:
        """Produce the watermarks of the tasks that commit, together (W1).

        What a task has left is held records with earlier times of writing, so it promises nothing.
        """
        complete = [task for task in self._committing if not task.has_rest]
        due = [task.time.announcing for task in complete if task.time.take_due()]
        if outputs := [*watermarks(due)]:
            produce_all(self.output, self.taken(outputs))

    def committed(self, seconds: float) -> None:
        """Take the result of `commit`, begun `seconds` ago, as committed (step 6).

        Raises:
            RunError: a local store rejects the committed changes; the worker's last commit leaves
                out the whole group.
        """
        committing, self._committing = self._committing, []
        if self._measures is not None and committing:
            self._measures.committed(self.records, seconds)
        if self._decision is not None:
            self._decision.committed()
        with self.whole():
            for task in committing:
                task.committed()
        for task in [*self._members]:
            self.leave(task)

    def reject(self, error: DataRejected) -> None:
        """Bisect the transaction, because the broker rejects some of its data.

        Raises:
            RecordFailed: the record is known, and its dead letter was rejected as well.
        """
        if isinstance(error, RowsRefused) and self._decision is not None:
            self._decision.reject(error)
            return
        suspects = [task for task in self.tasks if self.takes_part(task)]
        if len(suspects) > 1:
            for task in suspects:
                task.replay_alone()
        else:
            task = (suspects or self.tasks)[0]
            self.keep_apart(task)
            task.reject(error)

    def take_members_out(self) -> list[T]:
        """Rewind the tasks that take part in the open transaction, and return them."""
        return self._take_out([task for task in self.tasks if task in self._members])

    def take_all_out(self) -> list[T]:
        """Rewind all tasks, and return those that were in service."""
        return self._take_out([task for task in self.tasks if task not in self.out])

    def _take_out(self, tasks: list[T]) -> list[T]:
        for task in tasks:
            task.drop()
        self.out += [task for task in tasks if task not in self.out]
        return tasks
