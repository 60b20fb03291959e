"""The worker: one consumer, one main thread, a task for each partition number it was given.

Taking over a partition (§ numbers are the protocol's, the tests cite them):

    inside the assignment callback
    T1. init the transactional.id of every task, in parallel: fences the last owner and ends
        what it left open; ids that an earlier topology used for the partition are inited too
    T2. read the committed offsets, stable ones, with their metadata
    T3. assign at these offsets, paused
    outside the callback
    T4. bring state up to date
    T5. resume and consume read_committed

T1 comes before T2 because an offset that a zombie has pending can still change until its
transaction is ended; after init it is decided.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from eosframework import failpoints
from eosframework.errors import EosError, Retriable, TransactionError, TransactionFatal
from eosframework.processing.catching_up import CatchingUp
from eosframework.processing.compile import CompiledPart
from eosframework.processing.idling import IdleWindows
from eosframework.processing.late import LateNotice
from eosframework.processing.local_state import LocalState
from eosframework.processing.measures import Flow, Measures
from eosframework.processing.overtime import RecordTimer
from eosframework.processing.plan import Plan, WorkerCounts, WorkerOptions
from eosframework.processing.ports import (
    Fetched,
    InputLog,
    ProgressLedger,
    TransactionalOutput,
    TransactionalOutputs,
)
from eosframework.processing.queues import ArrivalQueue, Queue, TimestampQueue
from eosframework.processing.recovery import Recovery
from eosframework.processing.rounds import CommitRounds
from eosframework.processing.state_ports import Bounds
from eosframework.processing.states import TaskState
from eosframework.processing.task import Task
from eosframework.processing.views import WorkerView, add_task, task_view, with_tasks
from eosframework.records import Position, TopicPartition
from eosframework.txnid import TransactionalId

RETRY_SECONDS = 0.2
"""Pause before partitions that could not be taken over are tried again."""

IDLE_SECONDS = 0.1
"""How long a look at the consumer waits when no transaction is open."""


class Worker:
    """Runs the cycle until it is told to stop.

    Args:
        state: of the tasks on this machine; None: no sub-topology has stores.
        purge: told how far own topics were read; may remove what lies behind.
        hold_nothing: tells whether there is no record in ranges of partitions.
        measured: count what goes through by topic, for `view`.
        on_round: called about ten times a second, for progress displays.
    """

    def __init__(
        self,
        plan: Plan,
        log: InputLog,
        outputs: TransactionalOutputs,
        ledger: ProgressLedger,
        options: WorkerOptions,
        *,
        state: LocalState | None = None,
        purge: Callable[[Sequence[Position]], None] | None = None,
        hold_nothing: Callable[[Bounds], bool] | None = None,
        measured: bool = False,
        clock: Callable[[], float] = time.monotonic,
        on_round: Callable[[WorkerCounts], None] | None = None,
    ) -> None:
        self.counts = WorkerCounts()
        self.tasks: dict[TransactionalId, Task] = {}
        self._measures = Measures()
        self._is_measured = measured
        self._state = state
        self._purge = purge
        self._hold_nothing = hold_nothing
        self._plan = plan
        self._log = log
        self._outputs = outputs
        self._ledger = ledger
        self._options = options
        self._clock = clock
        self._on_round = on_round
        self._timer = RecordTimer()
        self._recovery = Recovery(
            log, outputs, options.heartbeat_interval_seconds, self.counts, clock
        )
        self._rounds = CommitRounds(
            outputs, self._recovery, options, self.counts, clock, self._round_finished
        )
        self._stop = False
        self._flowing: set[TopicPartition] = set()
        self._was_assigned = False
        self._is_behind = False
        self._catching_up: CatchingUp | None = None
        self._membership: object = None
        self._idle_windows = IdleWindows(plan, log, state, clock)
        self._late_notice = LateNotice(clock)
        self._events = structlog.get_logger("eosframework.worker").bind(
            application=plan.application
        )

    def stop(self) -> None:
        """Ask the worker to commit what is complete and return; safe in a signal handler."""
        self._stop = True

    def run(self, *, until_caught_up: bool = False) -> WorkerCounts:
        """Consume, transform, produce and commit until `stop`.

        Args:
            until_caught_up: also stop once every partition is read to the end it had at the
                start, by this worker or by others.

        Raises:
            RunError: processing cannot go on; what was complete is committed.
            InstanceFenced: another worker took this one's identity over.
        """
        if until_caught_up:
            self._catching_up = CatchingUp(
                self._log, self._plan, self._ledger, self._hold_nothing, self._clock
            )
        self.start()
        try:
            while not self._stop and not self._is_caught_up():
                self.turn()
            self._rounds.commit([*self.tasks.values()], self._options.stop_deadline_seconds / 2)
        except BaseException as error:
            self._close_after(error)
            if self._stop and isinstance(error, Retriable):
                self._events.warning("stopped_without_an_answer", error=str(error))
                return self.counts
            raise
        self._close()
        return self.counts

    def view(self) -> WorkerView:
        """Return what there is to see of this worker now; on the main thread."""
        tasks = tuple(map(task_view, self.tasks.values()))
        return WorkerView(self._snapshot(), tasks, self._was_assigned, self._measures.snapshot())

    def start(self) -> None:
        """Join the group; `run` does so, and whoever calls `turn` does so first."""
        self._log.subscribe(self._plan.topics, self)

    # --- partitions come and go: called inside the consumer's callbacks -----------------

    def assigned(self, partitions: list[TopicPartition]) -> list[Position]:
        """Take partitions over (T1 to T3); see `RebalanceListener`."""
        self._rounds.settle(self.tasks.values())
        self._was_assigned = True
        by_task: dict[TransactionalId, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            sub_topology = self._plan.part_of(partition.topic).part.name
            identity = self._plan.identify(sub_topology, partition.partition)
            by_task.setdefault(identity, []).append(partition)
        deadline = self._clock() + self._options.takeover_deadline_seconds
        while True:
            try:
                return self._take_over(by_task)
            except TransactionFatal:
                raise
            except TransactionError as error:
                if self._stop or self._clock() >= deadline:
                    raise
                self._events.warning("takeover_retried", error=str(error))
                time.sleep(RETRY_SECONDS)

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Finish what is open and let partitions go; see `RebalanceListener`."""
        self._rounds.settle(self.tasks.values())
        leaving = self._tasks_of(partitions)
        failpoints.hit("revoke.before_commit")
        self._rounds.commit(
            [task for task in leaving if task.state is TaskState.RUNNING],
            self._options.stop_deadline_seconds,
        )
        failpoints.hit("revoke.after_commit")
        self._release(leaving, "partitions_revoked")

    def lost(self, partitions: list[TopicPartition]) -> None:
        """Let partitions go without a commit: another worker may own them already."""
        self._rounds.settle(())
        self._release(self._tasks_of(partitions), "partitions_lost")

    def _take_over(self, by_task: Mapping[TransactionalId, list[TopicPartition]]) -> list[Position]:
        failpoints.hit("takeover.before_init")
        self._fence_former_ids(by_task)
        outputs = self._outputs.open([str(identity) for identity in by_task])
        failpoints.hit("takeover.after_init")
        opened: dict[TransactionalId, Task] = {}
        try:
            starts: list[Position] = []
            for (identity, partitions), output in zip(by_task.items(), outputs, strict=True):
                committed = self._log.committed(partitions)
                positions = self._ledger.starting_positions(
                    identity.sub_topology, committed, self._log
                )
                opened[identity] = task = self._new_task(identity, partitions, output)
                task.start_at(positions)
                starts += positions
        except BaseException:
            for task in opened.values():
                task.close_stores()
            self._outputs.close(outputs)
            raise
        for identity, task in opened.items():
            self.tasks[identity] = task
            self._events.info(
                "task_assigned",
                task=f"{identity.sub_topology}[{identity.partition}]",
                transactional_id=str(identity),
                offsets={str(p): offset for p, offset in task.positions.items()},
            )
        return starts

    def _new_task(
        self,
        identity: TransactionalId,
        partitions: Sequence[TopicPartition],
        output: TransactionalOutput,
    ) -> Task:
        compiled = self._plan.parts[identity.sub_topology]
        markers = {
            partition: marker
            for partition in partitions
            if (marker := self._ledger.marker(identity.sub_topology, partition))
        }
        stores = self._state.open(compiled, identity.partition) if self._state else None
        return Task(
            identity,
            {p.topic: compiled.sources[p.topic] for p in partitions},
            output,
            markers=markers,
            transaction_timeout_seconds=self._options.transaction_timeout_seconds,
            timer=self._timer,
            clock=self._clock,
            receipts=self._plan.receipts,
            queue=self._new_queue(compiled, partitions),
            emissions=compiled.emissions,
            stores=stores,
            flow=Flow(self._measures) if self._is_measured else None,
        )

    def _new_queue(self, compiled: CompiledPart, partitions: Sequence[TopicPartition]) -> Queue:
        if len(partitions) == 1:
            return ArrivalQueue()
        times = {p: compiled.sources[p.topic].time_of for p in compiled.in_turn(partitions)}
        return TimestampQueue(times, self._options.max_task_idle_seconds, self._clock)

    def _fence_former_ids(self, by_task: Mapping[TransactionalId, list[TopicPartition]]) -> None:
        if former := self._ledger.former_ids(by_task):
            self._outputs.close(self._outputs.open(former))
        self._ledger.confirm_ids(by_task)

    def _tasks_of(self, partitions: Sequence[TopicPartition]) -> list[Task]:
        gone = set(partitions)
        return [task for task in self.tasks.values() if gone.intersection(task.positions)]

    def _release(self, tasks: Sequence[Task], event: str) -> None:
        for task in tasks:
            task.enter(TaskState.CLOSED)
            task.close_stores()
            add_task(self.counts, task)
            del self.tasks[task.identity]
            self._events.info(event, transactional_id=str(task.identity))
        self._outputs.close([task.output for task in tasks])

    # --- one turn of the cycle ----------------------------------------------------------

    def turn(self) -> None:
        """Fetch, run, commit what is due, and bring back what had failed: once."""
        self._take_in()
        if not self._run_tasks():
            self._rounds.settle(self.tasks.values())
        self._rounds.turn([*self.tasks.values()], behind=self._is_behind)
        if not self._stop:
            if self._recovery.is_due():
                self._rounds.settle(self.tasks.values())
            self._recovery.turn([*self.tasks.values()])
        self._resume_assigned()
        if self._state is not None:
            is_behind = any(task.has_pending for task in self.tasks.values())
            self._state.follow(self.tasks.keys(), busy=is_behind)
        self._report()

    def _take_in(self) -> None:
        """Look at the consumer: messages, ends of partitions, rebalances."""
        others = [task for task in self.tasks.values() if not self._rounds.holds(task)]
        if not any(task.state is TaskState.RUNNING for task in others):
            self._rounds.settle(self.tasks.values())
            others = [*self.tasks.values()]
        behind = any(task.has_pending for task in others)
        self._let_flow()
        busy = any(task.in_transaction for task in self.tasks.values())
        if (
            behind
            or self._rounds.is_under_way
            or (self._state is not None and self._state.records_left)
        ):
            wait_seconds = 0.0
        elif busy:
            wait_seconds = self._rounds.remaining_seconds()
        else:
            wait_seconds = IDLE_SECONDS
        # To hear of rebalances takes a fetch. Pausing for it would discard what is fetched ahead.
        limit = 1 if behind else self._options.batch_records
        fetched = self._log.fetch(limit, wait_seconds)
        self._is_behind = behind or sum(map(len, fetched.messages.values())) >= limit
        self._distribute(fetched)

    def _let_flow(self) -> None:
        """Fetch running tasks' partitions, but those of which enough waits for others."""
        assigned = {p for task in self.tasks.values() for p in task.positions}
        running = [t for t in self.tasks.values() if t.state is TaskState.RUNNING]
        wanted = {p for task in running for p in task.positions}
        wanted.difference_update(p for task in running for p in task.full_partitions)
        if started := sorted(wanted - self._flowing):
            self._log.resume(started)
        if stopped := sorted((self._flowing - wanted) & assigned):
            self._log.pause(stopped)
        self._flowing = wanted

    def _distribute(self, fetched: Fetched) -> None:
        self._membership = fetched.membership
        owners = {partition: task for task in self.tasks.values() for partition in task.positions}
        for partition, messages in fetched.messages.items():
            task = owners.get(partition)
            if task is not None and task.state is TaskState.RUNNING:
                task.add(partition, messages, fetched.membership)
        for partition, offset in fetched.ends.items():
            task = owners.get(partition)
            if task is not None:
                task.reached_end(partition, offset)

    def _run_tasks(self) -> bool:
        """Run what may be run, and tell whether there was anything."""
        until, found = self._clock() + self._rounds.remaining_seconds(), False
        for task in list(self.tasks.values()):
            if task.state is not TaskState.RUNNING or self._rounds.holds(task):
                continue
            found = found or task.has_pending
            try:
                task.run(until)
                self._idle_windows.look_at(task, self.tasks.values(), self._membership)
            except TransactionError as error:
                self._recovery.failed(task, error)
        return found

    def _round_finished(self, tasks: Sequence[Task], took_seconds: float) -> None:
        self._measures.commit_seconds.add(took_seconds)
        self._tell_own_positions(tasks)

    def _tell_own_positions(self, tasks: Sequence[Task]) -> None:
        """Say how far the application has read what it sent to itself; nobody else reads it."""
        own = self._plan.own_topics
        if own and self._purge is not None:
            self._purge(
                [
                    Position(*partition, task.committed_offset(partition))
                    for task in tasks
                    for partition in task.partitions
                    if partition.topic in own
                ]
            )

    def _resume_assigned(self) -> None:
        """Bring state up to date and start reading (T4, T5)."""
        ready = [task for task in self.tasks.values() if task.state is TaskState.ASSIGNED]
        if self._state is not None:
            ready = self._state.turn(ready)
        for task in ready:
            failpoints.hit("takeover.after_assign")
            task.enter(TaskState.RUNNING)
            self._flowing.difference_update(task.positions)

    def _is_caught_up(self) -> bool:
        if self._catching_up is None or not self._was_assigned or self._rounds.is_under_way:
            return False
        return self._catching_up.is_done(self.tasks.values())

    def _report(self) -> None:
        self._late_notice.turn(self.counts.late + sum(t.late_records for t in self.tasks.values()))
        if self._on_round is not None:
            self._on_round(self._snapshot())

    # --- the end -----------------------------------------------------------------------

    def _snapshot(self) -> WorkerCounts:
        tasks = self.tasks.values()
        return replace(
            with_tasks(self.counts, tasks),
            lag=self._log.lag({p: o for task in tasks for p, o in task.positions.items()}),
            restoring=0 if self._state is None else self._state.records_left,
        )

    def _close_after(self, error: BaseException) -> None:
        """Commit what is complete and close, without hiding `error`."""
        try:
            if isinstance(error, EosError):
                complete = [task for task in self.tasks.values() if task.failure is None]
                self._rounds.commit(complete, self._options.stop_deadline_seconds / 2)
        except EosError as second:
            self._events.warning("last_commit_failed", error=str(second))
        try:
            self._close()
        except EosError as second:
            self._events.warning("close_failed", error=str(second))

    def _close(self) -> None:
        """Discard the producers, then leave the group, so that nothing open is handed on."""
        tasks = list(self.tasks.values())
        self._release(tasks, "task_closed")
        if self._state is not None:
            self._state.close()
        self._outputs.stop()
        self._log.close(leave=self._options.leave_on_stop)
