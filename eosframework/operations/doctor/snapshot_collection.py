"""The collection of a snapshot: independent, read-only requests to the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from eosframework.application.composition.ids import id_source, known_leases
from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import ControlTopic
from eosframework.application.decided import round_trip_seconds
from eosframework.application.event_times import EventTimes, next_event_times
from eosframework.application.leases import task_names
from eosframework.application.needed_access import needs_claims
from eosframework.application.partitioner_checks import KeySample, sample_keys
from eosframework.application.start_checks import Facts, gather
from eosframework.config import Ids, KafkaSettings, Settings
from eosframework.errors import ConfigurationError, DatabaseUnusable, EosError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import GroupDescription, TopicDescription, Values
from eosframework.kafka.admin.requests import REQUEST_FAILED
from eosframework.kafka.inspect.coordinators import (
    TransactionListing,
    list_transactions,
    require_authority,
)
from eosframework.kafka.inspect.formats import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    coordinator_partition,
)
from eosframework.kafka.inspect.hanging import OpenTransaction, find_open
from eosframework.kafka.inspect.probes import controller_clock, metadata_levels, missing_operation
from eosframework.kafka.inspect.wire import SHARE, Wire
from eosframework.kafka.worker_clients import (
    NOTHING_KNOWN,
    effective_consumer,
    effective_producer,
    refused_properties,
)
from eosframework.operations.doctor.findings import Seen, Unseen, not_asked
from eosframework.operations.doctor.snapshot import COORDINATION, CoordinatorAnswers, Snapshot
from eosframework.topology.graph.graph import Graph
from eosframework.txnid import TransactionalId, control_topic, ownership_topic, prefix
from eosframework.txnid import tables_group as tables_group_of

T = TypeVar("T")


def _ask_coordinators(
    settings: KafkaSettings,
    graph: Graph,
    topics: Sequence[str],
    leases: Mapping[str, TransactionalId] | None,
    *,
    has_transactions: bool,
) -> CoordinatorAnswers:
    """Send all requests, one after the other; a failed one leaves its part unseen.

    Args:
        settings: connection to the cluster.
        graph: of the application.
        topics: topics to search for open transactions, existing or not.
        leases: the tasks of leased ids, by id; None: ids are derived.
        has_transactions: __transaction_state exists, or may not be described.
    """
    application = graph.application
    if leases is None:
        ids = [str(TransactionalId.make(application, p.name, 0)) for p in graph.sub_topologies]
    else:
        ids = [id_ for id_, task in leases.items() if task.application == application]
    try:
        wire = Wire(settings, leases)
    except EosError as error:
        nothing: Seen[Any] = Seen(Unseen("transactions, clocks and versions", str(error)))
        return CoordinatorAnswers(
            nothing, nothing, nothing, nothing, nothing, dict.fromkeys(ids, nothing)
        )
    with wire:
        return CoordinatorAnswers(
            levels=_seen("versions of the brokers", lambda: metadata_levels(wire)),
            clock=_seen("the controller's clock", lambda: controller_clock(wire)),
            open_transactions=_seen("open transactions", lambda: _open(wire, topics)),
            open_offsets=_seen(
                f"open transactions in {CONSUMER_OFFSETS}", lambda: _in_offsets(wire, application)
            ),
            ids=_seen("transactional ids", lambda: _ids(wire, application))
            if has_transactions
            else Seen(()),
            lacking={
                name: _seen(
                    f"permissions on {name}", lambda name=name: missing_operation(wire, name)
                )
                if has_transactions
                else Seen(not_asked("permissions on transactional ids", TRANSACTION_STATE))
                for name in ids
            },
        )


def _seen(what: str, ask: Callable[[], T]) -> Seen[T]:
    """Return the answer of `ask`, or the reason why there is none."""
    try:
        return Seen(ask())
    except REQUEST_FAILED as error:
        return Seen(Unseen(what, str(error)))


def _database(settings: Settings) -> Seen[float]:
    try:
        return Seen(round_trip_seconds(settings))
    except (ConfigurationError, DatabaseUnusable) as error:
        return Seen(Unseen("the database", str(error)))


def _open(wire: Wire, topics: Sequence[str]) -> tuple[OpenTransaction, ...]:
    existing = sorted({partition.topic for partition in wire.leaders(topics)})
    return find_open(wire, existing).open_transactions if existing else ()


def _in_offsets(wire: Wire, group: str) -> tuple[OpenTransaction, ...]:
    """Return the open transactions of the partition with the group's offsets."""
    partitions = len(wire.leaders([CONSUMER_OFFSETS]))
    if not partitions:
        return ()
    own = coordinator_partition(group, partitions)
    found = find_open(wire, [CONSUMER_OFFSETS]).open_transactions
    return tuple(entry for entry in found if entry.partition.partition == own)


