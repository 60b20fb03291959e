"""Composition root of workers: builds one from the settings, a topology and the checked cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import uuid4

from eosframework.application.composition.context import Observed, WorkerContext
from eosframework.application.decided import decisions
from eosframework.application.event_times import kept_outputs
from eosframework.application.matched_topics import MatchedTopics, starting_whole
from eosframework.application.output_limits import output_limits
from eosframework.application.ownership_topic import OwnershipTopic
from eosframework.application.start_positions import StartPositions, UnmarkedStartPositions
from eosframework.application.topic_identity import Use, uses_of
from eosframework.application.topic_watch import TopicWatch
from eosframework.application.watched_cluster import WatchedCluster
from eosframework.config import Guarantee, Settings
from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import compile_part
from eosframework.engine.effects.effects import EffectPorts
from eosframework.engine.failures.refused_outputs import OutputLimits
from eosframework.engine.operators.refused_rows import RefusedRows
from eosframework.engine.restoration.local_state import LocalState
from eosframework.engine.task.task import Task
from eosframework.engine.worker.worker import Worker
from eosframework.engine.worker.worker_plan import Plan, WorkerCounts, WorkerOptions, downstream_of
from eosframework.errors import ConfigurationError, RunError
from eosframework.kafka.admin.auto_creation import ChosenTopics
from eosframework.kafka.admin.metadata import size_limits
from eosframework.kafka.admin.purging import RecordPurger
from eosframework.kafka.at_least_once import AtLeastOnceOutputs
from eosframework.kafka.client.partitioner import same_partition
from eosframework.kafka.consumer.changelog_reader import KafkaChangelogs
from eosframework.kafka.consumer.input_log import KafkaInputLog
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.kafka.worker_clients import (
    consumer_client,
    group_settings,
    producer_client,
    producer_pool,
)
from eosframework.postgres.tables.write_cycle import TableWriter
from eosframework.process.watchdog import TurnWatch
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.timed_topics import timed_topics
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from eosframework.transactions.ownership import Ownership
from eosframework.transactions.ports import Decisions
from eosframework.txnid import TransactionalId

if TYPE_CHECKING:
    from eosframework.engine.worker.worker_views import WorkerView

TAKEOVER_DEADLINE_SECONDS = 120.0
"""Time for which taking partitions over is retried. It is less than max.poll.interval.ms, after
which the group would assign the partitions to another member."""


EFFECTS_LINGER_MS = 0
"""Calls wait for the journal's transactions, which are sent at once."""


class Kind(StrEnum):
    """Kinds of workers, each with its own consumer group.

    So transforms keep running while the database is unavailable.
    """

    TRANSFORMS = "transforms"
    TABLES = "tables"


def load(application: str) -> Graph:
    """Return the topology that `application` names.

    Raises:
        TopologyError: it cannot be loaded, or is inconsistent.
    """
    return resolve(load_app(application))


def kinds(graph: Graph) -> list[Kind]:
    """Return the kinds of workers that a graph needs, in the order in which to run them once."""
    transforms = graph.sub_topologies or graph.patterns
    has = {Kind.TRANSFORMS: transforms, Kind.TABLES: graph.table_sinks}
    return [kind for kind, parts in has.items() if parts]


def composed(
    context: WorkerContext,
    make_task: Callable[..., Task],
    claims: OwnershipTopic,
    on_round: Callable[[WorkerCounts], None],
) -> Worker:
    """Return a worker of transforms.

    Args:
        context: of the worker.
        make_task: the factory of its tasks.
        claims: the topic of claims.
        on_round: see `Worker`.
    """
    watch = _watch(context)
    return _worker(context, _plan(context, make_task, watch), watch, claims, on_round)


def _plan(context: WorkerContext, make_task: Callable[..., Task], watch: TopicWatch) -> Plan:
    graph, settings = context.graph, context.settings
    plan = plan_of(
        graph.with_times_within(settings.worker.max_event_time_ahead),
        context.facts.ids,
        output_limits(settings, context.facts, graph),
        receipts=settings.worker.receipts,
        is_missing=ChosenTopics(settings.kafka, context.admin, watch.add).is_missing,
        partitions=context.facts.partitions,
    )
    own_id = None
    if settings.worker.has_own_id:
        own_id = TransactionalId.worker(graph.application, context.instance)
    kept_ms = kept_outputs(graph, context.facts)
    return replace(plan, make_task=make_task, own_id=own_id, kept_ms=kept_ms)


