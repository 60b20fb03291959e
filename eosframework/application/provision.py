"""Cluster resources of an application: planned as data, created where they are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from eosframework.application.backfill_jobs import JobStanding
from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import written_entries
from eosframework.application.event_times import short_retentions
from eosframework.application.fencing import refuse_members
from eosframework.application.internal_topics import (
    doubtful_settings,
    own_topics,
    undersized_topics,
)
from eosframework.application.leases import refuse_moved_ids, task_names
from eosframework.application.needed_access import Access, needs_claims, worker_access
from eosframework.application.ownership_topic import ownership_entry, ownership_of
from eosframework.application.start_checks import (
    Facts,
    gather,
    jobs_of,
    refuse_worker,
    retention_note,
    with_changes,
)
from eosframework.application.topic_identity import Use, refuse_replaced, written_uses
from eosframework.application.topic_settings import TopicRole, settings_at_creation
from eosframework.application.topology_changes import (
    accepted_entry,
    refuse_changes,
    removed_stores,
)
from eosframework.config import Ids, Settings
from eosframework.errors import (
    ConfigurationError,
    DatabaseUnusable,
    StartRefused,
    TopologyError,
)
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.records import partitions_of
from eosframework.topology.evolution import Change, Verdict
from eosframework.topology.graph.graph import Graph, Sink
from eosframework.topology.graph.patterns import matched_by_pattern
from eosframework.topology.graph.walk import nodes_of
from eosframework.txnid import DerivedIds, IdSource, TransactionalId, effects_id, worker_pattern


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic as it is, or as `apply` would create it.

    Args:
        partitions: None for a missing source, whose owner decides it, and for an internal topic
            whose number depends on such a source.
        replication_factor: None: the cluster's default.
        create: `apply` creates it.
        settings: at creation; None: the brokers' defaults.
        grows_from: its present number of partitions, if `apply` adds some: it never held a record.
    """

    name: str
    role: TopicRole
    exists: bool
    partitions: int | None
    replication_factor: int | None
    create: bool
    settings: Mapping[str, str] | None = None
    grows_from: int | None = None


