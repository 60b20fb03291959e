"""Takes the snapshot: asks the cluster, each part for itself, and changes nothing there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from eosframework.application.control_topic import Registry
from eosframework.application.leases import task_names
from eosframework.application.partitioner_checks import KeySample, sample_keys
from eosframework.application.start_checks import (
    Facts,
    gather,
    persisted_topics,
    sink_topics,
    source_topics,
)
from eosframework.config import Ids, KafkaSettings, Settings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import GroupFacts, SizeLimits, TopicFacts, Values
from eosframework.kafka.inspect.formats import CONSUMER_OFFSETS, TRANSACTION_STATE
from eosframework.kafka.inspect.wire import SHARE
from eosframework.kafka.worker_clients import (
    NOTHING_KNOWN,
    effective_consumer,
    effective_producer,
    refused_properties,
)
from eosframework.operations.doctor.coordinator_requests import ask_coordinators, seen
from eosframework.operations.doctor.event_time_samples import next_event_times
from eosframework.operations.doctor.findings import Seen, Unseen, not_asked
from eosframework.operations.doctor.snapshot import COORDINATION, EventTimes, Snapshot
from eosframework.runtime.ids import id_source, known_leases
from eosframework.topology.graph.graph import Graph
from eosframework.txnid import TransactionalId, control_topic
from eosframework.txnid import tables_group as tables_group_of

T = TypeVar("T")

REACH_SHARE = 0.4
"""Of `kafka.request_timeout_seconds`: so long is waited for a cluster that may not be there."""

BROKERS = "settings of the brokers"

PARTS_AT_ONCE = 8
"""A broker that hangs keeps every question about it waiting; they wait at the same time."""


def take_snapshot(graph: Graph, settings: Settings) -> Snapshot:
    """Ask the cluster for everything that the checks judge.

    1. is it there?  2. all questions at once; one that fails leaves its part unseen

    Raises:
        ClusterUnreachable: nobody answered within a part of `kafka.request_timeout_seconds`.
        ConfigurationError: a property cannot be used to reach the cluster.
    """
    ClusterAdmin(_within(settings.kafka, REACH_SHARE)).cluster_id()
    within = _within(settings.kafka, SHARE)
    admin = ClusterAdmin(within)
    persisted = tuple(persisted_topics(graph))
    own = _own_topics(graph)
    with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
        topics = dict(pool.map(partial(_topic, admin), [*own, *COORDINATION]))
        leases = seen("leased transactional ids", partial(_leases, graph, settings, topics))
        coordinated = pool.submit(
            ask_coordinators,
            settings.kafka,
            graph,
            own,
            {} if isinstance(leases.found, Unseen) else leases.found,
            has_transactions=_may_exist(topics[TRANSACTION_STATE]),
        )
        brokers = pool.submit(seen, BROKERS, admin.broker_settings)
        allowed = pool.submit(seen, "permissions on the cluster", admin.allowed_on_cluster)
        refused = pool.submit(refused_properties, graph.application, settings)
        grouped = _Grouped(graph, within, admin, topics)
        group = pool.submit(grouped.members, graph.application)
        tables_group = pool.submit(grouped.members, tables_group_of(graph.application))
        facts = grouped.ask("registry and committed offsets", grouped.facts)
        event_times = grouped.event_times(facts)
        keys = grouped.ask("keys of co-partitioned topics", grouped.keys)
        told = coordinated.result()
        return Snapshot(
            taken_at=datetime.now(UTC),
            graph=graph,
            settings=settings,
            sources=tuple(source_topics(graph)),
            sinks=tuple(sink_topics(graph)),
            registry=control_topic(graph.application),
            topics=topics,
            brokers=_all(brokers.result()),
            some_brokers=_some(brokers.result()),
            producer=effective_producer(settings, _limits(graph, facts), graph.application),
            consumer=effective_consumer(graph.application, settings, _largest(graph, facts)),
            refused_properties=tuple(refused.result()),
            allowed_on_cluster=allowed.result(),
            group=group.result(),
            facts=facts,
            levels=told.levels,
            clock=told.clock,
            open_transactions=told.open_transactions,
            open_offsets=told.open_offsets,
            ids=told.ids,
            lacking=told.lacking,
            event_times=event_times,
            leases=leases,
            keys=keys,
            persisted=persisted,
            tables_group=tables_group.result() if persisted else None,
        )


def _own_topics(graph: Graph) -> list[str]:
    """Return every topic that the graph names, and the registry, each once."""
    named = [*source_topics(graph), *sink_topics(graph), *persisted_topics(graph)]
    return list(dict.fromkeys([*named, control_topic(graph.application)]))


def _within(settings: KafkaSettings, share: float) -> KafkaSettings:
    """Return the same settings with a part of the time for each question."""
    seconds = settings.request_timeout_seconds * share
    return settings.model_copy(update={"request_timeout_seconds": seconds})


def _all(asked: Seen[dict[int, Values | None]]) -> Seen[Mapping[int, Values]]:
    """Return the settings of all brokers; not seen where one did not tell."""
    if isinstance(asked.found, Unseen):
        return Seen(asked.found)
    unread = sorted(broker for broker, values in asked.found.items() if values is None)
    if unread:
        reason = (
            f"broker {', '.join(map(str, unread))} did not tell; grant DescribeConfigs on the "
            f"cluster, and see whether it is up"
        )
        return Seen(Unseen(BROKERS, reason))
    return Seen(_some(asked))


def _some(asked: Seen[dict[int, Values | None]]) -> Mapping[int, Values]:
    """Return the settings of the brokers that told."""
    answers = {} if isinstance(asked.found, Unseen) else asked.found
    return {broker: values for broker, values in answers.items() if values is not None}


def _topic(admin: ClusterAdmin, name: str) -> tuple[str, Seen[TopicFacts]]:
    return name, seen(f"topic {name}", lambda: admin.describe_topics([name])[name])


def _leases(
    graph: Graph, settings: Settings, topics: Mapping[str, Seen[TopicFacts]]
) -> Mapping[str, TransactionalId] | None:
    """Return the leases of all applications, and those that this one's next start would make."""
    if settings.worker.ids is not Ids.LEASED:
        return None
    found = {name: topic.found for name, topic in topics.items()}
    counts = {n: f.partitions if isinstance(f, TopicFacts) else 0 for n, f in found.items()}
    coming = id_source(settings).preview(task_names(graph, counts))
    return {**known_leases(settings), **{str(task): task for task in coming}}