def plan_of(
    graph: Graph,
    ids: Sequence[TransactionalId],
    limits: Mapping[str, OutputLimits] | None = None,
    *,
    receipts: bool = False,
    is_missing: Callable[[str], bool] | None = None,
    partitions: Mapping[str, int] | None = None,
) -> Plan:
    """Compile a graph into a worker's plan.

    Args:
        graph: of the application.
        ids: of all tasks.
        limits: known limits of output topics, by topic.
        receipts: add a receipt to each output.
        is_missing: see `compile_part`.
        partitions: number of partitions by topic; None: unknown, no watermark is written.
    """
    timed = timed_topics(graph)
    known = {(task.sub_topology, task.partition): task for task in ids}

    def identify(sub_topology: str, partition: int) -> TransactionalId:
        name = (sub_topology, partition)
        if name not in known and any(task.leased for task in ids):
            raise RunError(
                f"the sources of sub-topology {sub_topology!r} got a partition {partition} after "
                f"this worker had started, and it has no transactional id; start the worker again"
            )
        return known.get(name) or TransactionalId.make(graph.application, *name)

    refused, matched = RefusedRows(), graph.matched_topics.values()
    context = CompileContext(
        receipts=receipts,
        limits=limits or {},
        is_missing=is_missing,
        own_topics=graph.repartition_topics,
        timed_topics=timed,
        refused_rows=refused if graph.together else None,
        same_task=same_partition(partitions or {}),
    )
    return Plan(
        application=graph.application,
        parts={part.name: compile_part(part, context) for part in graph.sub_topologies},
        identify=identify,
        receipts=receipts,
        own_topics=graph.repartition_topics,
        internal_topics=graph.internal_topics.union(graph.rows_topics),
        downstream=downstream_of(timed, partitions or {}),
        refused_rows=refused,
        matched={one.pattern: [*matched].count(one.pattern) for one in graph.patterns},
    )


def _worker(
    context: WorkerContext,
    plan: Plan,
    watch: TopicWatch,
    claims: OwnershipTopic,
    on_round: Callable[[WorkerCounts], None],
) -> Worker:
    graph, settings, worker = context.graph, context.settings, context.settings.worker
    options = WorkerOptions(
        commit_interval_seconds=worker.commit_interval_seconds,
        transaction_timeout_seconds=worker.transaction_timeout_seconds,
        heartbeat_interval_seconds=worker.heartbeat_interval_seconds,
        takeover_deadline_seconds=TAKEOVER_DEADLINE_SECONDS,
        batch_records=worker.batch_records,
        queue_bytes=worker.queue_megabytes * 2**20,
        leave_on_stop=worker.leave_on_stop,
        stop_deadline_seconds=worker.stop_deadline_seconds,
        max_task_idle_seconds=worker.max_task_idle_seconds,
        watermark_interval_seconds=worker.watermark_interval_seconds,
    )
    # An audit by receipts reads processed records of repartition topics, so they are kept for it.
    purges = bool(graph.repartitions) and not worker.receipts
    state = _state(context)
    log = _input_log(context, watch)
    ledger = _ledger(context)
    return Worker(
        plan,
        log,
        _outputs(context, log),
        ledger,
        options,
        state=state,
        ownership=_ownership(context, claims),
        decisions=_decisions(context),
        effects=_effects(context),
        purger=RecordPurger(settings.kafka) if purges else None,
        identities=watch,
        measured=context.observed is not None,
        on_round=on_round,
    )


def _input_log(context: WorkerContext, watch: TopicWatch) -> KafkaInputLog:
    graph, settings = context.graph, context.settings
    log = KafkaInputLog(
        consumer_client(settings, context.facts.largest_input_bytes(graph)),
        group_settings(graph.application, settings, context.instance),
        request_timeout_seconds=settings.kafka.request_timeout_seconds,
        statistics=context.statistics,
        refuse=watch.refuse_new,
        admin=context.admin,
    )
    if context.observed is not None and context.observed.owners is not None:
        context.observed.owners.sit(log.member_id)
    return log


def _watch(context: WorkerContext) -> TopicWatch:
    """Return the watch over the topics of a worker of transforms."""
    graph, facts = context.graph, context.facts
    control_topic = context.control_topic.topic
    uses = {**uses_of(graph), control_topic: Use.CONTROL}
    known = {t: found for t, found in facts.identities.items() if t in uses}
    known |= context.admin.identities([control_topic])
    matched = MatchedTopics(graph, context.admin) if graph.patterns else None
    cluster = WatchedCluster(context)
    return TopicWatch(known, uses, cluster, facts.control.committed, matched=matched)


def _state(context: WorkerContext) -> LocalState | None:
    graph = context.graph
    if not graph.global_tables and not graph.stores:
        return None
    # Import stores only if the topology has some.
    from eosframework.application.composition.worker_state import local_state

    shared = context.shared
    topics = context.facts.topics
    return local_state(graph, context.settings, context.instance, topics, context.admin, shared)


