"""The worker's transactions: the user of their sessions (step 7 of a transaction).

`transactions/session` commits and recovers them. A producer fails together with the tasks that take
part in its transaction: they leave service, and resume when their stores are up to date. Its other
tasks wait for it, and leave service only after a fence. The numbers are those of
`session_group`:

    R0  F1 poll for two heartbeats; F2 still the owner
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

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

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
from eosframework.transactions.ports import Commit, InputLog, TransactionalOutputs
from eosframework.transactions.session.session_group import Counts, Round, SessionGroup, SessionUser
from eosframework.transactions.session.session_states import Outcome, Policy, State
from eosframework.transactions.session.transaction_session import TransactionSession

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


class Recovery(SessionUser[TransactionSession, Settled]):
    """Commits producer groups, takes their tasks out of service, and resumes them.

    Args:
        log: has the committed offsets.
        outputs: has opened the producers.
        ownership: the claims of the tasks.
        counts: receives the numbers.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        log: InputLog,
        outputs: TransactionalOutputs,
        counts: Counts,
        clock: Callable[[], float],
        ownership: Ownership,
    ) -> None:
        self._log = log
        self._ownership = ownership
        self._groups: dict[TransactionSession, ProducerGroup[Task]] = {}
        self._events = structlog.get_logger("eosframework.recovery")
        self._sessions = SessionGroup(outputs, self, counts, self._events, clock, time.sleep)

    def commit(
        self,
        groups: Sequence[ProducerGroup[Task]],
        commits: Sequence[Commit],
        within_seconds: float | None,
    ) -> Round:
        """Commit in one round, and pass each result to its producer group (steps 5 to 7).

        Raises:
            RunError: no retry can succeed until an operator fixes the cause.
            RecordFailed: the broker rejects a record's output and its dead letter.
            InstanceFenced: a rival with the same identity keeps fencing this worker.
        """
        self._attend(groups)
        try:
            sessions = [group.session for group in groups]
            return self._sessions.commit(sessions, commits, within_seconds)
        finally:
            self._keep_those_out()

    def failed(self, group: ProducerGroup[Task], error: TransactionError) -> None:
        """Decide the consequence of a failed call and take the producer's tasks out of service.

        Raises:
            EosError: as `commit`.
        """
        self._attend([group])
        try:
            self._sessions.failed(group.session, error)
        finally:
            self._keep_those_out()

    def turn(self, groups: Sequence[ProducerGroup[Task]]) -> None:
        """Recover the due producers; one failed attempt costs one wait.

        Args:
            groups: all producer groups of the worker.

        Raises:
            EosError: as `commit`.
        """
        if not self._groups:
            return
        self._forget_released(groups)
        self._sessions.recover([g.session for g in groups if g.session in self._groups])
        self._keep_those_out()
        for session, group in self._groups.items():
            self._follow(session, group)

    # --- what the sessions ask: see `SessionUser` -----------------------------------------------

    def committed(self, session: TransactionSession, seconds: float) -> None:
        """Pass the result to the tasks (step 6)."""
        group = self._groups[session]
        # If a store rejects the changes, the worker's last commit leaves out the whole group.
        with group.whole():
            group.committed()

    def records(self, session: TransactionSession) -> int:
        """Return the number of records in the producer group's transaction."""
        return self._groups[session].records

    def reject(self, session: TransactionSession, error: DataRejected) -> None:
        """Bisect the transaction; see `ProducerGroup.reject`."""
        self._groups[session].reject(error)

    def drop(self, session: TransactionSession) -> None:
        """Take the tasks of the transaction out of service; after a fence or the end, all."""
        group = self._groups[session]
        if session.state in (State.ABORTABLE, State.UNKNOWN):
            out = group.take_members_out()
        else:
            out = group.take_all_out()
        if session.is_out:
            self._log.pause([partition for task in out for partition in task.partitions])
            self._follow(session, group)

    def prove(self, session: TransactionSession) -> None:
        """End the watch: no rebalance took the partitions, or the group would be released (F2)."""
        if session.state is State.FENCED:
            _enter(self._groups[session].out, TaskState.RECOVERING)

    def has_successor(self, session: TransactionSession) -> bool:
        """Return whether another process has claimed one of the tasks."""
        tasks = self._groups[session].tasks
        try:
            return self._ownership.has_successor(task.identity for task in tasks)
        except (Retriable, ClusterUnreachable):
            return False

    def read(self, sessions: Sequence[TransactionSession]) -> Sequence[Settled]:
        """Read the stable committed positions of each task (R2); without a commit, its start.

        The entries are written anew before that (K6).
        """
        groups = [self._groups[session] for session in sessions]
        self._ownership.renew(task.identity for group in groups for task in group.tasks)
        committed = iter(self._log.committed([p for group in groups for p in group.partitions]))
        return [
            {
                task: [
                    position
                    if position.offset is not None
                    else replace(position, offset=task.committed_offset(position.topic_partition))
                    for position in islice(committed, len(task.partitions))
                ]
                for task in group.tasks
            }
            for group in groups
        ]

    def outcome(self, session: TransactionSession, found: Settled) -> Outcome:
        """Return the outcome of a transaction from its tasks; some may not have taken part."""
        if self._moved(session, found):
            return Outcome.OVERTAKEN
        if not session.is_in_doubt:
            return Outcome.NOT_COMMITTED
        outcomes = [task.outcome(positions) for task, positions in found.items()]
        return Outcome.COMMITTED if Outcome.COMMITTED in outcomes else Outcome.NOT_COMMITTED

    def overtaken(self, session: TransactionSession, found: Settled) -> TransactionError:
        """Return the error that stands for offsets of another worker."""
        moved = self._moved(session, found)
        partitions = (partition for task in moved for partition in task.partitions)
        return TaskFenced(
            f"transactional.id {session.transactional_id}: the committed offsets of "
            f"{', '.join(map(str, partitions))} were moved by another worker"
        )

    def resume(self, session: TransactionSession, found: Settled, outcome: Outcome) -> None:
        """Rewind to the committed positions (R3)."""
        group = self._groups[session]
        if outcome is Outcome.COMMITTED:
            for task, positions in found.items():
                if task.outcome(positions) is outcome:
                    task.took_effect()
        settled: list[Position] = []
        for task in group.out:
            task.start_at(found[task])
            settled += found[task]
        self._log.seek(settled)
        _enter(group.out, TaskState.ASSIGNED)
        group.out.clear()
        self._events.info(
            "task_recovered",
            transactional_id=session.transactional_id,
            offsets={str(p.topic_partition): p.offset for p in settled},
        )

    def _moved(self, session: TransactionSession, found: Settled) -> list[Task]:
        """Return the tasks that would resume at other offsets than another worker has committed.

        A task out of service is rewound to the committed ones, so its offsets count only while its
        transaction is in doubt.
        """
        out = self._groups[session].out
        became = {task: task.outcome(positions) for task, positions in found.items()}
        stayed = {t for t, o in became.items() if t not in out and o is not Outcome.NOT_COMMITTED}
        overtaken = {t for t, o in became.items() if o is Outcome.OVERTAKEN}
        return [t for t in found if t in stayed or (session.is_in_doubt and t in overtaken)]

    # --- the producer groups that are out of service, and during a call those of the call ---------

    def _follow(self, session: TransactionSession, group: ProducerGroup[Task]) -> None:
        """Let the tasks out of service have the state of their session; a fence is of all tasks."""
        if session.state is State.FENCED:
            late = group.take_all_out()
            self._log.pause([partition for task in late for partition in task.partitions])
            _enter(group.out, TaskState.FENCED)
        else:
            _enter(group.out, TaskState.RECOVERING)

    def _attend(self, groups: Sequence[ProducerGroup[Task]]) -> None:
        self._groups.update((group.session, group) for group in groups)

    def _keep_those_out(self) -> None:
        self._groups = {s: group for s, group in self._groups.items() if s.is_out}

    def _forget_released(self, groups: Sequence[ProducerGroup[Task]]) -> None:
        """Drop released producers; a successor may have them, or a new group their ids."""
        kept = {group.session for group in groups}
        for session in [session for session in self._groups if session not in kept]:
            del self._groups[session]
            if session.fence is not None:
                self._events.warning(
                    "successor_took_over", transactional_id=session.transactional_id
                )


def _enter(tasks: Iterable[Task], state: TaskState) -> None:
    for task in tasks:
        if task.state is not state:
            task.enter(state)
