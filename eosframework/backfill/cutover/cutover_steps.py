"""From history to live: positions, stream time and own topics set in one step.

    C1. refuse what cannot be cut over, before anything is touched
    C2. join the application's group alone, and be given every source partition: from here on a
        worker that comes gets none before this is over, and what is sent counts only while it is so
    C3. init the id of the cutover, which decides an earlier one that was cut short, and every id
        under which tasks run or ever ran live: whatever a stopped worker left open is ended
    C4. look again, now that nothing is in doubt: an earlier cutover may have come through
    C5. one transaction: the position of every source partition with its task's transaction number
        and stream time, what a worker's first transaction leaves in the registry, and that the job
        is cut over

A crash anywhere leaves nothing or everything, and the same may be done again. Live workers then
begin with the record behind the range, and with what the changelogs hold.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from eosframework import failpoints
from eosframework.application.control_topic import ControlTopic
from eosframework.application.fencing import fence, live_ids
from eosframework.application.start_checks import Facts, check_start
from eosframework.backfill.cutover.cutover_rules import (
    incomplete,
    live_positions,
    lost_ranges,
    refuse_another_topology,
    refuse_incomplete,
    refuse_members,
    refuse_outside_log,
    refuse_positions,
    refuse_suffix,
)
from eosframework.backfill.job.job_entry import cutover_key
from eosframework.backfill.job.job_log import JobLog
from eosframework.backfill.job.job_state import JobState
from eosframework.config import Settings
from eosframework.errors import ConfigurationError, RunError, StartRefused, TransactionError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.deadline import Deadline
from eosframework.kafka.consumer.input_log import KafkaInputLog
from eosframework.kafka.worker_clients import consumer_client, group_settings, producers
from eosframework.processing.ports import Commit, Output, TransactionalOutput
from eosframework.records import Position, TopicPartition
from eosframework.runtime.ids import id_source
from eosframework.topology.graph.graph import Graph
from eosframework.txnid import TransactionalId, tables_group

ATTEMPTS = 3
"""How often the transaction is tried."""

JOIN_SECONDS = 60.0
"""How long becoming the group's only member may take, a session that has to expire left out."""

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class CutOver:
    """What live workers go on from.

    Args:
        at: when, in milliseconds since the epoch.
        positions: of all source partitions, with what stands beside them.
        lost: ranges of records behind the job's that are gone from the log; accepted.
        was_before: nothing was changed: it had been done.
    """

    at: int
    positions: Sequence[Position]
    lost: Mapping[TopicPartition, tuple[int, int]]
    was_before: bool = False


def cut_over(
    graph: Graph,
    settings: Settings,
    name: str,
    admin: ClusterAdmin,
    registry: ControlTopic,
    *,
    accept_lost: bool = False,
) -> CutOver:
    """Let live workers go on where a complete job ends; doing it again changes nothing.

    Args:
        graph: of the application.
        settings: of its workers.
        name: of the job.
        admin: asks the cluster.
        registry: of the application.
        accept_lost: go on at the beginning of a log that has lost records behind the range.

    Raises:
        ConfigurationError: there is no such job, or it writes beside the live topics.
        StartRefused: the job is not complete, the application runs or ran, a topic is not the one
            that was read, or records behind the range are gone. Nothing was changed.
        TransactionError: the brokers did not take it; nothing or everything was changed, and the
            same command finds out which.
    """
    log = JobLog(name, graph.application, settings.kafka, admin)
    state = _job(log, graph, name)
    if state.cut_over_at is not None:
        return CutOver(state.cut_over_at, live_positions(graph, state), {}, was_before=True)
    instance = f"cutover.{name}"
    facts = _refuse(graph, settings, state, admin, registry, instance)
    positions = live_positions(graph, state)
    lost = _lost(positions, admin, accept=accept_lost)
    positions = [
        Position(p.topic, p.partition, lost.get(p.topic_partition, (0, p.offset))[1], p.metadata)
        for p in positions
    ]
    cutover = _Cutover(graph, settings, state, facts, positions, admin, registry, log, instance)
    return CutOver(cutover.run(), positions, lost)


