"""Producer groups: the tasks that share a producer, and so a transaction and its outcome.

    one begins              the transaction is open for all of them
    one has to commit       all that progressed commit: records already sent cannot be left out
    one fails               all are rewound
    data is rejected        the task at fault is unknown: each is replayed alone, one after the
        other
    a run breaks off        nothing of the transaction is ever committed

Transaction numbers, stream time and stores belong to each task. So the outcome of a transaction can
be read from the offsets of each partition, and a partition that moves to another group loses
nothing. By default all tasks of a worker are one group.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from eosframework.engine.task.announcing import watermarks
from eosframework.engine.task.measurements import Measures
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.task.task_time import TaskTime
from eosframework.errors import DataRejected, TransactionError
from eosframework.records import TopicPartition
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Commit, TransactionalOutput
from eosframework.transactions.producing import produce_all
from eosframework.transactions.session.session_states import State
from eosframework.transactions.session.transaction_session import TransactionSession


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
    def enter(self, state: TaskState) -> None: ...
    def commit(self) -> Commit: ...
    def committed(self) -> None: ...
    def reject(self, error: DataRejected) -> None: ...
    def replay_alone(self) -> None: ...
    def drop(self) -> None: ...


T = TypeVar("T", bound=_GroupTask)


class ProducerGroup(Generic[T]):
    """One producer and its tasks.

    A failure takes all tasks out of service. Each of them runs as soon as its own state is up to
    date: a long restore holds up no other task.

    Args:
        session: of the producer.
        clock: seconds, monotonic.
        measures: counts committed transactions; None: nothing is measured.
    """

    def __init__(
        self,
        session: TransactionSession,
        clock: Callable[[], float],
        measures: Measures | None = None,
    ) -> None:
        self.session = session
        self.tasks: list[T] = []
        self._clock = clock
        self._measures = measures
        self._began_at: float | None = None
        self._members: set[T] = set()
        self._bisecting: set[T] = set()
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

    def enter(self, state: TaskState) -> None:
        """Let all tasks have a state."""
        for task in self.tasks:
            if task.state is not state:
                task.enter(state)

    def takes_part(self, task: T) -> bool:
        """Return whether a task has run something in the open transaction."""
        return task in self._members

    def is_alone(self, task: T) -> bool:
        """Return whether no other task takes part in the open transaction."""
        return self._members <= {task}

    def bisects(self, task: T, is_bisecting: bool) -> None:
        """Note whether a task replays its data in smaller transactions."""
        (self._bisecting.add if is_bisecting else self._bisecting.discard)(task)

    def may_run(self, task: T) -> bool:
        """Return whether a task may run records now; during a bisection one task runs at a time.

        Each task of a worker asks in each turn, so it looks at all of them in a bisection only.
        """
        if self.session.size.rest_seconds > 0:
            return False
        if not self._bisecting:
            return True
        return next((other for other in self.tasks if other in self._bisecting), task) is task

    def begin(self, task: T) -> None:
        """Add a task to the transaction, and open it if none is open (step 1).

        Raises:
            TransactionError: no transaction is open.
        """
        if self._began_at is None:
            self.session.begin()
            self._began_at = self._clock()
            failpoints.hit("transaction.after_begin")
        self._members.add(task)

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
        if len(commits) == 1:
            return commits[0]
        positions = [position for commit in commits for position in commit.positions]
        return Commit(self.output, positions, commits[0].membership)

    def _announce(self) -> None:
        """Produce the watermarks of the tasks that commit, together (W1).

        What a task has left is held records with earlier times of writing, so it promises nothing.
        """
        complete = [task for task in self._committing if not task.has_rest]
        due = [task.time.announcing for task in complete if task.time.announces()]
        if outputs := [*watermarks(due)]:
            produce_all(self.output, outputs)

    def committed(self) -> None:
        """Take the result of `commit` as committed (step 6).

        Raises:
            RunError: a local store rejects the committed changes.
        """
        committing, self._committing = self._committing, []
        if self._measures is not None and committing:
            records = sum(task.records_in_transaction for task in committing)
            self._measures.committed(records, self.age_seconds())
        for task in committing:
            task.committed()
        for task in [*self._members]:
            self.leave(task)

    def reject(self, error: DataRejected) -> None:
        """Bisect the transaction, because the broker rejects some of its data.

        Raises:
            RecordFailed: the record is known, and its dead letter was rejected as well.
        """
        suspects = [task for task in self.tasks if self.takes_part(task)]
        if len(suspects) > 1:
            for task in suspects:
                task.replay_alone()
        else:
            (suspects or self.tasks)[0].reject(error)

    def drop(self) -> None:
        """Discard the open transaction and all pending records."""
        for task in self.tasks:
            task.drop()