def _ids(wire: Wire, application: str) -> tuple[TransactionListing, ...]:
    """Return the ids with the application's prefix, and its leased ones.

    Brokers omit ids without permission.
    """
    require_authority(wire, application)
    return tuple(
        listed
        for listed in list_transactions(wire)
        if listed.transactional_id.startswith(prefix(application))
        or (listed.lease is not None and listed.lease.application == application)
    )


_REACH_SHARE = 0.4
"""Share of `kafka.request_timeout_seconds` to wait for a cluster that may be unreachable."""

_BROKERS = "settings of the brokers"

_THREADS = 8
"""Threads; requests to a broker that hangs wait concurrently."""


def take_snapshot(graph: Graph, settings: Settings) -> Snapshot:
    """Request all data that the checks judge.

    1. reach the cluster  2. all requests concurrently; a failed one leaves its part unseen

    Raises:
        ClusterUnreachable: no answer within a share of `kafka.request_timeout_seconds`.
        ConfigurationError: a property prevents the connection to the cluster.
    """
    # Of the brokers themselves: the cluster's id comes from a bootstrap server, which may name
    # addresses that this machine does not reach.
    ClusterAdmin(_within(settings.kafka, _REACH_SHARE)).broker_settings()
    with ThreadPoolExecutor(_THREADS) as pool:
        return _Collection(graph, settings, pool).snapshot()