def _may_exist(topic: Seen[TopicFacts]) -> bool:
    return isinstance(topic.found, Unseen) or topic.found.exists


def _limits(graph: Graph, facts: Seen[Facts]) -> SizeLimits:
    """Return the bounds of the outputs, as a worker finds them at its start."""
    return facts.found.output_limits(graph) if isinstance(facts.found, Facts) else NOTHING_KNOWN


def _largest(graph: Graph, facts: Seen[Facts]) -> int | None:
    """Return the largest batch that an input may hold, as a worker does."""
    return facts.found.largest_input_bytes(graph) if isinstance(facts.found, Facts) else None


class _Grouped:
    """Questions that a group coordinator answers, or a consumer, which asks for one by itself."""

    def __init__(
        self,
        graph: Graph,
        settings: KafkaSettings,
        admin: ClusterAdmin,
        topics: Mapping[str, Seen[TopicFacts]],
    ) -> None:
        self._graph = graph
        self._settings = settings
        self._admin = admin
        self._topics = topics

    def ask(self, what: str, question: Callable[[], T]) -> Seen[T]:
        if not _may_exist(self._topics[CONSUMER_OFFSETS]):
            return Seen(not_asked(what, CONSUMER_OFFSETS))
        return seen(what, question)

    def members(self, group: str) -> Seen[GroupFacts]:
        return self.ask(f"consumer group {group}", partial(self._admin.describe_group, group))

    def facts(self) -> Facts:
        registry = Registry(self._graph.application, self._settings, self._admin)
        return gather(self._graph, self._admin, registry)

    def keys(self) -> Mapping[str, KeySample]:
        """Return a sample of each topic whose keys meet those of another."""
        found = {name: topic.found for name, topic in self._topics.items()}
        counts = {n: f.partitions for n, f in found.items() if isinstance(f, TopicFacts)}
        return sample_keys(self._graph, self._settings, self._admin, counts)

    def event_times(self, facts: Seen[Facts]) -> dict[str, Seen[EventTimes | None]]:
        """Return those of each source that exists and can be looked at."""
        committed = {
            position.topic_partition: position.offset
            for position in (facts.found.committed if isinstance(facts.found, Facts) else ())
            if position.offset is not None
        }
        times: dict[str, Seen[EventTimes | None]] = {}
        for part in self._graph.sub_topologies:
            for source in part.sources:
                found = self._topics[source.topic].found
                if isinstance(found, TopicFacts) and found.exists:
                    look = partial(
                        next_event_times,
                        self._settings,
                        self._admin,
                        committed,
                        source,
                        found.partitions,
                    )
                    times[source.topic] = self.ask(f"event times of {source.topic}", look)
        return times
