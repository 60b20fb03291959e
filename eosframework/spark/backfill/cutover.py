"""Cutover: live workers continue at the offsets where a job ended.

Positions, stream time and internal topics in one step.

    C1. refuse a cutover that is not allowed, before any change
    C2. join the application's group as the only member, with every source partition assigned. From
        here on a new worker gets no partition before the cutover ends, and offsets sent by the
        cutover count only as long as it is the only member
    C3. init every id under which tasks run or ever ran live: this ends open transactions of stopped
        workers. Then claim the cutover's own (`transactions/session/owned_keys`), which decides an
        interrupted earlier cutover
    C4. check again, with all transactions decided: an earlier cutover may have been committed
    C5. one transaction: the offset of every source partition with its task's transaction number,
        stream time and numbering of receipts, the control records of a worker's first transaction,
        and the cutover itself

A crash at any point leaves all changes or none, and the cutover can be repeated. Live workers start
at the end of the range, with the state in the changelogs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from eosframework.application.composition.ids import id_source
from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import ControlState, ControlTopic
from eosframework.application.fencing import cutovers, fence_all
from eosframework.application.journal import KafkaJournal
from eosframework.application.start_checks import check_start
from eosframework.config import Settings
from eosframework.errors import ConfigurationError, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import GroupDescription, TopicDescription
from eosframework.kafka.client.throttling import Deadline
from eosframework.kafka.consumer.input_log import KafkaInputLog
from eosframework.kafka.worker_clients import consumer_client, group_settings, producers
from eosframework.records import Position, TopicPartition
from eosframework.spark.job.job_entry import (
    Job,
    JobState,
    cutover_key,
    decided_job,
    settled_job,
)
from eosframework.spark.job.stages import differences, fingerprint
from eosframework.topology.graph.graph import Graph
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Output
from eosframework.transactions.session.owned_keys import Claim, OwnedKey, OwnedKeys
from eosframework.transactions.session.session_states import Policy
from eosframework.txnid import TransactionalId, tables_group

_NAMED = 5
"""Number of tasks that a message lists."""


def live_positions(graph: Graph, state: JobState) -> list[Position]:
    """Return the start of live workers in every source partition of a complete job.

    An internal topic resumes at its fixed end; a topic replaced by files at the job's live start.
    Receipts of these count rows, so that live workers begin another numbering there. That of a
    range of the log continues. Sources added to the topology later are left out.
    """
    job = state.job
    in_rows = {*job.own_starts, *job.files}
    return [
        Position(
            source.topic,
            number,
            end,
            progress.metadata
            if source.topic in in_rows
            else progress.metadata_of(TopicPartition(source.topic, number)),
        )
        for part in graph.sub_topologies
        for source in part.sources
        for number, end in enumerate(_range_ends(state, source.topic))
        if (progress := state.tasks.get((part.name, number))) is not None
    ]


def _range_ends(state: JobState, topic: str) -> tuple[int, ...]:
    """Return the end of the job's range in each partition of a topic; empty: not read."""
    if topic in state.job.own_starts:
        return state.ends.get(topic, ())
    return tuple(one.end for one in state.job.ranges.get(topic, ()))


def _range_starts(state: JobState, topic: str) -> tuple[int, ...]:
    """Return the start of the job's range in each partition of a topic."""
    if topic in state.job.own_starts:
        return state.job.own_starts[topic]
    return tuple(one.first for one in state.job.ranges[topic])


def refuse_suffix(job: Job) -> None:
    """Raise if a job writes suffixed topics and tables."""
    if job.suffix is not None:
        raise ConfigurationError(
            f"job {job.name!r} fills topics and tables with the suffix {job.suffix!r}, so there "
            f"is nothing to cut over; compare them with the live ones: `eosframework backfill diff`"
        )


def refuse_another_topology(graph: Graph, job: Job) -> None:
    """Raise if live workers would run another topology than the job."""
    if changed := differences(job.fingerprint, fingerprint(graph)):
        raise StartRefused(
            f"job {job.name!r} ran another topology: {', '.join(changed)} changed since, so live "
            f"workers would resume from another topology's state; restore the job's topology, cut "
            f"over, and change it then"
        )


