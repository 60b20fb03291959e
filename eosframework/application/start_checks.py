"""Checks before a start: the cluster's state must match the topology.

`gather` reads the state; every check is a pure function of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eosframework.application.application_reset import refuse_unfinished_reset
from eosframework.application.backfill_jobs import (
    JobStanding,
    backfill_jobs,
    refuse_unfinished_jobs,
)
from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import (
    APPLICATION,
    VERSION,
    ControlState,
    topic_entry,
    topic_key,
    written_entries,
)
from eosframework.application.fencing import fence_workers
from eosframework.application.foreign_topics import foreign_topics, refuse_foreign_topics
from eosframework.application.group_members import strangers
from eosframework.application.internal_topics import refuse_unfit_topics
from eosframework.application.leases import (
    given_ids,
    id_entries,
    task_names,
)
from eosframework.application.matched_topics import (
    EARLIEST,
    START,
    found_later,
    pattern_entries,
)
from eosframework.application.needed_access import (
    Access,
    naming_needed_access,
    needs_claims,
    ownership_access,
    refuse_denied,
    worker_access,
)
from eosframework.application.ownership_topic import (
    ownership_entry,
    ownership_of,
    refuse_lost_ownership,
    refuse_unfit_ownership,
)
from eosframework.application.start_positions import refuse_foreign_offsets, refuse_lost_offsets
from eosframework.application.topic_identity import (
    Use,
    refuse_replaced,
    replaced,
    resuming,
    written_uses,
)
from eosframework.application.topology_changes import (
    refuse_changes,
    refuse_running_workers,
    topology_changes,
    topology_entry,
    undrained_topics,
    unwritten_stores,
)
from eosframework.config import Guarantee, Settings
from eosframework.errors import MatchedTopicGone, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import (
    GroupDescription,
    SizeLimits,
    TopicDescription,
    TopicIdentity,
    Values,
    size_limits,
)
from eosframework.kafka.admin.verification import require_answered
from eosframework.records import Position, TopicPartition, partitions_of
from eosframework.topology.evolution import Change
from eosframework.topology.graph.graph import Graph
from eosframework.topology.spec.topology_spec import matches
from eosframework.txnid import (
    DerivedIds,
    IdSource,
    TransactionalId,
    co_partitioned,
    ownership_topic,
    tables_group,
)

_SINK = "sink/"
"""Prefix of the keys of entries of Spark's sinks."""


