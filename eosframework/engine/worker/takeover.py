"""The takeover of partitions: their producers, their committed positions, and their tasks.

    inside the assignment callback
    T1. claim the tasks (`transactions/ownership`): K0 init the own ids, K1 add entries, K2 to K4
        init the ids of other entries and remove these. That fences the previous owners and ends
        their open transactions
    T2. read the stable committed offsets with their metadata; where a partition starts at its end,
        commit this position in a transaction of its task
    T3. assign at these offsets, paused
    outside the callback: the worker
    T4. bring state up to date
    T5. resume and consume read_committed

T1 precedes T2 because a pending offset of a zombie can change until its transaction has ended;
after the init it is decided.

The end of a log moves. If it were committed with the first record only, records that arrive at a
quiet partition during a restart would lie before the next start.

T1 to T3 happen inside the assignment callback, which has a deadline. So the inits run in
parallel, and each request is sent once for all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import structlog

from eosframework.engine.calls.call_runner import CallRunner
from eosframework.engine.effects.effects import Effects
from eosframework.engine.failures.failure_handler import FailureHandler
from eosframework.engine.restoration.local_state import LocalState
from eosframework.engine.task.call_queue import with_calls
from eosframework.engine.task.measurements import Measures, TransactionMeasures
from eosframework.engine.task.old_outputs import OldOutputs
from eosframework.engine.task.open_decision import OpenDecision
from eosframework.engine.task.open_state import SHARE, ChangesBudget
from eosframework.engine.task.producer_group import ProducerGroup
from eosframework.engine.task.task import Task
from eosframework.engine.task.task_time import Announcing
from eosframework.engine.worker.group_work import GroupWork, Settled, worker_policy
from eosframework.engine.worker.retries import delays_of, task_queue
from eosframework.engine.worker.settlement import WorkerSettlement
from eosframework.engine.worker.worker_plan import Plan, WorkerOptions
from eosframework.errors import ClusterUnreachable, Retriable, TaskFenced
from eosframework.records import Position, TopicPartition
from eosframework.transactions import failpoints
from eosframework.transactions.ownership import ByTask, Ownership
from eosframework.transactions.ports import (
    Commit,
    InputLog,
    Output,
    ProgressLedger,
    TransactionalOutput,
    TransactionalOutputs,
)
from eosframework.transactions.producing import fence, produce_all
from eosframework.transactions.session.transaction_session import TransactionSession
from eosframework.txnid import TransactionalId, effects_id


class Takeover:
    """Creates the tasks of newly assigned partitions.

    Args:
        state: the tasks' state on this machine; None: no sub-topology has stores.
        ownership: the claims of the worker's tasks.
        measures: collects the tasks' measurements; None: nothing is measured.
        clock: seconds, monotonic.
        now: seconds since the epoch, for retries.
        settlement: of what a database has decided; None: no task writes tables with its outputs.
        calls: runs the calls of coroutines; None: there are none.
        effects: journals those that take effect once; None: there are none.
    """

    def __init__(
        self,
        plan: Plan,
        log: InputLog,
        outputs: TransactionalOutputs,
        ledger: ProgressLedger,
        options: WorkerOptions,
        *,
        state: LocalState | None,
        ownership: Ownership,
        measures: Measures | None,
        clock: Callable[[], float],
        now: Callable[[], float],
        settlement: WorkerSettlement | None = None,
        calls: CallRunner | None = None,
        effects: Effects | None = None,
    ) -> None:
        self._plan = plan
        self._effects = effects
        self._calls = calls
        self._ownership = ownership
        self._settlement = settlement
        self._log = log
        self._outputs = outputs
        self._ledger = ledger
        self._options = options
        self._state = state
        self._measures = measures
        self._clock = clock
        self._now = now
        self._policy = worker_policy(
            options.transaction_timeout_seconds, options.heartbeat_interval_seconds
        )
        self._budget = ChangesBudget(options.queue_bytes // SHARE)
        self._events = structlog.get_logger("eosframework.worker", application=plan.application)
        self._unconfirmed = True
        self._kept_ms = dict(plan.kept_ms)

    def by_task(self, partitions: Sequence[TopicPartition]) -> ByTask:
        """Return the assigned partitions by task.

        Raises:
            RunError: a leased id is lacking, since a topic got a partition after the start.
        """
        found: dict[TransactionalId, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            sub_topology = self._plan.part_of(partition.topic).part.name
            identity = self._plan.identify(sub_topology, partition.partition)
            found.setdefault(identity, []).append(partition)
        return found

    def tasks(self, by_task: ByTask) -> tuple[list[Task], list[Position]]:
        """Return the tasks, and the start positions of their partitions (T1, T2).

        Raises:
            AssignmentLapsed: the group has another assignment by now.
            TransactionError: an id could not be inited; no task is left open.
            RunError: the partitions may not be processed here.
        """
        failpoints.hit("takeover.before_init")
        self._confirm([p for partitions in by_task.values() for p in partitions])
        producer_of = self._plan.producer_of
        own_ids = list(dict.fromkeys(map(producer_of, by_task)))
        journals = self._journals_of(by_task)
        self._ownership.prepare([*own_ids, *journals])
        outputs = self._outputs.open(own_ids)
        failpoints.hit("takeover.after_init")
        try:
            if self._effects is not None:
                self._effects.open(journals)
            self._ownership.claim(by_task, self._writers_of)
            self._ownership.take(by_task, [*own_ids, *journals], self._fence)
            if self._settlement is not None:
                self._settlement.settle(by_task, outputs)
        except BaseException:
            self._give_up(outputs)
            raise
        decisions = {} if self._settlement is None else self._settlement.open_decisions(by_task)
        groups = {
            output.transactional_id: self._new_group(output, decisions.get(output.transactional_id))
            for output in outputs
        }
        opened: list[Task] = []
        try:
            wanted = [p for ps in by_task.values() for p in ps]
            committed = self._log.committed(wanted) if wanted else []
            if self._settlement is not None:
                self._settlement.refuse_other_offsets(by_task, committed)
            starts = self._ledger.starting_positions(committed, self._log) if wanted else []
            positions = {start.topic_partition: start for start in starts}
            for identity, partitions in by_task.items():
                task = self._new_task(identity, partitions, groups[producer_of(identity)])
                opened.append(task)
                if self._effects is not None:
                    self._effects.follow(identity, task.reached_offset)
                task.start_at([positions[partition] for partition in partitions])
            self._commit_starts(groups, by_task, committed, starts)
        except BaseException:
            for task in opened:
                task.close()
            if self._effects is not None:
                self._effects.release(by_task)
            self._give_up(outputs)
            raise
        return opened, starts

    def _journals_of(self, tasks: Iterable[TransactionalId]) -> list[str]:
        """Return the ids of the journals of effects of tasks."""
        parts = self._plan.parts
        having = [t for t in tasks if parts[t.sub_topology].part.effects_topic is not None]
        return [effects_id(id_) for id_ in dict.fromkeys(map(self._plan.producer_of, having))]

    def _writers_of(self, task: TransactionalId) -> list[str]:
        """Return the ids that write for a task."""
        return [self._plan.producer_of(task), *self._journals_of([task])]

    def _give_up(self, outputs: Sequence[TransactionalOutput]) -> None:
        self._outputs.close(outputs)
        if self._effects is not None:
            self._effects.give_up()

    def membership_was_lost(self) -> None:
        """Confirm the facts found at the start again, at the next assignment."""
        self._unconfirmed = True

    def _has_more(self, partition: TopicPartition, offset: int) -> bool:
        return self._log.lag({partition: offset}) > 0

    def _fence(self, ids: Sequence[str]) -> None:
        """Init ids, and settle what they have decided, before their entries are removed."""
        fence(self._outputs, ids)
        if self._settlement is not None:
            self._settlement.settle_others(ids)

    def _confirm(self, partitions: Sequence[TopicPartition]) -> None:
        # First: a worker that started before a reset, or has lost the partitions, fences nothing.
        try:
            self._log.confirm_assignment(partitions)
        except ClusterUnreachable as error:
            raise Retriable(str(error)) from error
        if self._unconfirmed:
            self._ledger.confirm_start()
            self._unconfirmed = False
        self._ledger.confirm_members()

    def _commit_starts(
        self,
        groups: Mapping[str, ProducerGroup[Task]],
        by_task: ByTask,
        committed: Sequence[Position],
        starts: Sequence[Position],
    ) -> None:
        """Commit the positions of partitions that start at their end, with their markers (T2).

        Without this commit, a later takeover would find another end, and records would be lost:

            1. an InitProducerId of this worker arrives late, after its repetition: it fences its
               sender
            2. the commit of the start is refused, and a record arrives
            3. the worker is killed before its first commit; its successor starts at the new end

        So a fenced takeover is repeated: nothing was announced yet. If the fence is that of a
        successor, the repetition ends before an init: the group has another assignment.

        A takeover whose commit is suspect is repeated as well:

            1. the commit is done; the worker is suspended before its producer is replaced
            2. a successor takes over and moves the positions
            3. the worker resumes, and its re-init fences the successor; the positions that it has
               read are over

        The repetition reads the positions, which are committed now, so it commits none.

        Raises:
            TransactionError: the outcome of a commit is unknown, or the commit was fenced or
                suspect; the next takeover reads it.
        """
        identities = {p: identity for identity, partitions in by_task.items() for p in partitions}
        new: dict[ProducerGroup[Task], list[Position]] = {}
        for found, start in zip(committed, starts, strict=True):
            partition = start.topic_partition
            if found.offset is None and self._ledger.starts_at_end(partition):
                group = groups[self._plan.producer_of(identities[partition])]
                new.setdefault(group, []).append(start)
        if not new:
            return
        membership = self._log.membership()
        commits: list[Commit] = []
        for group, positions in new.items():
            group.output.begin()
            produce_all(group.output, [*self._markers_of(identities, positions)])
            commits.append(Commit(group.output, positions, membership))
        for group, result in zip(new, self._outputs.commit(commits), strict=True):
            if result.recycled:
                raise Retriable(
                    f"transactional.id {group.transactional_id}: its producer was replaced after "
                    f"the commit of the start, so the positions are read again"
                )
            if isinstance(result.error, TaskFenced):
                raise Retriable(f"the start was not committed: {result.error}")
            if result.error is not None:
                raise result.error

    def _markers_of(
        self,
        identities: Mapping[TopicPartition, TransactionalId],
        positions: Sequence[Position],
    ) -> Iterator[Output]:
        for partition in (position.topic_partition for position in positions):
            if marker := self._ledger.marker(identities[partition].sub_topology, partition):
                yield marker

    def _new_group(
        self, output: TransactionalOutput, decision: OpenDecision | None
    ) -> ProducerGroup[Task]:
        session: TransactionSession[Settled] = TransactionSession(output, self._policy, self._clock)
        group: ProducerGroup[Task] = ProducerGroup(session, self._clock, self._measures, decision)
        GroupWork(group, self._log, self._ownership)
        return group

    def _new_task(
        self,
        identity: TransactionalId,
        partitions: Sequence[TopicPartition],
        group: ProducerGroup[Task],
    ) -> Task:
        compiled = self._plan.parts[identity.sub_topology]
        markers = {
            partition: marker
            for partition in partitions
            if (marker := self._ledger.marker(identity.sub_topology, partition))
        }
        stores = self._state.open(compiled, identity.partition) if self._state else None
        effects = None
        if self._effects is not None:
            effects = self._effects.join(identity, compiled.part, group.transactional_id)
        return self._plan.make_task(
            identity,
            {p.topic: compiled.sources[p.topic] for p in partitions},
            group.output,
            markers=markers,
            transaction_timeout_seconds=self._options.transaction_timeout_seconds,
            clock=self._clock,
            receipts=self._plan.receipts,
            queue=with_calls(
                task_queue(
                    compiled, partitions, self._options, self._clock, self._now, self._has_more
                ),
                compiled,
                self._calls,
                effects,
            ),
            emissions=compiled.emissions,
            stores=stores,
            measures=None if self._measures is None else TransactionMeasures(self._measures),
            failures=FailureHandler(
                delays_of(compiled.part),
                self._now,
                self._plan.internal_topics,
                compiled.limits,
            ),
            group=group,
            budget=self._budget,
            old_outputs=OldOutputs(
                self._kept_ms, compiled.part.sink_topics, self._clock, self._now
            ),
            announcing=Announcing(
                identity.partition,
                self._plan.downstream.get(identity.sub_topology, ()),
                self._options.watermark_interval_seconds,
            ),
        )