def _job(log: JobLog, graph: Graph, name: str) -> JobState:
    """Return the job; waits for what is in doubt only where it does not seem complete.

    A cutover that was killed leaves its transaction open, behind all progress; C3 ends it.
    """
    state = log.watch()
    if state is None or any(incomplete(graph, state)):
        state = log.read()
    if state is None:
        raise ConfigurationError(
            f"application {graph.application!r} has no backfill job {name!r}; `eosframework "
            f"backfill status APP` lists those that there are"
        )
    refuse_suffix(state.job)
    return state


def _refuse(
    graph: Graph,
    settings: Settings,
    state: JobState,
    admin: ClusterAdmin,
    registry: ControlTopic,
    instance: str,
) -> Facts:
    """Apply every rule that needs no membership (C1); the topology is registered as by a worker."""
    refuse_another_topology(graph, state.job)
    topics = admin.describe_topics(state.job.topic_ids)
    refuse_incomplete(graph, state, topics)
    for group in (graph.application, tables_group(graph.application)):
        refuse_members(group, admin.describe_group(group), instance)
    facts = check_start(graph, settings, admin, registry, id_source(settings))
    refuse_positions(graph, live_positions(graph, state), facts.committed, registry.state)
    return facts


def _lost(
    positions: Sequence[Position], admin: ClusterAdmin, *, accept: bool
) -> dict[TopicPartition, tuple[int, int]]:
    bounds = admin.log_bounds([position.topic_partition for position in positions])
    refuse_outside_log(positions, bounds, accept_lost=accept)
    return lost_ranges(positions, bounds)


class _Cutover:
    """One cutover that nothing speaks against (C2 to C5)."""

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        state: JobState,
        facts: Facts,
        positions: Sequence[Position],
        admin: ClusterAdmin,
        registry: ControlTopic,
        log: JobLog,
        instance: str,
    ) -> None:
        self._graph = graph
        self._settings = settings
        self._job = state.job
        self._facts = facts
        self._positions = positions
        self._admin = admin
        self._registry = registry
        self._log = log
        self._id = str(TransactionalId.backfill(graph.application, state.job.name, 0))
        self._parts = {s.topic: part.name for part in graph.sub_topologies for s in part.sources}
        self._outputs = producers(settings, topics=[registry.topic])
        self._member = _OnlyMember(graph.application, settings, instance)
        self._events = structlog.get_logger("eosframework.backfill").bind(
            application=graph.application, job=state.job.name
        )

    def run(self) -> int:
        """Return when it was done, in milliseconds since the epoch."""
        opened: list[TransactionalOutput] = []
        try:
            if self._positions:
                self._member.join([position.topic_partition for position in self._positions])
            failpoints.hit("cutover.after_join")
            opened = self._outputs.open([self._id])
            self._fence()
            failpoints.hit("cutover.after_init")
            at = self._commit(opened[0])
        finally:
            self._outputs.close(opened)
            self._outputs.stop()
            self._member.leave()
        self._events.info("cut_over", at=at, partitions=len(self._positions))
        return at

    def _fence(self) -> None:
        """Init every id but the cutover's own, which is taken already (C3)."""
        graph, partitions = self._graph, self._facts.partitions
        fence(
            lambda found: set(live_ids(graph, found, partitions)) - {self._id},
            self._settings,
            self._registry,
        )

    def _commit(self, output: TransactionalOutput) -> int:
        """Commit, and find out by the registry where the answer does not tell (C4, C5)."""
        error: TransactionError | None = None
        for _ in range(ATTEMPTS):
            if (done_at := self._look()) is not None:
                return done_at
            at = round(time.time() * 1000)
            error = self._transaction(output, at)
            if error is None:
                return at
            self._events.warning("cutover_retried", error=str(error))
            [unmended] = self._outputs.recycle([output])
            if unmended is not None:
                raise unmended from error
        if (done_at := self._look()) is not None:
            return done_at
        raise error or RunError("the cutover was not tried")

    def _look(self) -> int | None:
        """Return when it was done, if it was; refuse what changed since C1 (C4)."""
        state = self._log.read()
        if state is not None and state.cut_over_at is not None:
            return state.cut_over_at
        committed = self._admin.committed(
            self._graph.application, [position.topic_partition for position in self._positions]
        )
        refuse_positions(self._graph, self._positions, committed, self._registry.refresh())
        return None

    def _transaction(self, output: TransactionalOutput, at: int) -> TransactionError | None:
        membership = self._member.membership() if self._positions else None
        try:
            output.begin()
            for entry in self._entries(at):
                output.produce(*entry)
        except TransactionError as error:
            return error
        except Exception as error:
            return output.explain(error)
        [committed] = self._outputs.commit([Commit(output, self._positions, membership)])
        return committed.error

    def _entries(self, at: int) -> list[Output]:
        markers = [
            self._registry.committed_marker(self._parts[p.topic], p.topic_partition)
            for p in self._positions
        ]
        return [*markers, self._log.output(cutover_key(self._job.name), {"at": at})]


