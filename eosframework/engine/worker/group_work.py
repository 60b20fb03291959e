"""The work of a worker's sessions: its tasks, and the offsets that they have committed (step 7).

`commit_rounds` commits and recovers the sessions. A producer fails together with the tasks that
take part in its transaction: they leave service, and resume when their stores are up to date. Its
other tasks wait for it, and leave service only after a fence. The numbers are those of
`session_group`:

    R0  poll for two heartbeats; then it is still the owner
    K6  write the entries of the tasks anew, because R1 has inited the id (`transactions/ownership`)
    R2  read the stable committed offsets, which show the outcome
    R3  rewind to them

A successor of a fenced producer exists only after a rebalance. So the worker stays a member of the
group for two heartbeats: by then a rebalance shows as a revoked or lost partition, which closes its
tasks. The next `send_offsets` with the membership of its batch is the last check.

A fence without a rebalance means that another process uses the id. It may have stopped since, so
one fence is no reason to end; several in a short time are: two rivals would fence each other after
a few commits, for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import structlog

from eosframework.engine.task.producer_group import ProducerGroup
from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    Retriable,
    TaskFenced,
    TransactionError,
)
from eosframework.records import Position
from eosframework.transactions.ownership import Ownership
from eosframework.transactions.ports import InputLog
from eosframework.transactions.session.session_states import Outcome, Policy, State
from eosframework.transactions.session.transaction_session import Work

RIVAL_FENCES = 3
RIVAL_HEARTBEATS = 30
"""This many fences that cannot be expiry, in a row or within this many heartbeat intervals, show a
rival. Two rivals wait two heartbeats each, so a worker is fenced every four."""

Settled = Mapping[Task, Sequence[Position]]
"""Stable committed positions of the source partitions of each task of a producer group."""


def worker_policy(timeout_seconds: float, heartbeat_seconds: float) -> Policy:
    """Return the policy of a worker's sessions.

    Args:
        timeout_seconds: the transaction timeout.
        heartbeat_seconds: the heartbeat interval of the group.
    """
    return Policy(
        timeout_seconds,
        successor="a process that does not own the partition in this group: another process uses "
        "the same application name",
        advice="Stop it, or give one of them another name",
        watch_seconds=2 * heartbeat_seconds,
        rival_fences=RIVAL_FENCES,
        rival_seconds=RIVAL_HEARTBEATS * heartbeat_seconds,
        patience_seconds=None,
    )


class GroupWork(Work[Settled]):
    """The work of a producer group in a worker: its progress is what its tasks have committed.

    Args:
        group: the session of its producer has this work from now on.
        log: has the committed offsets.
        ownership: the claims of the tasks.
    """

    def __init__(self, group: ProducerGroup[Task], log: InputLog, ownership: Ownership) -> None:
        self.group = group
        self._session = group.session
        self._log = log
        self._ownership = ownership
        self._events = structlog.get_logger("eosframework.recovery")
        group.session.work = self

    def committed(self, seconds: float) -> None:
        """Pass the result to the tasks; see `ProducerGroup.committed`."""
        self.group.committed(seconds)

    def records(self) -> int:
        """Return the number of records in the open transaction."""
        return self.group.records

    def reject(self, error: DataRejected) -> None:
        """Bisect the transaction; see `ProducerGroup.reject`."""
        self.group.reject(error)

    def drop(self) -> None:
        """Take the tasks of the transaction out of service; after a fence or the end, all."""
        if self._session.state in (State.ABORTABLE, State.UNKNOWN):
            out = self.group.take_members_out()
        else:
            out = self.group.take_all_out()
        if self._session.is_out:
            self._log.pause([partition for task in out for partition in task.partitions])
            is_fenced = self._session.state is State.FENCED
            _enter(self.group.out, TaskState.FENCED if is_fenced else TaskState.RECOVERING)

    def prove(self) -> None:
        """End the watch: no rebalance took the partitions, or the group would be released (R0)."""
        if self._session.state is State.FENCED:
            _enter(self.group.out, TaskState.RECOVERING)

    def has_successor(self) -> bool:
        """Return whether another process has claimed one of the tasks."""
        try:
            return self._ownership.has_successor(task.identity for task in self.group.tasks)
        except (Retriable, ClusterUnreachable):
            return False

    def outcome(self, found: Settled) -> Outcome:
        """Return the outcome of a transaction from its tasks; some may not have taken part."""
        if self._moved(found):
            return Outcome.OVERTAKEN
        if not self._session.is_in_doubt:
            return Outcome.NOT_COMMITTED
        outcomes = [task.outcome(positions) for task, positions in found.items()]
        return Outcome.COMMITTED if Outcome.COMMITTED in outcomes else Outcome.NOT_COMMITTED

    def overtaken(self, found: Settled) -> TransactionError:
        """Return the error that stands for offsets of another worker."""
        partitions = (partition for task in self._moved(found) for partition in task.partitions)
        return TaskFenced(
            f"transactional.id {self.group.transactional_id}: the committed offsets of "
            f"{', '.join(map(str, partitions))} were moved by another worker"
        )

    def resume(self, found: Settled, outcome: Outcome) -> None:
        """Rewind to the committed positions (R3)."""
        if outcome is Outcome.COMMITTED:
            for task, positions in found.items():
                if task.outcome(positions) is outcome:
                    task.took_effect()
        settled: list[Position] = []
        for task in self.group.out:
            task.start_at(found[task])
            settled += found[task]
        self._log.seek(settled)
        _enter(self.group.out, TaskState.ASSIGNED)
        self.group.out.clear()
        self._events.info(
            "task_recovered",
            transactional_id=self.group.transactional_id,
            offsets={str(p.topic_partition): p.offset for p in settled},
        )

    def _moved(self, found: Settled) -> list[Task]:
        """Return the tasks that would resume at other offsets than another worker has committed.

        A task out of service is rewound to the committed ones, so its offsets count only while its
        transaction is in doubt.
        """
        became = {task: task.outcome(positions) for task, positions in found.items()}
        overtaken = {t for t, o in became.items() if o is Outcome.OVERTAKEN}
        stayed = {
            t
            for t, o in became.items()
            if t not in self.group.out and o is not Outcome.NOT_COMMITTED
        }
        in_doubt = self._session.is_in_doubt
        return [t for t in found if t in stayed or (in_doubt and t in overtaken)]


def _enter(tasks: Iterable[Task], state: TaskState) -> None:
    for task in tasks:
        if task.state is not state:
            task.enter(state)