def task_maker(context: WorkerContext) -> AbstractContextManager[Callable[..., Task]]:
    """Yield the factory of tasks, which are traced if `tracing.enabled`."""
    tracing = context.settings.tracing
    if not tracing.enabled:
        return nullcontext(Task)
    # Import OpenTelemetry only if it is used.
    try:
        from eosframework.application.monitoring.tracing.traced_tasks import traced_tasks
    except ImportError as error:
        raise ConfigurationError(
            f"tracing.enabled=true needs more packages ({error.name} is missing); run: pip install "
            f"'eosframework[tracing]'"
        ) from error
    return traced_tasks(context.graph.application, context.instance, tracing)


def observed(
    context: WorkerContext, kind: Kind, watch: TurnWatch
) -> AbstractContextManager[Observed[WorkerView] | None]:
    """Run the HTTP server during the block, if an address is configured."""
    if context.settings.worker.http_address is None:
        return nullcontext()
    # Import the server only if it is used.
    from eosframework.application.composition.http import observed_worker
    from eosframework.application.monitoring.metrics.catalogue import Process

    return observed_worker(context, Process(kind.value), watch)


def require_journals_of(graph: Graph, settings: Settings) -> None:
    """Check that journals of effects can be written.

    Raises:
        ConfigurationError: there are no transactions.
    """
    if graph.effects_topics and settings.worker.guarantee is not Guarantee.EXACTLY_ONCE:
        raise ConfigurationError(
            f"worker.guarantee is {settings.worker.guarantee}, and call_once needs transactions "
            f"for its journal ({graph.effects_topics[0]}): set worker.guarantee=exactly_once, or "
            f"use map_async, whose calls may repeat"
        )


def require_tables_of(graph: Graph, settings: Settings) -> None:
    """Check the tables that the application writes.

    Raises:
        ConfigurationError: a setting does not fit them.
        StartRefused: tables are missing or do not match.
    """
    if graph.together and settings.worker.guarantee is not Guarantee.EXACTLY_ONCE:
        names = ", ".join(table.table for sink in graph.together for table in sink.tables)
        raise ConfigurationError(
            f"worker.guarantee is {settings.worker.guarantee}, and table {names} has commit: "
            f"together, which needs transactions: set worker.guarantee=exactly_once, or state "
            f"commit: later"
        )
    if graph.all_tables:
        from eosframework.application.composition.table_writer import require_tables

        require_tables(graph, settings)


def composed_table_writer(
    context: WorkerContext, on_round: Callable[[WorkerCounts], None]
) -> TableWriter:
    """Return a table writer."""
    # Import the database driver only for table writers.
    from eosframework.application.composition.table_writer import table_writer

    return table_writer(context, on_round)


def _ledger(context: WorkerContext) -> StartPositions:
    graph, worker = context.graph, context.settings.worker
    exactly_once = worker.guarantee is Guarantee.EXACTLY_ONCE
    ledger = StartPositions if exactly_once else UnmarkedStartPositions
    return ledger(
        graph.application,
        context.control_topic,
        worker.start,
        graph.whole_topics | starting_whole(context.control_topic.state.entries),
        members=lambda: context.admin.describe_group(graph.application),
        judged=context.facts.control,
    )


def _ownership(context: WorkerContext, claims: OwnershipTopic) -> Ownership | None:
    """Return the claims of the worker; None: without transactions there is nothing to fence."""
    if context.settings.worker.guarantee is not Guarantee.EXACTLY_ONCE:
        return None
    claims.prepare()  # while the worker joins its group
    return Ownership(claims, uuid4().hex)


def _decisions(context: WorkerContext) -> Decisions | None:
    return decisions(context.graph, context.settings) if context.graph.together else None


def _effects(context: WorkerContext) -> EffectPorts | None:
    graph, settings = context.graph, context.settings
    if not graph.effects_topics:
        return None
    topics = [context.facts.topics[name] for name in graph.effects_topics]
    properties = producer_client(settings, size_limits(topics, are_all=True))
    properties["linger.ms"] = EFFECTS_LINGER_MS
    return EffectPorts(
        producer_pool(settings, properties, graph.effects_topics),
        KafkaChangelogs(settings.kafka, context.admin),
        RecordPurger(settings.kafka),
    )


def _outputs(context: WorkerContext, log: KafkaInputLog) -> ProducerPool | AtLeastOnceOutputs:
    graph, settings = context.graph, context.settings
    properties = producer_client(settings, context.facts.output_limits(graph))
    timeout_seconds = settings.worker.transaction_timeout_seconds
    if settings.worker.guarantee is Guarantee.AT_LEAST_ONCE:
        return AtLeastOnceOutputs(properties, log, delivery_timeout_seconds=timeout_seconds)
    return producer_pool(settings, properties, graph.written_topics, context.statistics)