class _OnlyMember:
    """Membership in an application's group that nobody else shares (C2).

    While a worker is joining, the group waits for this member to let its partitions go, and what
    it sends still counts; once they are gone it does not (KIP-447).
    """

    def __init__(self, application: str, settings: Settings, instance: str) -> None:
        self._application = application
        self._session_seconds = settings.worker.session_timeout_seconds
        self._wanted: frozenset[TopicPartition] = frozenset()
        self._given: frozenset[TopicPartition] | None = None
        self._log = KafkaInputLog(
            consumer_client(settings),
            group_settings(application, settings, instance),
            request_timeout_seconds=settings.kafka.request_timeout_seconds,
        )

    def join(self, partitions: Sequence[TopicPartition]) -> None:
        """Return as the only member, with all `partitions`.

        Raises:
            StartRefused: somebody else has some of them, or nobody gets them in time.
        """
        self._wanted = frozenset(partitions)
        self._log.subscribe(sorted({partition.topic for partition in partitions}), self)
        deadline = Deadline(JOIN_SECONDS + self._session_seconds)
        while self._given is None:
            if deadline.is_over:
                raise StartRefused(
                    f"group {self._application!r} gave nobody its partitions for "
                    f"{JOIN_SECONDS + self._session_seconds:g} s, so nothing was cut over; see "
                    f"whether its coordinator is up (`eosframework doctor APP`)"
                )
            self._log.fetch(1, POLL_SECONDS)
        self._refuse_company()

    def membership(self) -> object:
        """Return what goes into `send_offsets`.

        Raises:
            StartRefused: a worker came meanwhile.
        """
        membership = self._log.fetch(1, 0).membership
        self._refuse_company()
        return membership

    def leave(self) -> None:
        """Give the partitions to whoever comes."""
        self._log.close(leave=True)

    def assigned(self, partitions: list[TopicPartition]) -> list[Position]:
        """Note what this member was given; see `RebalanceListener`."""
        self._given = frozenset(partitions)
        return [Position(*partition, None) for partition in partitions]

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Note that it has them no more."""
        self._given = (self._given or frozenset()) - set(partitions)

    def lost(self, partitions: list[TopicPartition]) -> None:
        """Note that somebody else may have them."""
        self.revoked(partitions)

    def _refuse_company(self) -> None:
        if self._given != self._wanted:
            raise StartRefused(
                f"a worker of application {self._application!r} joined while it was cut over, so "
                f"nothing was changed; stop it and try again"
            )