def refuse_incomplete(
    graph: Graph, state: JobState, topics: Mapping[str, TopicDescription]
) -> None:
    """Raise unless the job has processed every source of the live workers to its end."""
    name = state.job.name
    for topic, topic_id in sorted(state.job.topic_ids.items()):
        found = topics[topic]
        if not found.exists or found.topic_id != topic_id:
            raise StartRefused(
                f"topic {topic!r} was deleted{' and created again' if found.exists else ''} since "
                f"job {name!r} started: its offsets mean other records now; start a new job"
            )
        count = _partitions_read(state.job, topic)
        if count is not None and found.partitions != count:
            raise StartRefused(
                f"topic {topic!r} has {found.partitions} partitions, and job {name!r} has read it "
                f"with {count}: keys have moved to other partitions; start a new job"
            )
    if missing := list(dict.fromkeys(incomplete(graph, state))):
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise StartRefused(
            f"job {name!r} is not complete: {', '.join(missing[:_NAMED])}{more}; run it to its end "
            f"with `eosframework backfill run APP --job {name}`"
        )


def incomplete(graph: Graph, state: JobState) -> Iterator[str]:
    """Yield descriptions of unfinished work."""
    for part in graph.sub_topologies:
        for source in part.sources:
            ends = _range_ends(state, source.topic)
            if not ends:
                yield f"the end of topic {source.topic} is not fixed yet"
            for number in range(len(ends)):
                progress = state.tasks.get((part.name, number))
                if progress is None:
                    yield f"task {part.name}[{number}] has not begun"
                elif not progress.complete:
                    yield f"task {part.name}[{number}] is after {progress.records:,} records"
    if graph.table_sinks and state.tables_at is None:
        yield "the tables do not have all rows yet"


def refuse_members(group: str, facts: GroupDescription, instance: str) -> None:
    """Raise if an application runs.

    Args:
        group: its name.
        facts: the coordinator's description of the group.
        instance: of the cutover, which may be left in the group by a killed one.
    """
    others = [one for one in facts.instances if one != instance]
    if others:
        raise StartRefused(
            f"group {group!r} has {len(others)} running workers; stop them before the cutover (a "
            f"killed one counts until worker.session_timeout_seconds have passed)"
        )


def refuse_positions(
    graph: Graph,
    wanted: Sequence[Position],
    committed: Sequence[Position],
    registered: ControlState,
) -> None:
    """Raise if an application has processed records live."""
    targets = {position.topic_partition: position.offset for position in wanted}
    for position in sorted(committed, key=lambda p: p.topic_partition):
        partition = position.topic_partition
        is_elsewhere = position.offset is not None and position.offset != targets.get(partition)
        is_forgotten = position.offset is None and partition in registered.committed
        if is_elsewhere or is_forgotten:
            where = "before" if position.offset is None else f"up to offset {position.offset}"
            raise StartRefused(
                f"application {graph.application!r} has processed {partition} live {where}, and "
                f"the cutover would set it to {targets.get(partition)}: records would be left out "
                f"or processed twice. A backfill is cut over into an application that never ran: "
                f"give the topology another application name and backfill that. Where live "
                f"workers already process the records after the range, there is nothing to cut over"
            )


def refuse_live_ends(
    graph: Graph, state: JobState, wanted: Sequence[Position], committed: Sequence[Position]
) -> None:
    """Raise if a worker processed the range live, exactly to its end.

    Only for offsets that are decided, of a job that is not cut over: before that, an equal offset
    may come from a cutover whose other partitions are not decided yet.
    """
    targets = {position.topic_partition: position.offset for position in wanted}
    for position in sorted(committed, key=lambda p: p.topic_partition):
        partition, offset = position.topic_partition, position.offset
        if offset is None or offset != targets.get(partition):
            continue
        if offset > _range_starts(state, partition.topic)[partition.partition]:
            raise StartRefused(
                f"application {graph.application!r} has processed {partition} live up to offset "
                f"{offset}, the end of the range of job {state.job.name!r}: the records of the "
                f"range took effect twice. A backfill is cut over into an application that never "
                f"ran: give the topology another application name and backfill that"
            )


def refuse_outside_log(
    positions: Sequence[Position],
    bounds: Mapping[TopicPartition, tuple[int, int]],
    *,
    accept_lost: bool,
) -> None:
    """Raise if the next record to process was deleted, or the log is another one."""
    for position in positions:
        partition, offset = position.topic_partition, position.offset
        assert offset is not None, "a range has an end"
        first, end = bounds[partition]
        if offset > end:
            raise StartRefused(
                f"{partition} ends at offset {end}, before offset {offset}, the end of the job's "
                f"range: the log was truncated, and the next records may be other ones; start a "
                f"new job"
            )
        if offset < first and not accept_lost:
            raise StartRefused(
                f"{partition} begins at offset {first} by now, and the job has read up to offset "
                f"{offset}: retention deleted the records between them. Start a new job that reads "
                f"up to now; or, to resume without them: --accept-lost"
            )