class _Collection:
    """The requests of one snapshot."""

    def __init__(self, graph: Graph, settings: Settings, pool: ThreadPoolExecutor) -> None:
        self._graph = graph
        self._settings = settings
        self._pool = pool
        self._kafka = _within(settings.kafka, SHARE)
        self._admin = ClusterAdmin(self._kafka)
        named = [*graph.source_topics, *graph.sink_topics, *graph.table_sink_topics]
        named += graph.changelog_topics
        named.append(control_topic(graph.application))
        if needs_claims(graph, settings):
            named.append(ownership_topic(graph.application))
        self._own = list(dict.fromkeys(named))
        self._topics = dict(pool.map(self._topic, [*self._own, *COORDINATION]))

    def snapshot(self) -> Snapshot:
        graph, settings, submit = self._graph, self._settings, self._pool.submit
        leases = _seen("leased transactional ids", self._leases)
        coordinators = submit(
            _ask_coordinators,
            settings.kafka,
            graph,
            self._own,
            {} if isinstance(leases.found, Unseen) else leases.found,
            has_transactions=self._may_exist(TRANSACTION_STATE),
        )
        brokers = submit(_seen, _BROKERS, lambda: self._admin.broker_settings())
        allowed = submit(
            _seen, "permissions on the cluster", lambda: self._admin.allowed_on_cluster()
        )
        refused = submit(refused_properties, graph.application, settings)
        group = submit(self._group, graph.application)
        tables_group = submit(self._group, tables_group_of(graph.application))
        facts = self._ask_group("control topic and committed offsets", self._facts)
        known = facts.found if isinstance(facts.found, Facts) else None
        limits = known.output_limits(graph) if known else NOTHING_KNOWN
        largest = known.largest_input_bytes(graph) if known else None
        event_times = self._event_times(known)
        keys = self._ask_group("keys of co-partitioned topics", self._keys)
        answers = coordinators.result()
        return Snapshot(
            **{field.name: getattr(answers, field.name) for field in fields(answers)},
            taken_at=datetime.now(UTC),
            graph=graph,
            settings=settings,
            topics=self._topics,
            brokers=_all(brokers.result()),
            some_brokers=_some(brokers.result()),
            producer=effective_producer(settings, limits, graph.application),
            consumer=effective_consumer(graph.application, settings, largest),
            refused_properties=tuple(refused.result()),
            allowed_on_cluster=allowed.result(),
            group=group.result(),
            facts=facts,
            event_times=event_times,
            leases=leases,
            keys=keys,
            tables_group=tables_group.result() if graph.table_sinks else None,
            database_seconds=_database(settings) if graph.together else None,
        )

    def _topic(self, name: str) -> tuple[str, Seen[TopicDescription]]:
        return name, _seen(f"topic {name}", lambda: self._admin.describe_topics([name])[name])

    def _may_exist(self, topic: str) -> bool:
        found = self._topics[topic].found
        return isinstance(found, Unseen) or found.exists

    def _leases(self) -> Mapping[str, TransactionalId] | None:
        """Return the leases of all applications, and those that this one's next start would add."""
        settings = self._settings
        if settings.worker.ids is not Ids.LEASED:
            return None
        counts = dict.fromkeys(self._topics, 0) | self._partition_counts()
        coming = id_source(settings).preview(task_names(self._graph, counts))
        return {**known_leases(settings), **{str(task): task for task in coming}}

    def _partition_counts(self) -> dict[str, int]:
        found = {name: topic.found for name, topic in self._topics.items()}
        return {
            name: it.partitions for name, it in found.items() if isinstance(it, TopicDescription)
        }

    def _ask_group(self, what: str, request: Callable[[], T]) -> Seen[T]:
        """Return the answer to a request that needs a group coordinator.

        A consumer needs one, too: it requests it by itself.
        """
        if not self._may_exist(CONSUMER_OFFSETS):
            return Seen(not_asked(what, CONSUMER_OFFSETS))
        return _seen(what, request)

    def _group(self, name: str) -> Seen[GroupDescription]:
        return self._ask_group(f"consumer group {name}", lambda: self._admin.describe_group(name))

    def _facts(self) -> Facts:
        admin = self._admin
        topic = ControlTopic(self._graph.application, self._kafka, admin)
        return gather(ApplicationContext(self._graph, self._settings, admin, topic))

    def _keys(self) -> Mapping[str, KeySample]:
        """Return a sample of each topic whose keys are co-partitioned with another topic's."""
        counts = self._partition_counts()
        return sample_keys(self._graph, self._kafka, self._admin, counts)

    def _event_times(self, facts: Facts | None) -> dict[str, Seen[EventTimes | None]]:
        """Return the event times of each source that could be described."""
        committed = {
            position.topic_partition: position.offset
            for position in (facts.committed if facts else ())
            if position.offset is not None
        }
        times: dict[str, Seen[EventTimes | None]] = {}
        for part in self._graph.sub_topologies:
            for source in part.sources:
                found = self._topics[source.topic].found
                if isinstance(found, TopicDescription) and found.exists:
                    look = partial(
                        next_event_times,
                        self._kafka,
                        self._admin,
                        committed,
                        source,
                        found.partitions,
                    )
                    times[source.topic] = self._ask_group(f"event times of {source.topic}", look)
        return times


def _within(settings: KafkaSettings, share: float) -> KafkaSettings:
    """Return the settings with a share of the timeout for each request."""
    seconds = settings.request_timeout_seconds * share
    return settings.model_copy(update={"request_timeout_seconds": seconds})


def _all(asked: Seen[dict[int, Values | None]]) -> Seen[Mapping[int, Values]]:
    """Return the settings of all brokers; unseen if one did not answer."""
    if isinstance(asked.found, Unseen):
        return Seen(asked.found)
    unread = sorted(broker for broker, values in asked.found.items() if values is None)
    if unread:
        reason = (
            f"broker {', '.join(map(str, unread))} did not answer; grant DescribeConfigs on "
            f"the cluster, and check whether it is up"
        )
        return Seen(Unseen(_BROKERS, reason))
    return Seen(_some(asked))


def _some(asked: Seen[dict[int, Values | None]]) -> Mapping[int, Values]:
    """Return the settings of the brokers that answered."""
    answers = {} if isinstance(asked.found, Unseen) else asked.found
    return {broker: values for broker, values in answers.items() if values is not None}
