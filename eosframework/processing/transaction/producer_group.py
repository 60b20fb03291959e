"""The tasks that share a producer, and so a transaction and its fate; mostly it is a single task.

    one begins              the transaction is open for all of them
    one has to commit       all that moved commit: what one has sent cannot be left out
    one fails               all are rewound
    data is refused         nobody knows whose: each is replayed alone, one after the other
    a run breaks off        nothing of the transaction is ever committed

Transaction numbers, stream time and stores stay each task's own. So what became of a transaction
can be told from the offsets of each partition, and a partition that comes into another bundle loses
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eosframework import failpoints
from eosframework.errors import DataRejected, TransactionError
from eosframework.processing.ports import Commit, TransactionalOutput
from eosframework.processing.task_states import TaskState
from eosframework.records import TopicPartition

if TYPE_CHECKING:
    from eosframework.processing.task import Task


class Bundle:
    """One producer and its tasks.

    They are in one state at any time: what takes one out of service takes all of them out.

    Args:
        output: the producer.
        clock: seconds, monotonic.
    """

    def __init__(self, output: TransactionalOutput, clock: Callable[[], float]) -> None:
        self.output = output
        self.tasks: list[Task] = []
        self.fences_in_a_row = 0
        self.aborts_in_a_row = 0
        self._clock = clock
        self._began_at: float | None = None
        self._taking_part: set[Task] = set()
        self._committing: list[Task] = []
        self._is_broken = False

    @property
    def transactional_id(self) -> str:
        """The id of the producer."""
        return self.output.transactional_id

    @property
    def state(self) -> TaskState:
        """The state of all tasks."""
        return self.tasks[0].state

    @property
    def partitions(self) -> list[TopicPartition]:
        """The source partitions of all tasks."""
        return [partition for task in self.tasks for partition in task.partitions]

    @property
    def began_at(self) -> float | None:
        """Clock time at which the open transaction began; None: there is none."""
        return self._began_at

    @property
    def transaction_timeout_seconds(self) -> float:
        """After so long the brokers end an open transaction."""
        return self.tasks[0].transaction_timeout_seconds

    @property
    def has_open_progress(self) -> bool:
        """Whether there is something in the open transaction that may be committed."""
        return not self._is_broken and any(task.has_open_progress for task in self.tasks)

    @contextmanager
    def whole(self) -> Generator[None]:
        """Keep the transaction from being committed if an exception leaves the block.

        It leaves outputs, state and positions at different records. The recovery drops the
        transaction after a TransactionError. Any other exception ends the worker, whose last commit
        leaves this bundle out.
        """
        try:
            yield
        except TransactionError:
            raise
        except BaseException:
            self._is_broken = True
            raise

    def enter(self, state: TaskState) -> None:
        """Change the state of all tasks."""
        for task in self.tasks:
            task.enter(state)

    def takes_part(self, task: Task) -> bool:
        """Tell whether a task has run something in the open transaction."""
        return task in self._taking_part

    def is_alone(self, task: Task) -> bool:
        """Tell whether no other task takes part in the open transaction."""
        return self._taking_part <= {task}

    def may_run(self, task: Task) -> bool:
        """Tell whether a task may run records now; while data is refused, one does at a time."""
        if len(self.tasks) == 1:
            return True
        return next((other for other in self.tasks if other.is_narrowing), task) is task

    def begin(self, task: Task) -> None:
        """Let a task take part in the transaction, and open it if none is open (step 1).

        Raises:
            TransactionError: no transaction is open.
        """
        if self._began_at is None:
            self.output.begin()
            self._began_at = self._clock()
            failpoints.hit("transaction.after_begin")
        self._taking_part.add(task)

    def leave(self, task: Task) -> None:
        """Note that the transaction is over for a task, and over at all for the last one."""
        self._taking_part.discard(task)
        if not self._taking_part:
            self._began_at = None

    def age_seconds(self) -> float:
        """Return for how long the transaction has been open; 0 if there is none."""
        return 0.0 if self._began_at is None else self._clock() - self._began_at

    def commit(self) -> Commit:
        """Return the part of all tasks in the next round of commits (steps 3 and 4).

        No rebalance comes between two tasks' records: it would have taken all partitions away. So
        all were fetched under the same membership.

        Raises:
            TransactionError: nothing of the transaction may be kept.
        """
        self._committing = [task for task in self.tasks if task.has_open_progress]
        with self.whole():
            commits = [task.commit() for task in self._committing]
        if len(commits) == 1:
            return commits[0]
        positions = [position for commit in commits for position in commit.positions]
        return Commit(self.output, positions, commits[0].membership)

    def committed(self) -> None:
        """Take what `commit` returned as committed (step 6).

        Raises:
            RunError: a store on this machine does not take what was committed.
        """
        committing, self._committing = self._committing, []
        for task in committing:
            task.committed()
        for task in [*self._taking_part]:
            self.leave(task)
        self.fences_in_a_row = self.aborts_in_a_row = 0

    def took_effect(self, tasks: Iterable[Task]) -> None:
        """Note that the transaction that was dropped last turned out to be committed.

        Args:
            tasks: that had taken part in it.
        """
        self.fences_in_a_row = self.aborts_in_a_row = 0
        for task in tasks:
            task.took_effect()

    def reject(self, error: DataRejected) -> None:
        """The broker refuses something of the transaction: replay what may be at fault.

        Raises:
            RecordFailed: the record is known, and its dead letter was refused as well.
        """
        suspects = [task for task in self.tasks if self.takes_part(task)]
        if len(suspects) > 1:
            for task in suspects:
                task.replay_alone()
        else:
            (suspects or self.tasks)[0].reject(error)

    def drop(self) -> None:
        """Forget what the open transaction did and what waits to be run."""
        for task in self.tasks:
            task.drop()


def bundles_of(tasks: Iterable[Task]) -> list[Bundle]:
    """Return the bundles of some tasks, each once."""
    return list(dict.fromkeys(task.bundle for task in tasks))