@dataclass(frozen=True, slots=True)
class Facts:
    """State of the cluster.

    Args:
        topics: every topic that the graph names, existing or not.
        committed: positions of the application's group in all source partitions.
        group: the application's.
        tables_group: the group of its table writers.
        brokers: settings of each broker; None: they may not be read.
        ids: of all tasks, if a worker is to start.
        changes: of the topology since the last start of a worker.
        ends: high watermarks of sources that were created again.
        unread: topics among these with unread records.
        foreign: internal topics with records that the application did not write.
        ownership: the ownership topic; None: the control topic has none yet.
    """

    cluster_id: str
    topics: Mapping[str, TopicDescription]
    control: ControlState
    committed: Sequence[Position] = ()
    ends: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    group: GroupDescription = field(default_factory=GroupDescription)
    tables_group: GroupDescription = field(default_factory=GroupDescription)
    brokers: Mapping[int, Values | None] = field(default_factory=dict[int, "Values | None"])
    ids: Sequence[TransactionalId] = ()
    changes: Sequence[Change] = ()
    unread: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()
    ownership: TopicDescription | None = None

    @property
    def partitions(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        return {name: topic.partitions for name, topic in self.topics.items()}

    @property
    def identities(self) -> dict[str, TopicIdentity]:
        """The identity of each topic that exists; one that is only planned has no id."""
        return {name: topic.identity for name, topic in self.topics.items() if topic.topic_id}

    def output_limits(self, graph: Graph) -> SizeLimits:
        """Return the size limits of the topics that `graph` writes, internal topics included."""
        written = [self.topics[name] for name in graph.written_topics if name in self.topics]
        chosen = any(part.dynamic_sinks for part in graph.sub_topologies)
        return size_limits(written, are_all=not chosen)

    def largest_input_bytes(self, graph: Graph) -> int | None:
        """Return the largest max.message.bytes of the sources; None if none could be read."""
        return size_limits(self.topics[name] for name in graph.source_topics).largest

    def broker_number(self, name: str) -> int | None:
        """Return a setting that all brokers share; None if one differs or cannot be read."""
        values = {(settings or {}).get(name) for settings in self.brokers.values()}
        return _number(values.pop()) if len(values) == 1 else None


Refuse = Callable[[Graph, Settings, "Facts"], None]
"""Raises if a start is not allowed."""


def check_worker_start(context: ApplicationContext, source: IdSource | None = None) -> Facts:
    """Perform `check_start`; between its steps 4 and 5, have the topic of workers' claims.

    Workers are also refused while a backfill job is unfinished.

    Raises:
        StartRefused, TopologyError, ClusterUnreachable: as `check_start`.
    """
    facts = _accepted(context, refuse_worker)
    if facts.control.ownership is None and needs_claims(context.graph, context.settings):
        context.control_topic.write(ownership_entry(_usable_topic(context)))
        facts = with_changes(context, gather(context))
    return _entered(context, source, facts)


def check_start(context: ApplicationContext, source: IdSource | None = None) -> Facts:
    """Refuse to start if the guarantee would not hold; then record the topology.

    1. gather  2. refuse  3. refuse brokers that do not verify transactions  4. if the topology has
       changed so that no worker of the old one may be left: fence all of them, and again from 1
    5. give each task its id  6. write the new entries of the control topic

    Without step 4 a worker that is suspended before its EndTxn could still add to a topic that was
    seen to be drained, or to a store that the new topology lacks.

    Args:
        context: of the application.
        source: of the ids; None: they are derived.

    Raises:
        StartRefused: names the mismatch and what to do; nothing was started.
        TopologyError: sources of a sub-topology are not co-partitioned.
        ClusterUnreachable: no broker answered in time.
    """
    return _entered(context, source, _accepted(context, refuse))


def _accepted(context: ApplicationContext, refuse: Refuse) -> Facts:
    """Perform steps 1 to 4."""
    graph, settings, control_topic = context.graph, context.settings, context.control_topic
    with naming_needed_access(_needed(graph, settings)):
        control_topic.ensure()
        control_topic.require_access()
        facts = with_changes(context, gather(context))
    refuse(graph, settings, facts)
    if settings.worker.guarantee is Guarantee.EXACTLY_ONCE:
        require_answered(
            settings.kafka.bootstrap_servers,
            facts.brokers,
            context.admin.broker_settings,
            assume=settings.kafka.assume_transaction_verification,
        )
        if any(change.verdict.stops_all for change in facts.changes):
            fence_workers(context)
            facts = with_changes(context, gather(context))
            refuse(graph, settings, facts)
    return facts


def _entered(context: ApplicationContext, source: IdSource | None, facts: Facts) -> Facts:
    """Perform steps 5 and 6."""
    graph, control_topic = context.graph, context.control_topic
    source = source or DerivedIds()
    names = task_names(graph, facts.partitions)
    ids = given_ids(source, names, facts.control)
    facts = replace(facts, ids=ids)
    control_topic.write(new_entries(graph, facts))
    control_topic.close()
    control_topic.refresh()
    return facts


def _usable_topic(context: ApplicationContext) -> str:
    """Create the ownership topic if it is missing, and return its id.

    Raises:
        StartRefused, ConfigurationError: it cannot be created, or not be read and written.
    """
    topic = ownership_of(context)
    topic_id = topic.ensure()
    refuse_denied_ownership(
        context.graph, context.admin.describe_topics([topic.topic])[topic.topic]
    )
    return topic_id


def gather(context: ApplicationContext) -> Facts:
    """Read all state that the checks need."""
    graph, admin = context.graph, context.admin
    topics = admin.describe_topics(
        {
            *graph.source_topics,
            *graph.sink_topics,
            *graph.table_sink_topics,
            *graph.changelog_topics,
            *graph.effects_topics,
            *graph.global_topics,
        }
    )
    # The first request about a group: if describing it is denied, other requests only time out.
    group = _group(graph.application, bool(graph.sub_topologies), admin)
    filling = _group(tables_group(graph.application), bool(graph.table_sinks), admin)
    brokers = admin.broker_settings()
    partitions = partitions_of({name: topics[name].partitions for name in graph.source_topics})
    control_topic = context.control_topic
    control_topic.refresh()
    foreign = foreign_topics(graph, topics, control_topic, admin)
    control = control_topic.state
    return Facts(
        cluster_id=admin.cluster_id(),
        topics=topics,
        control=control,
        foreign=foreign,
        committed=_committed(graph.application, partitions, control, admin),
        ends=_ends_of_replaced(graph, topics, control, admin),
        ownership=_ownership(graph.application, control, admin),
        group=group,
        tables_group=filling,
        brokers=brokers,
    )


def _ends_of_replaced(
    graph: Graph,
    topics: Mapping[str, TopicDescription],
    control: ControlState,
    admin: ClusterAdmin,
) -> dict[TopicPartition, int]:
    found = {
        name: topics[name].partitions
        for name in graph.source_topics
        if (known := control.topics.get(name)) is not None
        and topics[name].exists
        and known.topic_id != topics[name].topic_id
    }
    return admin.high_watermarks(partitions_of(found))


def _ownership(
    application: str, control: ControlState, admin: ClusterAdmin
) -> TopicDescription | None:
    if control.ownership is None:
        return None
    name = ownership_topic(application)
    return admin.describe_topics([name])[name]


def _group(name: str, is_used: bool, admin: ClusterAdmin) -> GroupDescription:
    return admin.describe_group(name) if is_used else GroupDescription()


def _committed(
    application: str,
    partitions: Sequence[TopicPartition],
    control: ControlState,
    admin: ClusterAdmin,
) -> list[Position]:
    """Return the committed positions, without waiting for transactions of others.

    The markers of a transaction reach the control topic and the offsets one after the other. If the
    control topic shows a first commit and its offset is missing, this waits for that marker.
    """
    # 1. a task's first transaction commits  2. its marker reaches the control topic, which shows
    # the partition as committed  3. its marker reaches __consumer_offsets. Read between 2 and 3
    # the offset looks lost, so these partitions are read again, and that read waits for 3.
    found = admin.committed(application, partitions, stable=False)
    on_its_way = [
        position.topic_partition
        for position in found
        if position.offset is None and position.topic_partition in control.committed
    ]
    settled = {p.topic_partition: p for p in admin.committed(application, on_its_way)}
    return [settled.get(position.topic_partition, position) for position in found]


def with_changes(context: ApplicationContext, facts: Facts) -> Facts:
    """Return the facts with the differences from the topology that ran before."""
    # The group was described before: a worker that has written a first record since is a member.
    changes = topology_changes(
        context.graph, facts.control, facts.topics, lambda: unwritten_stores(context, facts.topics)
    )
    unread = undrained_topics(context, changes)
    return replace(facts, changes=changes, unread=unread)


def refuse(graph: Graph, settings: Settings, facts: Facts) -> None:
    """Apply every check.

    Raises:
        StartRefused: of the first check that fails.
        TopologyError: sources of a sub-topology are not co-partitioned.
    """
    refuse_another_cluster(graph, facts)
    refuse_unfinished_reset(graph.application, facts.control)
    refuse_another_application(graph, facts)
    # Before topics that are missing: `apply` would create them, and refuses such a change as well.
    refuse_changes(graph.application, facts.changes, facts.unread)
    refuse_replaced(written_uses(graph), facts.control.written, facts.identities)
    refuse_missing_topics(graph, facts)
    refuse_denied_access(graph, settings, facts)
    for part in graph.sub_topologies:
        counts = {source.topic: facts.partitions[source.topic] for source in part.sources}
        co_partitioned(part.name, counts)
    # A foreign topic first: its settings and partitions are those of another program.
    refuse_foreign_topics(graph, facts.foreign, facts.topics)
    refuse_unfit_topics(graph, facts.topics)
    refuse_changed_topics(graph, facts)
    refuse_running_workers(graph.application, facts.changes, facts.group.client_ids)
    if facts.control.ownership is not None:
        found = facts.ownership
        topic_id = found.topic_id if found is not None and found.exists else None
        name = ownership_topic(graph.application)
        refuse_lost_ownership(facts.control, topic_id, name)
        if found is not None:
            refuse_unfit_ownership(name, found)
        refuse_denied_ownership(graph, found)
    refuse_lost_offsets(graph.application, facts.control, facts.committed)
    refuse_foreign_offsets(facts.control, facts.committed, lambda: facts.group)
    refuse_long_transactions(settings, facts)


def refuse_worker(graph: Graph, settings: Settings, facts: Facts) -> None:
    """Apply every check, including that of unfinished backfill jobs.

    Raises:
        StartRefused, TopologyError: as `refuse`.
    """
    refuse(graph, settings, facts)
    refuse_unfinished_jobs(graph, jobs_of(graph, facts), facts.committed)


def jobs_of(graph: Graph, facts: Facts) -> list[JobStanding]:
    """Return the backfill jobs of the application."""
    return backfill_jobs(graph, facts.control, facts.partitions)


def new_entries(graph: Graph, facts: Facts) -> dict[str, object]:
    """Return the entries that the control topic does not have yet."""
    entries: dict[str, object] = {APPLICATION: {"cluster_id": facts.cluster_id, "version": VERSION}}
    for part in graph.sub_topologies:
        for source in part.sources:
            topic = facts.topics[source.topic]
            entries[topic_key(source.topic)] = topic_entry(topic)
    known = facts.control.entries
    for topic in found_later(graph, known):
        entries[topic_key(topic)] = {**topic_entry(facts.topics[topic]), START: EARLIEST}
    lacking = {key: value for key, value in entries.items() if key not in known}
    patterns = pattern_entries(graph)
    lacking |= {key: entry for key, entry in patterns.items() if known.get(key) != entry}
    lacking |= topology_entry(graph, facts.control, facts.topics)
    recorded = facts.control.written
    unrecorded = {
        topic: facts.topics[topic].topic_id
        for topic in written_uses(graph)
        if topic not in recorded and facts.topics[topic].exists
    }
    lacking |= written_entries(unrecorded)
    return lacking | id_entries(facts.ids, facts.control)


def refuse_another_cluster(graph: Graph, facts: Facts) -> None:
    """Refuse a control topic that was created on another cluster, and copied here."""
    recorded = facts.control.cluster_id
    if recorded is not None and recorded != facts.cluster_id:
        raise StartRefused(
            f"the control topic of application {graph.application!r} was made on cluster "
            f"{recorded}, and this is cluster {facts.cluster_id}: offsets of the one mean "
            f"nothing on the other. Correct kafka.bootstrap_servers, or use another application "
            f"name on this cluster"
        )


def refuse_another_application(graph: Graph, facts: Facts) -> None:
    """Refuse an application whose name another application uses, or sinks of Spark."""
    if sinks := sorted({k.split("/")[1] for k in facts.control.entries if k.startswith(_SINK)}):
        raise StartRefused(
            f"application {graph.application!r} is that of Spark sinks on this cluster "
            f"({', '.join(sinks)}): a reset of one would remove the progress of the other. Give "
            f"this topology another name with application:, or the sinks with application="
        )
    declared, known = graph.source_topics, sorted(facts.control.topics)
    once = any(matches(one.pattern, topic) for one in graph.patterns for topic in known)
    if known and declared and not once and not set(declared) & set(known):
        raise StartRefused(
            f"application {graph.application!r} on this cluster reads {', '.join(known)}, and "
            f"this topology reads {', '.join(declared)}: two applications of one name would "
            f"fence each other. Give this one another name; or, if it is the same one with new "
            f"inputs, say so: eosframework positions set APP {declared[0]}=earliest"
        )
    if foreign := strangers(facts.group):
        raise StartRefused(
            f"consumer group {graph.application!r} has members that are no eosframework workers "
            f"({', '.join(foreign)}); expected none: they would take partitions away. Stop them, "
            f"or give this application another name"
        )


def refuse_missing_topics(graph: Graph, facts: Facts) -> None:
    """Refuse missing topics: brokers would auto-create them with defaults, or never."""
    missing = [topic for topic, found in sorted(facts.topics.items()) if not found.exists]
    written = graph.written_topics
    if gone := sorted(graph.matched_topics.keys() & set(missing)):
        raise MatchedTopicGone(f"source {_absent(gone)} any more, and a pattern matched it")
    if sources := [topic for topic in missing if topic not in written]:
        raise StartRefused(
            f"source {_absent(sources)}; correct the name in the topology, or create it with the "
            f"number of partitions it needs: `eosframework topics create {sources[0]} --partitions "
            f"N`"
        )
    if missing:
        raise StartRefused(
            f"{_absent(missing)}; create what is missing with `eosframework apply APP`, or correct "
            f"the name in the topology"
        )


def _absent(topics: Sequence[str]) -> str:
    return (
        f"topic {topics[0]} does not exist"
        if len(topics) == 1
        else f"topics {', '.join(topics)} do not exist"
    )


def refuse_denied_access(graph: Graph, settings: Settings, facts: Facts) -> None:
    """Refuse to start if an ACL is missing that the first record would need."""
    allowed: dict[tuple[str, str | None], frozenset[str] | None] = {
        ("Topic", name): topic.allowed for name, topic in facts.topics.items()
    }
    allowed["Group", graph.application] = facts.group.allowed
    allowed["Group", tables_group(graph.application)] = facts.tables_group.allowed
    refuse_denied(_needed(graph, settings), allowed)


def refuse_denied_ownership(graph: Graph, topic: TopicDescription | None) -> None:
    """Refuse a principal that may not claim partitions."""
    name = ownership_topic(graph.application)
    allowed = None if topic is None else topic.allowed
    refuse_denied([ownership_access(graph.application)], {("Topic", name): allowed})


def _needed(graph: Graph, settings: Settings) -> list[Access]:
    return worker_access(graph, settings, graph.source_topics, graph.sink_topics)


def refuse_changed_topics(graph: Graph, facts: Facts) -> None:
    """Refuse a source topic that is not the recorded one."""
    for topic in graph.source_topics:
        recorded, found = facts.control.topics.get(topic), facts.topics[topic]
        if recorded is None:
            continue
        if recorded.topic_id != found.topic_id:
            ends = {p.partition: end for p, end in facts.ends.items() if p.topic == topic}
            raise StartRefused(
                replaced(topic, Use.SOURCE, recorded.topic_id, found.identity)
                + resuming(topic, found.identity, facts.committed, ends)
            )
        if recorded.partitions != found.partitions:
            raise StartRefused(
                f"source topic {topic!r} has {found.partitions} partitions, and the application "
                f"has processed it with {recorded.partitions}: keys have moved to other "
                f"partitions, so order per key is lost where the old ones still hold unread "
                f"records. To accept that, stop all workers and run: "
                f"eosframework positions set APP {topic}=committed; "
                f"`eosframework explain page growing-partitions` says how to keep the order"
            )


def refuse_long_transactions(settings: Settings, facts: Facts) -> None:
    """Refuse a transaction timeout that brokers would reject."""
    limit_ms = facts.broker_number("transaction.max.timeout.ms")
    wanted_seconds = settings.worker.transaction_timeout_seconds
    if limit_ms is not None and wanted_seconds * 1000 > limit_ms:
        raise StartRefused(
            f"worker.transaction_timeout_seconds={wanted_seconds:g} is above the brokers' "
            f"transaction.max.timeout.ms={limit_ms} ({limit_ms / 1000:g} s); lower the one or "
            f"raise the other"
        )


def retention_note(facts: Facts) -> str | None:
    """Return a note about offset retention; None if the setting cannot be read."""
    minutes = facts.broker_number("offsets.retention.minutes")
    if minutes is None:
        return None
    long = f"{minutes / 1440:g} days" if minutes >= 1440 else f"{minutes} minutes"
    return (
        f"the brokers forget the offsets of a group that is stopped for {long}; after that a "
        f"start is refused until its positions are set"
    )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