def lost_ranges(
    positions: Sequence[Position], bounds: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the ranges of deleted records, by partition."""
    return {
        position.topic_partition: (position.offset, first)
        for position in positions
        if position.offset is not None
        and position.offset < (first := bounds[position.topic_partition][0])
    }


def _partitions_read(job: Job, topic: str) -> int | None:
    if topic in job.own_starts:
        return len(job.own_starts[topic])
    return len(job.ranges[topic]) if topic in job.ranges else None


_JOIN_SECONDS = 60.0
"""Longest wait to become the group's only member, in addition to the session timeout."""

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class CutoverResult:
    """The result of a cutover.

    Args:
        at: time, in milliseconds since the epoch.
        positions: of all source partitions, with their metadata.
        lost: accepted ranges of deleted records after the job's range.
        was_before: an earlier cutover did it; nothing was changed.
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
) -> CutoverResult:
    """Let live workers resume at the end of a complete job; a repetition changes nothing.

    Args:
        graph: of the application.
        settings: of its workers.
        name: of the job.
        admin: admin client of the cluster.
        registry: control topic of the application.
        accept_lost: resume at the beginning of a log that lost records after the range.

    Raises:
        ConfigurationError: the job does not exist, or writes suffixed topics.
        StartRefused: the job is incomplete, the application runs or ran, a topic was created again,
            or records after the range were deleted. Nothing was changed.
        EosError: the brokers did not confirm it; all changes were made or none, and the same
            command finds out which.
    """
    journal = KafkaJournal(graph.application, settings.kafka, admin)
    state = _job(journal, graph, name)
    if state.cut_over_at is not None:
        return CutoverResult(state.cut_over_at, live_positions(graph, state), {}, was_before=True)
    instance = f"cutover.{name}"
    _refuse(graph, settings, state, admin, registry, instance)
    positions = live_positions(graph, state)
    lost = _lost(positions, admin, accept=accept_lost)
    positions = [
        Position(p.topic, p.partition, lost.get(p.topic_partition, (0, p.offset))[1], p.metadata)
        for p in positions
    ]
    cutover = _Cutover(graph, settings, state, positions, admin, registry, journal, instance)
    return CutoverResult(cutover.run(), positions, lost)


def _job(journal: KafkaJournal, graph: Graph, name: str) -> JobState:
    """Return the job; waits for open transactions only if it appears incomplete.

    A killed cutover leaves its transaction open, after all progress; C3 ends it.
    """
    state = decided_job(journal, name)
    if state is None or any(incomplete(graph, state)):
        state = settled_job(journal, name)
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
) -> None:
    """Apply every rule without membership (C1), and register the topology as a worker does."""
    refuse_another_topology(graph, state.job)
    topics = admin.describe_topics(state.job.topic_ids)
    refuse_incomplete(graph, state, topics)
    for group in (graph.application, tables_group(graph.application)):
        refuse_members(group, admin.describe_group(group), instance)
    context = ApplicationContext(graph, settings, admin, registry)
    committed = check_start(context, id_source(settings)).committed
    refuse_positions(graph, live_positions(graph, state), committed, registry.state)


def _lost(
    positions: Sequence[Position], admin: ClusterAdmin, *, accept: bool
) -> dict[TopicPartition, tuple[int, int]]:
    bounds = admin.log_bounds([position.topic_partition for position in positions])
    refuse_outside_log(positions, bounds, accept_lost=accept)
    return lost_ranges(positions, bounds)


class _Cutover:
    """One allowed cutover (C2 to C5)."""

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        state: JobState,
        positions: Sequence[Position],
        admin: ClusterAdmin,
        registry: ControlTopic,
        journal: KafkaJournal,
        instance: str,
    ) -> None:
        self._graph = graph
        self._settings = settings
        self._state = state
        self._positions = positions
        self._admin = admin
        self._registry = registry
        self._outputs = producers(settings, topics=[registry.topic])
        self._member = _OnlyMember(graph.application, settings, instance)
        self._events = structlog.get_logger("eosframework.backfill").bind(
            application=graph.application, job=state.job.name
        )
        policy = Policy(
            settings.worker.transaction_timeout_seconds,
            successor=f"another cutover of job {state.job.name!r}",
            advice="All changes were made or none, and the same command finds out which",
        )
        self._keys: OwnedKeys[int] = OwnedKeys(
            self._outputs, journal, policy, self._events, lost="Start a new job"
        )

    def run(self) -> int:
        """Return the time of the cutover, in milliseconds since the epoch."""
        owned: list[OwnedKey[int]] = []
        try:
            if self._positions:
                self._member.join([position.topic_partition for position in self._positions])
            failpoints.hit("cutover.after_join")
            claim = cutover_claim(self._state.job)
            self._fence(claim.transactional_id)
            owned = self._keys.claim([claim])
            failpoints.hit("cutover.after_init")
            at = self._commit(owned[0])
        finally:
            self._keys.close(owned)
            self._outputs.stop()
            self._member.leave()
        self._events.info("cut_over", at=at, partitions=len(self._positions))
        return at

    def _fence(self, own_id: str) -> None:
        """Init every id, so that none hides an entry from the claim (C3)."""
        fence_all(
            lambda found: cutovers(self._graph, found) | {own_id}, self._settings, self._registry
        )

    def _commit(self, owned: OwnedKey[int]) -> int:
        """Check again, and commit, unless an earlier cutover was committed (C4, C5)."""
        while owned.known is None:
            self._keys.patiently(self._refuse_changes, owned.claim.name)  # of a coordinator
            membership = self._member.membership() if self._positions else None
            markers, at = [self._markers()], round(time.time() * 1000)
            self._keys.write(owned, markers, at, self._positions, membership)
        return owned.known

    def _refuse_changes(self) -> None:
        """Refuse changes since C1 (C4)."""
        committed = self._admin.committed(
            self._graph.application, [position.topic_partition for position in self._positions]
        )
        refuse_positions(self._graph, self._positions, committed, self._registry.refresh())
        refuse_live_ends(self._graph, self._state, self._positions, committed)

    def _markers(self) -> list[Output]:
        parts = {s.topic: part.name for part in self._graph.sub_topologies for s in part.sources}
        return [
            self._registry.committed_marker(parts[p.topic], p.topic_partition)
            for p in self._positions
        ]


def cutover_claim(job: Job) -> Claim[int]:
    """Return the claim of the cutover of a job."""
    return Claim(
        str(TransactionalId.backfill(job.application, job.name, 0)),
        f"the cutover of job {job.name!r}",
        cutover_key(job.name),
        lambda entry: entry["at"],
        lambda at: {"at": at},
    )


class _OnlyMember:
    """Exclusive membership in an application's group (C2).

    While a worker joins, the group waits for this member to give its partitions up, and offsets
    that it sends still count; once the partitions are revoked they do not (KIP-447).
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
            StartRefused: another member has some of them, or the group assigns none in time.
        """
        self._wanted = frozenset(partitions)
        self._log.subscribe(sorted({partition.topic for partition in partitions}), self)
        deadline = Deadline(_JOIN_SECONDS + self._session_seconds)
        while self._given is None:
            if deadline.is_over:
                raise StartRefused(
                    f"group {self._application!r} assigned no partitions for "
                    f"{_JOIN_SECONDS + self._session_seconds:g} s, so nothing was cut over; "
                    f"check whether its coordinator is up (`eosframework doctor APP`)"
                )
            self._log.fetch(1, _POLL_SECONDS)
        self._refuse_company()

    def membership(self) -> object:
        """Return the group metadata for `send_offsets`.

        Raises:
            StartRefused: a worker joined meanwhile.
        """
        membership = self._log.fetch(1, 0).membership
        self._refuse_company()
        return membership

    def leave(self) -> None:
        """Leave the group."""
        self._log.close(leave=True)

    def assigned(self, partitions: list[TopicPartition]) -> list[Position]:
        """Record the assignment; see `RebalanceListener`."""
        self._given = frozenset(partitions)
        return [Position(*partition, None) for partition in partitions]

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        self._given = (self._given or frozenset()) - set(partitions)

    def lost(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions that another member may have."""
        self.revoked(partitions)

    def _refuse_company(self) -> None:
        if self._given != self._wanted:
            raise StartRefused(
                f"the cutover is not the only member of group {self._application!r} any more, so "
                f"nothing was changed: a worker joined meanwhile, or the group's coordinator was "
                f"unavailable for longer than worker.session_timeout_seconds="
                f"{self._session_seconds:g}; stop workers, wait for the brokers, and try again"
            )