@dataclass(frozen=True, slots=True)
class Provision:
    """The resources that an application needs, and obstacles to its start.

    Args:
        access: all ACLs that the principal of its workers needs, and no more.
        access_to_apply: the additional ACLs for `apply`.
        refused: the reason why a worker would refuse to start once everything is created; None: it
            starts.
        changes: of the topology since the last start of a worker.
        jobs: backfill jobs of the application.
        warnings: settings of topics with a consequence, for which no start is refused.
    """

    application: str
    cluster_id: str
    consumer_group: str
    topics: tuple[PlannedTopic, ...]
    transactional_ids: tuple[str, ...]
    access: tuple[Access, ...]
    access_to_apply: tuple[Access, ...]
    notes: tuple[str, ...]
    refused: str | None
    changes: tuple[Change, ...] = ()
    jobs: tuple[JobStanding, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_one_each(self) -> bool:
        """True if each worker has one producer, so their number is that of the workers."""
        return self.transactional_ids == (worker_pattern(self.application),)

    @property
    def missing_sources(self) -> list[str]:
        """Topics that their owners have to create."""
        return [t.name for t in self.topics if t.role is TopicRole.SOURCE and not t.exists]

    @property
    def waiting(self) -> list[str]:
        """Topics that cannot be created before the sources exist that decide their partitions."""
        missing = {topic.name for topic in self.topics if not topic.exists and not topic.create}
        return sorted(missing - set(self.missing_sources))

    @property
    def growing(self) -> dict[str, int]:
        """New number of partitions by topic, for empty topics to which `apply` adds some."""
        return {t.name: t.partitions or 0 for t in self.topics if t.grows_from is not None}

    def as_data(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {
            **{name: value for name, value in asdict(self).items() if name != "jobs"},
            "access": [access.as_data() for access in self.access],
            "access_to_apply": [access.as_data() for access in self.access_to_apply],
            "producers": None if self.is_one_each else len(self.transactional_ids),
            "acls": list(map(str, self.access)),
            "acls_to_apply": list(map(str, self.access_to_apply)),
            "changes": [change.as_data() for change in self.changes],
            "backfill_jobs": [job.as_data() for job in self.jobs],
        }


def plan(context: ApplicationContext, source: IdSource | None = None) -> Provision:
    """Return the needed resources. Changes nothing.

    Args:
        context: of the application.
        source: of the ids; None: they are derived.

    Raises:
        ClusterUnreachable: no broker answered in time.
    """
    graph, settings, admin = context.graph, context.settings, context.admin
    facts = with_changes(context, gather(context))
    control = context.control_topic.topic
    topics = (
        *_planned(graph, settings, facts.topics, _growing(graph, facts, admin)),
        _planned_own(
            TopicRole.CONTROL,
            context.control_topic.as_topic(),
            admin.describe_topics([control])[control],
        ),
        *_planned_ownership(context, facts),
    )
    note = retention_note(facts)
    ids, no_ids = _planned_ids(graph, _after(facts, topics), source or DerivedIds())
    access = worker_access(
        graph,
        settings,
        [topic for topic in graph.source_topics if topic not in graph.matched_topics],
        graph.sink_topics,
        ids if settings.worker.ids is Ids.LEASED else None,
    )
    shown = tuple(dict.fromkeys(map(str, ids)))
    if settings.worker.has_own_id and graph.sub_topologies:
        shown = (worker_pattern(graph.application),)
    if graph.effects_topics:
        shown = (*shown, *map(effects_id, shown))
    return Provision(
        application=graph.application,
        cluster_id=facts.cluster_id,
        consumer_group=graph.application,
        topics=topics,
        transactional_ids=shown,
        access=tuple(access),
        access_to_apply=(
            *(Access("Topic", t.name, ("Create",)) for t in topics if t.create),
            *(Access("Topic", t.name, ("Alter",)) for t in topics if t.grows_from is not None),
        ),
        notes=(
            *([] if note is None else [note]),
            *_size_notes(graph, facts.topics),
            *_pattern_notes(graph),
        ),
        warnings=(
            *map(str, doubtful_settings(graph, facts.topics)),
            *map(str, short_retentions(graph, facts, settings.kafka, admin)),
        ),
        refused=_refusal(graph, settings, facts, topics) or no_ids,
        changes=tuple(facts.changes),
        jobs=tuple(jobs_of(graph, facts)),
    )


def _pattern_notes(graph: Graph) -> Iterator[str]:
    matched = matched_by_pattern(graph)
    for one in graph.patterns:
        topics = ", ".join(matched[one.source]) or "none yet"
        yield f"pattern {one.pattern} of source {one.source} matches {topics}"


def apply(context: ApplicationContext, accept: Sequence[str] = ()) -> tuple[Provision, list[str]]:
    """Create the missing topics and return the plan with their names.

    Source topics have owners of their own: they are not created, and neither are topics whose
    number of partitions depends on a missing one. Internal topics that have too few partitions get
    more as long as nothing was ever processed; nothing else that exists is changed.

    Args:
        context: of the application.
        accept: changelogs and outputs that may be others than the recorded ones, and changelogs of
            removed stores, whose state is dropped.

    Raises:
        StartRefused: the topology has changed so that no worker would start on it, or a changelog
            or an output is not the recorded one.
        ConfigurationError: the cluster rejects a topic.
        ClusterUnreachable: no broker answered in time.
    """
    planned = plan(context)
    lasting = [change for change in planned.changes if change.verdict.is_refused]
    refuse_changes(context.graph.application, lasting, ())
    _refuse_unaccepted(context, accept)
    _forget_outputs(context, accept)
    created = context.admin.create_topics(
        [
            TopicToCreate(
                topic.name,
                topic.partitions or 1,
                topic.replication_factor,
                config=topic.settings,
            )
            for topic in planned.topics
            if topic.create and topic.role not in (TopicRole.CONTROL, TopicRole.OWNERSHIP)
        ]
    )
    context.admin.grow_topics(planned.growing)
    if context.control_topic.ensure():
        created.append(context.control_topic.topic)
    control = context.control_topic.refresh()
    gone = removed_stores(context.graph, control)
    accepted = context.admin.identities([topic for topic in accept if topic not in gone])
    topics = context.admin.describe_topics(context.graph.changelog_topics)
    context.control_topic.write(
        {
            **written_entries({t: i.topic_id for t, i in accepted.items()}),
            **accepted_entry(context.graph, control, topics, accept),
        }
    )
    return planned, [*created, *_applied_ownership(context, planned)]


def _refuse_unaccepted(context: ApplicationContext, accept: Sequence[str]) -> None:
    """Refuse topics that are not the recorded ones, unless they are to be accepted.

    A running worker accepts another output as well (`TopicWatch`); a store needs a new task.
    """
    uses = _acceptable(context)
    if unknown := sorted({*accept} - uses.keys()):
        raise ConfigurationError(
            f"{unknown[0]!r} is no changelog and no output of application "
            f"{context.graph.application!r}; --accept takes {', '.join(sorted(uses)) or 'none'}"
        )
    if any(uses[topic] in (Use.CHANGELOG, Use.EFFECTS) for topic in accept):
        refuse_members(
            [context.graph.application], context.admin, "another changelog or journal is accepted"
        )
    recorded = context.control_topic.state.written
    uses = written_uses(context.graph)
    left = {topic: use for topic, use in uses.items() if topic not in accept}
    refuse_replaced(left, recorded, context.admin.identities(left.keys() & recorded.keys()))


def _acceptable(context: ApplicationContext) -> dict[str, Use]:
    """Return the topics that `--accept` takes: written ones, and changelogs of removed stores."""
    gone = removed_stores(context.graph, context.control_topic.state)
    return {**dict.fromkeys(gone, Use.CHANGELOG), **written_uses(context.graph)}


def _forget_outputs(context: ApplicationContext, accept: Sequence[str]) -> None:
    """Remove the recorded ids of outputs that are accepted, before these are created again."""
    # 1. `apply` creates the output
    # 2. a running worker finds another id than the recorded one, and ends
    # 3. `apply` records the new id, too late
    uses, recorded = _acceptable(context), context.control_topic.state.written
    outputs = {topic: "" for topic in accept if uses[topic] is Use.OUTPUT and topic in recorded}
    context.control_topic.write(dict.fromkeys(written_entries(outputs)))


def _applied_ownership(context: ApplicationContext, planned: Provision) -> list[str]:
    """Create the ownership topic; accept another one than recorded if no worker runs.

    Entries that may have been lost are no danger then: the operator has waited until the brokers
    have ended all transactions of earlier workers (docs/howto/producers.md).
    """
    found = next((t for t in planned.topics if t.role is TopicRole.OWNERSHIP), None)
    if found is None:
        return []
    topic_id = ownership_of(context).ensure()
    if context.control_topic.refresh().ownership not in (None, topic_id):
        refuse_members([planned.application], context.admin, "its new ownership topic is accepted")
        context.control_topic.write(ownership_entry(topic_id))
    return [found.name] if found.create else []


def _planned(
    graph: Graph,
    settings: Settings,
    topics: Mapping[str, TopicDescription],
    growing: Mapping[str, int],
) -> list[PlannedTopic]:
    sinks = set(graph.sink_topics)
    counts = {name: found.partitions for name, found in topics.items()}
    own = own_topics(graph, {**counts, **growing})
    stated = stated_outputs(graph)
    planned: list[PlannedTopic] = []
    for name in sorted(topics):
        facts, ours, output = topics[name], own.get(name), stated.get(name)
        replicas = facts.replication_factor or settings.topics.replication_factor
        if ours is not None:
            settings_of_topic = settings_at_creation(ours.role, replicas)
        else:
            settings_of_topic = output and output.settings
        decided = name in sinks if ours is None else ours.partitions is not None
        create = decided and not facts.exists
        if ours is not None:
            role, partitions = ours.role, ours.partitions
        else:
            role = TopicRole.SINK if name in sinks else TopicRole.SOURCE
            partitions = (output and output.partitions) or settings.topics.partitions
            partitions = partitions if create else None
        planned.append(
            PlannedTopic(
                name=name,
                role=role,
                exists=facts.exists,
                partitions=growing.get(name) or facts.partitions or partitions,
                replication_factor=replicas,
                create=create,
                grows_from=facts.partitions if name in growing else None,
                settings=(settings_of_topic or None) if create else None,
            )
        )
    return planned


def stated_outputs(graph: Graph) -> dict[str, Sink]:
    """Return the sinks that state how their topic is created, by topic."""
    sinks = (node for part in graph.sub_topologies for node in nodes_of(part))
    return {
        sink.topic: sink
        for sink in sinks
        if isinstance(sink, Sink)
        and isinstance(sink.topic, str)
        and (sink.partitions is not None or sink.settings)
    }


def _size_notes(graph: Graph, topics: Mapping[str, TopicDescription]) -> Iterator[str]:
    """Yield a note for each output that has another number of partitions than stated."""
    for name, sink in sorted(stated_outputs(graph).items()):
        found = topics[name]
        if found.exists and sink.partitions not in (None, found.partitions):
            yield (
                f"topic {name} has {found.partitions} partitions, and the topology states "
                f"{sink.partitions}; apply changes no topic that exists"
            )


def _growing(graph: Graph, facts: Facts, admin: ClusterAdmin) -> dict[str, int]:
    """Return the internal topics to grow: they are empty, and nothing was processed.

    If one of them is not empty none is changed, because their numbers depend on each other.
    """
    counts = undersized_topics(graph, facts.partitions)
    control = facts.control
    processed = control.committed or any(p.offset is not None for p in facts.committed)
    if not counts or processed or control.topics.keys() & counts.keys():
        return {}
    partitions = partitions_of({name: facts.partitions[name] for name in counts})
    is_empty = not any(admin.high_watermarks(partitions).values())
    return counts if is_empty else {}


def _planned_ownership(context: ApplicationContext, facts: Facts) -> Iterator[PlannedTopic]:
    if facts.control.ownership is not None or needs_claims(context.graph, context.settings):
        wanted = ownership_of(context).as_topic()
        found = context.admin.describe_topics([wanted.name])[wanted.name]
        yield _planned_own(TopicRole.OWNERSHIP, wanted, found)


def _planned_own(role: TopicRole, wanted: TopicToCreate, facts: TopicDescription) -> PlannedTopic:
    return PlannedTopic(
        name=wanted.name,
        role=role,
        exists=facts.exists,
        partitions=facts.partitions or wanted.partitions,
        replication_factor=facts.replication_factor or wanted.replication_factor,
        create=not facts.exists,
        settings=None if facts.exists else wanted.config,
    )


def _planned_ids(
    graph: Graph, facts: Facts, source: IdSource
) -> tuple[list[TransactionalId], str | None]:
    """Return the ids of all tasks whose source topics exist, or the reason why there are none."""
    try:
        ids = source.preview(task_names(graph, facts.partitions))
        refuse_moved_ids(ids, facts.control)
    except (StartRefused, DatabaseUnusable) as error:
        return [], str(error)
    return ids, None


def _refusal(
    graph: Graph, settings: Settings, facts: Facts, topics: tuple[PlannedTopic, ...]
) -> str | None:
    """Return the reason why a worker would refuse to start after `apply`."""
    try:
        refuse_worker(graph, settings, _after(facts, topics))
    except (StartRefused, TopologyError) as error:
        return str(error)
    return None


def _after(facts: Facts, topics: Sequence[PlannedTopic]) -> Facts:
    """Return the facts as they will be once `apply` has created and recorded what it can."""
    to_come = {
        topic.name: TopicDescription(exists=True, partitions=topic.partitions or 0)
        for topic in topics
        if topic.create
    }
    grown = {
        t.name: replace(facts.topics[t.name], partitions=t.partitions or 0)
        for t in topics
        if t.grows_from is not None
    }
    changes = [change for change in facts.changes if change.verdict is not Verdict.CONFIRM]
    return replace(facts, topics={**facts.topics, **to_come, **grown}, changes=changes)
