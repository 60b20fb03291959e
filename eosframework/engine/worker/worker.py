"""The worker: one consumer, one main thread, and a task for each assigned partition number.

`takeover` states the steps by which it takes partitions over, T1 to T5.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from eosframework.engine.calls.call_runner import CallPoll, CallRunner
from eosframework.engine.effects.effects import EffectPorts, Effects
from eosframework.engine.effects.journal import Journal
from eosframework.engine.effects.reading import JournalReading
from eosframework.engine.failures.failure_handler import LatePlace
from eosframework.engine.restoration.held_input import HeldInput
from eosframework.engine.restoration.local_state import LocalState
from eosframework.engine.task.measurements import Measures
from eosframework.engine.task.open_state import SHARE
from eosframework.engine.task.task import RUN_SHARE, Task, producer_groups
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.worker.catch_up import CatchUp
from eosframework.engine.worker.commit_interval import gather_seconds
from eosframework.engine.worker.commit_rounds import CommitRounds
from eosframework.engine.worker.fetch_control import FetchControl
from eosframework.engine.worker.quiet_tasks import IdleWindows, Passing, QuietTasks
from eosframework.engine.worker.settlement import WorkerSettlement
from eosframework.engine.worker.takeover import Takeover
from eosframework.engine.worker.wall_clock import WallClock
from eosframework.engine.worker.worker_plan import Plan, WorkerCounts, WorkerOptions
from eosframework.engine.worker.worker_views import (
    LateNotice,
    PauseNotice,
    WorkerView,
    add_task,
    call_figures,
    committed_positions,
    keyless_records,
    late_places,
    late_records,
    task_view,
    with_tasks,
)
from eosframework.errors import (
    EntryDamaged,
    EosError,
    IdentityChanged,
    MatchedTopicsChanged,
    Retriable,
    RunError,
    TransactionError,
    TransactionFatal,
)
from eosframework.records import Position, TopicPartition
from eosframework.transactions import failpoints
from eosframework.transactions.ownership import ByTask, Ownership
from eosframework.transactions.ports import (
    Decisions,
    Fetched,
    Identities,
    InputLog,
    ProgressLedger,
    Purger,
    TransactionalOutputs,
)
from eosframework.txnid import TransactionalId

RETRY_SECONDS = (0.2, 3.0)
"""First and longest pause before a failed takeover is retried; it doubles. A random part keeps two
takers of one partition from giving up in turns."""

IDLE_SECONDS = 0.1
"""Fetch timeout while no transaction is open."""

COUNT_SECONDS = 0.1
"""The counts are taken at this interval: for 64 tasks that takes 0.5 ms, a turn about 10 ms."""


class Worker:
    """Runs the cycle until it is stopped.

    Args:
        state: the tasks' state on this machine; None: no sub-topology has stores.
        ownership: the claims of the tasks; None: there are no transactions.
        decisions: the database of tables that are written with the outputs; None: there are none.
        purger: deletes processed records of internal topics; None: they are kept.
        identities: compares topics with those of the start; None: they cannot change.
        now: seconds since the epoch, for retries.
        measured: whether to count records by topic, for `view`.
        on_round: called after each turn, with counts that are at most `COUNT_SECONDS` old.
        calls: runs the calls of coroutines; None: one of its own, if there are any.
        effects: for the journal of effects; None: no step has any.
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
        ownership: Ownership | None = None,
        decisions: Decisions | None = None,
        purger: Purger | None = None,
        identities: Identities | None = None,
        measured: bool = False,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        on_round: Callable[[WorkerCounts], None] | None = None,
        calls: CallRunner | None = None,
        effects: EffectPorts | None = None,
    ) -> None:
        self.counts = WorkerCounts()
        self.tasks: dict[TransactionalId, Task] = {}
        self._measures = Measures()
        self._state = state
        self._purger = purger
        self._identities = identities
        self._restored: list[Task] = []
        self._plan = plan
        self._log = log
        self._outputs = outputs
        self._ledger = ledger
        self._options = options
        self._clock = clock
        self._on_round = on_round
        self._shown, self._show_at = self.counts, clock()
        self._ownership = ownership or Ownership()
        self._decisions = decisions
        settlement = None
        if decisions is not None:
            seconds = options.transaction_timeout_seconds
            settlement = WorkerSettlement(decisions, outputs, log, plan, seconds)
        if calls is None and plan.makes_calls:
            calls = CallRunner(options.queue_bytes // SHARE)
        self._calls = calls
        self._effects = None
        if effects is not None and calls is not None:
            self._effects = self._new_effects(effects, calls, now)
        self._call_poll = CallPoll()
        self._takeover = Takeover(
            plan,
            log,
            outputs,
            ledger,
            options,
            state=state,
            ownership=self._ownership,
            settlement=settlement,
            measures=self._measures if measured else None,
            clock=clock,
            now=now,
            calls=calls,
            effects=self._effects,
        )
        self._rounds = CommitRounds(
            log,
            outputs,
            self._ownership,
            self.counts,
            options,
            clock,
            self._round_finished,
            settlement,
        )
        self._stop = False
        self._fetch_control = FetchControl(log, options.queue_bytes)
        self._next_task = 0
        self._was_assigned = False
        self._has_backlog = False
        self._catch_up: CatchUp | None = None
        self._membership: object = None
        self._unreadable: dict[TopicPartition, RunError] = {}
        self._wall_clock = WallClock(now)
        self._idle_windows = IdleWindows(plan, log, clock)
        self._quiet_tasks = QuietTasks(log, options.max_task_idle_seconds, clock, self._may_be_idle)
        self._passing = Passing(plan, log, options.watermark_interval_seconds, clock)
        self._late_notice, self._pause_notice = LateNotice(clock), PauseNotice(clock)
        self._held_input = HeldInput(log, options.transaction_timeout_seconds, clock)
        self._late_of_released: Counter[LatePlace] = Counter()
        self._keyless_of_released: Counter[LatePlace] = Counter()
        self._events = structlog.get_logger("eosframework.worker", application=plan.application)

    def _new_effects(
        self, ports: EffectPorts, calls: CallRunner, now: Callable[[], float]
    ) -> Effects:
        journal = Journal(
            ports.outputs,
            self._log.membership,
            self._ownership.renew,
            ports.background(),
            clock=self._clock,
            now=now,
            fenced_seconds=2 * self._options.heartbeat_interval_seconds,
            purger=ports.purger,
        )
        reading = JournalReading(ports.topics, self._log, self._clock, now)
        return Effects(calls, journal, reading, ports.run, self._clock)

    def stop(self) -> None:
        """Ask the worker to commit complete work and return; safe in a signal handler."""
        self._stop = True

    def run(self, *, until_caught_up: bool = False) -> WorkerCounts:
        """Consume, transform, produce and commit until `stop`.

        Args:
            until_caught_up: also stop once every partition is processed, by this worker or another,
                up to the end that it had at the start.

        Raises:
            RunError: processing cannot continue; complete work was committed.
            MatchedTopicsChanged: the topics that a pattern matches are others; likewise.
            InstanceFenced: another worker uses this worker's identity.
        """
        if until_caught_up:
            self._catch_up = CatchUp(
                self._log,
                self._plan,
                self._ledger,
                self._clock,
                max_idle_seconds=self._options.max_task_idle_seconds,
            )
        self.start()
        try:
            while not self._stop and not (self._is_caught_up() and self._are_confirmed()):
                self.turn()
            if self._stop:
                self._are_confirmed()
            self._drain()
            self._rounds.commit([*self.tasks.values()], self._options.stop_deadline_seconds / 2)
        except BaseException as caught:
            error = self._explained(caught)
            self._close_after(error)
            if self._stop and isinstance(error, Retriable):
                self._events.warning("stopped_without_an_answer", error=str(error))
                return self.counts
            if self._stop and isinstance(error, MatchedTopicsChanged):
                return self.counts
            if isinstance(error, EntryDamaged) and self._state is not None:
                raise self._state.located(error) from error
            if error is not caught:
                raise error from caught
            raise
        self._close()
        return self.counts

    def view(self) -> WorkerView:
        """Return a snapshot of this worker; on the main thread."""
        tasks = tuple(map(task_view, self.tasks.values()))
        return WorkerView(
            self._snapshot(),
            tasks,
            self._was_assigned,
            self._measures.snapshot(),
            None if self._decisions is None else self._decisions.unavailable,
            late=late_places(self._plan.parts.values())
            | late_records(self._late_of_released, self.tasks.values()),
            keyless=keyless_records(self._keyless_of_released, self.tasks.values()),
            calls=call_figures(self._plan.parts.values(), self._calls),
            matched=self._plan.matched,
        )

    def start(self) -> None:
        """Join the group; required before the first `turn`."""
        self._log.subscribe(self._plan.topics, self)

    # --- rebalances: called inside the consumer's callbacks -----------------------------

    def assigned(self, partitions: list[TopicPartition]) -> list[Position]:
        """Take partitions over (T1 to T3); see `RebalanceListener`."""
        self._was_assigned = True
        by_task = self._takeover.by_task(partitions)
        deadline = self._clock() + self._options.takeover_deadline_seconds
        pause_seconds, longest_seconds = RETRY_SECONDS
        while True:
            try:
                return self._take_over(by_task)
            except TransactionFatal:
                raise
            except TransactionError as error:
                if self._stop or self._clock() >= deadline:
                    raise
                self._events.warning("takeover_retried", error=str(error))
                time.sleep(pause_seconds * random.uniform(0.5, 1.0))
                pause_seconds = min(2 * pause_seconds, longest_seconds)

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Commit open transactions and release partitions; see `RebalanceListener`."""
        leaving = self._tasks_of(partitions)
        self._drain()
        failpoints.hit("revoke.before_commit")
        self._rounds.commit(
            [task for task in leaving if task.state is TaskState.RUNNING],
            self._options.stop_deadline_seconds,
        )
        failpoints.hit("revoke.after_commit")
        self._release(leaving, "partitions_revoked")

    def _drain(self) -> None:
        """Let the effects that have begun end, so that the next owner finds no doubt."""
        if self._effects is not None:
            self._effects.drain(self._options.stop_deadline_seconds / 3)

    def lost(self, partitions: list[TopicPartition]) -> None:
        """Release partitions without a commit: another worker may own them already."""
        self._takeover.membership_was_lost()
        self._release(self._tasks_of(partitions), "partitions_lost")

    def _take_over(self, by_task: ByTask) -> list[Position]:
        tasks, starts = self._takeover.tasks(by_task)
        for task in tasks:
            identity = task.identity
            self.tasks[identity] = task
            self._events.info(
                "task_assigned",
                task=identity.name,
                transactional_id=task.group.transactional_id,
                offsets={str(p): offset for p, offset in task.positions.items()},
            )
        return starts

    def _tasks_of(self, partitions: Sequence[TopicPartition]) -> list[Task]:
        gone = set(partitions)
        groups = producer_groups(self.tasks.values())
        return [task for b in groups if gone.intersection(b.partitions) for task in b.tasks]

    def _release(self, tasks: Sequence[Task], event: str) -> None:
        groups = producer_groups(tasks)
        for task in tasks:
            task.enter(TaskState.CLOSED)
            task.close()
            add_task(self.counts, task)
            self._late_of_released += task.late_records.committed
            self._keyless_of_released += task.keyless_records.committed
            del self.tasks[task.identity]
            self._events.info(
                event,
                task=task.identity.name,
                transactional_id=task.group.transactional_id,
            )
            for partition in task.partitions:
                self._unreadable.pop(partition, None)
        # An entry may go only if nothing of its producer is undecided or on its way; otherwise the
        # next owner inits the id.
        clean = [task for group in groups if group.is_clean for task in group.tasks]
        if self._effects is not None:
            self._effects.release(task.identity for task in tasks)
        self._outputs.close([group.output for group in groups])
        for group in groups if event != "task_closed" else ():
            if group.session.fence is not None:
                id_ = group.transactional_id
                self._events.warning("successor_took_over", transactional_id=id_)
        self._ownership.release(task.identity for task in clean)
        self._ownership.forget(task.identity for task in tasks)

    # --- one turn of the cycle ----------------------------------------------------------

    def turn(self) -> None:
        """Run one turn: fetch, run, commit due transactions, recover failed producers."""
        self._take_in()
        self._run_tasks()
        self._refuse_unreadable()
        self._rounds.turn([*self.tasks.values()], backlog=self._has_backlog)
        if not self._stop:
            self._rounds.recover([*self.tasks.values()])
        self._resume_assigned()
        self._compare()
        if self._state is not None:
            has_backlog = any(task.has_work for task in self.tasks.values())
            self._state.follow(self.tasks.keys(), busy=has_backlog)
        self._report()

    def _take_in(self) -> None:
        """Poll the consumer: messages, ends of partitions, rebalances."""
        backlog = any(task.has_work for task in self.tasks.values())
        self._fetch_control.turn(self.tasks.values())
        busy = any(task.in_transaction for task in self.tasks.values())
        if backlog or (self._state is not None and self._state.records_left):
            wait_seconds = 0.0
        elif busy:
            wait_seconds = self._rounds.remaining_seconds()
        else:
            wait_seconds = IDLE_SECONDS
        if self._calls is not None:
            self._calls.check()
            wait_seconds = min(wait_seconds, self._call_poll.seconds(self._calls))
        # Rebalances arrive with a fetch; pausing partitions would discard prefetched records.
        limit = 1 if backlog else self._options.batch_records
        fetched = self._log.fetch(limit, wait_seconds, self._gather_seconds(backlog))
        self._has_backlog = backlog or sum(map(len, fetched.messages.values())) >= limit
        self._distribute(fetched)

    def _gather_seconds(self, backlog: bool) -> float:
        """Return the time for which a few records wait for more; turns have a fixed cost."""
        if backlog:
            return 0.0
        wanted_seconds = gather_seconds(self._options.commit_interval_seconds)
        return min(wanted_seconds, self._rounds.remaining_seconds())

    def _distribute(self, fetched: Fetched) -> None:
        """Pass fetched messages and ends to the tasks that own the partitions.

        Tasks that are not running get nothing. A rebalance during the fetch may have created such a
        task, and the messages were fetched for the previous one: they are fetched again from the
        position of the new task, and so is the end.
        """
        self._membership = fetched.membership
        self._unreadable.update(fetched.unreadable)
        if not fetched.messages and not fetched.ends:
            return
        running = [task for task in self.tasks.values() if task.state is TaskState.RUNNING]
        owners = {partition: task for task in running for partition in task.positions}
        for partition, messages in fetched.messages.items():
            if (task := owners.get(partition)) is not None:
                size_bytes = fetched.sizes.get(partition, 0)
                task.add(partition, messages, fetched.membership, size_bytes)
        for partition, offset in fetched.ends.items():
            if (task := owners.get(partition)) is not None:
                task.reached_end(partition, offset)

    def _run_tasks(self) -> None:
        """Run pending records."""
        began = self._clock()
        until, found = began + self._rounds.remaining_seconds(), False
        # A transaction that was open before the pass has grown old while others ran.
        ends = min(
            (b.began_at or began for b in producer_groups(self.tasks.values())), default=began
        )
        ends += self._options.transaction_timeout_seconds * RUN_SHARE
        tasks = [*self.tasks.values()]
        first = self._next_task % len(tasks) if tasks else 0
        for number, task in enumerate([*tasks[first:], *tasks[:first]], first):
            if task.state is not TaskState.RUNNING:
                continue
            if self._state is not None and self._state.is_waiting(task):
                continue
            if found and self._clock() >= ends:
                self._next_task = number
                break
            try:
                if task.has_work:
                    found = True
                    task.run(until, self._membership)
                    if task.group.room == 0:  # The next transaction is of the tasks after this one.
                        self._next_task = number + 1
                if task.has_rest or not task.group.may_run(task):
                    continue
                self._wall_clock.look_at(task, self._membership)
                if task.stores or task.time.is_kept:
                    self._idle_windows.look_at(task, self._membership)
                    self.counts.closed_by_clock = self._idle_windows.closings
                    self._passing.look_at(task, self.tasks.values(), self._membership)
                    self._quiet_tasks.look_at(task, self._membership)
                if task.lags_behind_markers and self._has_rested(task):
                    task.commit_markers(self._membership)
            except TransactionError as error:
                self._rounds.failed(task.group, error)

    def _has_rested(self, task: Task) -> bool:
        """Return whether a task had no record for a commit interval."""
        return self._clock() - task.idle_since >= self._options.commit_interval_seconds

    def _refuse_unreadable(self) -> None:
        """Raise for a batch that cannot be read, once all messages before it were run."""
        for task in self.tasks.values() if self._unreadable else ():
            for partition in self._unreadable.keys() & task.positions.keys():
                if not task.has_fetched(partition):
                    raise self._unreadable[partition]

    def _round_finished(self, tasks: Sequence[Task], took_seconds: float) -> None:
        self._measures.commit_seconds.add(took_seconds)
        # Internal topics have no other readers.
        if self._purger is not None and (own := self._plan.own_topics):
            self._purger.committed(committed_positions(tasks, own))

    def _resume_assigned(self) -> None:
        """Bring state up to date and resume (T4, T5).

        The topics are compared between the two: ids never return, so what was restored came from
        the recorded changelogs, and the committed positions belong to the recorded sources.
        """
        waiting = [task for task in self.tasks.values() if task.state is TaskState.ASSIGNED]
        ready = [task for task in waiting if task not in self._restored]
        if self._effects is not None and ready:
            read = self._effects.read(task.identity for task in ready)
            ready = [task for task in ready if task.identity in read]
        if self._state is not None:
            ready = self._state.turn(ready)
        ready = [*(task for task in self._restored if task in waiting), *ready]
        self._restored = []
        if ready and not self._are_confirmed():
            self._restored = ready
            return
        for task in ready:
            failpoints.hit("takeover.after_assign")
            task.enter(TaskState.RUNNING)
            self._fetch_control.note_paused(task.partitions)

    def _compare(self) -> None:
        """Compare topics and committed offsets with those of the start, when it is due."""
        if self._identities is None:
            return
        self._identities.turn(self._positions)
        if self._state is not None and self._identities.renewed():
            self._state.renew_tables()

    def _are_confirmed(self) -> bool:
        """Compare topics and committed offsets now; return False if the brokers do not answer."""
        return self._identities is None or self._identities.confirm(self._positions)

    def _positions(self) -> dict[TopicPartition, int]:
        return {p: t.committed_offset(p) for t in self.tasks.values() for p in t.partitions}

    def _explained(self, error: BaseException) -> BaseException:
        """Return the error that ends the worker: another topic than before has many effects."""
        if isinstance(error, RunError | TransactionError):
            try:
                self._are_confirmed()
            except (IdentityChanged, MatchedTopicsChanged) as changed:
                return changed
            except RunError:
                return error
        return error

    def _is_caught_up(self) -> bool:
        if self._catch_up is None or not self._was_assigned:
            return False
        return self._catch_up.is_done(self.tasks.values())

    def _may_be_idle(self, task: Task, partitions: Sequence[TopicPartition]) -> bool:
        return self._catch_up is None or self._catch_up.may_be_idle(task, partitions)

    def _report(self) -> None:
        self._late_notice.turn(late_records(self._late_of_released, self.tasks.values()))
        self._held_input.turn(self.tasks.values())
        if (now := self._clock()) >= self._show_at:
            self._shown, self._show_at = self._snapshot(), now + COUNT_SECONDS
            self._pause_notice.turn(self._shown)
        if self._on_round is not None:
            self._on_round(self._shown)

    # --- the end -----------------------------------------------------------------------

    def _snapshot(self) -> WorkerCounts:
        tasks = self.tasks.values()
        return replace(
            with_tasks(self.counts, tasks),
            lag=self._log.lag({p: o for task in tasks for p, o in task.unread.items()}),
            restoring=0 if self._state is None else self._state.records_left,
        )

    def _close_after(self, error: BaseException) -> None:
        """Commit complete work and close, without hiding `error`."""
        try:
            # Nothing of another topic may be committed as the application's.
            if isinstance(error, EosError) and not isinstance(error, IdentityChanged):
                complete = [task for task in self.tasks.values() if task.failure is None]
                self._rounds.commit(complete, self._options.stop_deadline_seconds / 2)
        except EosError as second:
            self._events.warning("last_commit_failed", error=str(second))
        try:
            # A static member that stays would get the former assignment back (KIP-345).
            self._close(leave=isinstance(error, MatchedTopicsChanged))
        except EosError as second:
            self._events.warning("close_failed", error=str(second))

    def _close(self, *, leave: bool = False) -> None:
        """Close the producers, then leave the group, so that no open transaction is handed over.

        Args:
            leave: leave the group whatever `leave_on_stop` says.
        """
        tasks = list(self.tasks.values())
        self._release(tasks, "task_closed")
        if self._catch_up is None:
            self._late_notice.warn(self._late_of_released)
        else:
            self._late_notice.sum_up(self._late_of_released)
        if self._calls is not None:
            self._calls.close()
        if self._effects is not None:
            self._effects.close()
        self._pause_notice.warn(self.counts)
        if self._state is not None:
            self._state.close()
        self._outputs.stop()
        if self._decisions is not None:
            self._decisions.close()
        self._log.close(leave=leave or self._options.leave_on_stop)
        if self._purger is not None:
            self._purger.close()
