"""Composition root of workers: builds one from the settings and a topology, and runs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog

from eosframework.application.composition.context import Observed, WorkerContext
from eosframework.application.composition.ids import id_source
from eosframework.application.composition.own_fence import Report, run_through_own_fence
from eosframework.application.context import connect
from eosframework.application.event_times import kept_outputs
from eosframework.application.internal_topics import doubtful_settings
from eosframework.application.output_limits import output_limits
from eosframework.application.ownership_topic import OwnershipTopic, ownership_of
from eosframework.application.partitioner_checks import require_fitting_partitioners
from eosframework.application.start_checks import Facts, check_worker_start
from eosframework.application.start_positions import StartPositions, UnmarkedStartPositions
from eosframework.application.start_wait import waiting_for_brokers
from eosframework.application.topic_identity import Use, uses_of
from eosframework.application.topic_watch import TopicWatch
from eosframework.application.watched_cluster import WatchedCluster
from eosframework.config import Guarantee, Settings
from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import compile_part
from eosframework.engine.failures.refused_outputs import OutputLimits
from eosframework.engine.restoration.local_state import LocalState
from eosframework.engine.task.task import Task
from eosframework.engine.worker.worker import Worker
from eosframework.engine.worker.worker_plan import Plan, WorkerCounts, WorkerOptions, downstream_of
from eosframework.errors import ConfigurationError, RunError
from eosframework.kafka.admin.auto_creation import ChosenTopics
from eosframework.kafka.admin.purging import RecordPurger
from eosframework.kafka.at_least_once import AtLeastOnceOutputs
from eosframework.kafka.consumer.input_log import KafkaInputLog
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.kafka.schema_registry.schema_codecs import open_schemas
from eosframework.kafka.worker_clients import (
    consumer_client,
    group_settings,
    producer_client,
    producer_pool,
)
from eosframework.postgres.tables.write_cycle import TableWriter
from eosframework.process.instance import own_instance, sudden_ends
from eosframework.process.memory import (
    exclude_what_is_there,
    free_bytes,
    keep_little,
    returned_memory,
)
from eosframework.process.progress import PIPE_VARIABLE, reporter, terminal_line
from eosframework.process.signals import stop_requests
from eosframework.process.supervisor import is_orphaned
from eosframework.process.watchdog import PROBE_SECONDS, TurnWatch, Watchdog
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.timed_topics import timed_topics
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from eosframework.transactions.ownership import Ownership
from eosframework.txnid import TransactionalId

if TYPE_CHECKING:
    from eosframework.engine.worker.worker_views import WorkerView

TAKEOVER_DEADLINE_SECONDS = 120.0
"""Time for which taking partitions over is retried. It is less than max.poll.interval.ms, after
which the group would assign the partitions to another member."""


class Kind(StrEnum):
    """Kinds of workers, each with its own consumer group.

    So transforms keep running while the database is unavailable.
    """

    TRANSFORMS = "transforms"
    TABLES = "tables"


@dataclass(frozen=True, slots=True)
class Host:
    """The connection of a worker to the process that it runs in.

    Args:
        watch: over the worker's turns.
        began: called once with the function that stops the worker.
        turned: called after each turn with the counts and a function that takes a snapshot.
        is_stopped: returns whether the worker was asked to stop while it starts.
    """

    watch: TurnWatch
    began: Callable[[Callable[[], None]], object]
    turned: Callable[[WorkerCounts, Callable[[], WorkerView]], object]
    is_stopped: Callable[[], bool] = is_orphaned


def load(application: str) -> Graph:
    """Return the topology that `application` names.

    Raises:
        TopologyError: it cannot be loaded, or is inconsistent.
    """
    return resolve(load_app(application))


def kinds(graph: Graph) -> list[Kind]:
    """Return the kinds of workers that a graph needs, in the order in which to run them once."""
    has = {Kind.TRANSFORMS: graph.sub_topologies, Kind.TABLES: graph.table_sinks}
    return [kind for kind, parts in has.items() if parts]


def check_start(graph: Graph, settings: Settings) -> None:
    """Check that workers can start.

    Raises:
        UserError: nothing was started; names the cause and the next step.
    """
    context = connect(graph, settings)

    def check() -> None:
        facts = check_worker_start(context, id_source(settings))
        require_fitting_partitioners(graph, settings, context.admin, facts.partitions)

    waiting_for_brokers(check, settings.kafka.start_timeout_seconds)
    open_schemas(graph.codecs, settings.schema_registry)
    _require_tables(graph, settings)


def run_kind(graph: Graph, settings: Settings, kind: Kind, *, until_caught_up: bool) -> bool:
    """Run a worker in this process until it is caught up or asked to stop.

    Returns:
        Whether it was asked to stop.

    Raises:
        UserError: nothing was started.
        RunError: processing cannot continue; complete transactions are committed.
        InstanceFenced: another worker took this one's identity over.
    """
    keep_little()
    with _checked_instance(graph, settings, kind, is_orphaned) as context:
        with (
            stop_requests(structlog.get_logger("eosframework.worker")) as request,
            _shown_progress() as show,
            _watchdog(settings) as watchdog,
            returned_memory(),
        ):

            def began(stop: Callable[[], None]) -> None:
                request.forward_to(stop)
                exclude_what_is_there()

            host = Host(watchdog, began, lambda counts, _: show(counts))
            counts = _run(context, kind, host, until_caught_up=until_caught_up)
        show(counts)
    return request.received


def run_embedded(
    graph: Graph, settings: Settings, kind: Kind, host: Host, *, until_caught_up: bool
) -> WorkerCounts:
    """Run a worker in a thread of another program until it is caught up or stopped.

    The program keeps its signals, its stderr and its garbage collector's settings.

    Raises:
        UserError: nothing was started.
        RunError: processing cannot continue; complete transactions are committed.
        InstanceFenced: another worker took this one's identity over.
    """
    with _checked_instance(graph, settings, kind, host.is_stopped) as context:
        return _run(context, kind, host, until_caught_up=until_caught_up)


def _run(context: WorkerContext, kind: Kind, host: Host, *, until_caught_up: bool) -> WorkerCounts:
    """Run a worker, and once more if a late request of its own fences it."""
    starts = [context]

    def run(report: Report) -> WorkerCounts:
        def turned(counts: WorkerCounts, view: Callable[[], WorkerView]) -> None:
            host.turned(report(counts), view)

        # A reset or another topology may have fenced it, so that a second start is checked again.
        start = starts.pop() if starts else checked_again()
        return _run_once(start, kind, replace(host, turned=turned), until_caught_up=until_caught_up)

    def checked_again() -> WorkerContext:
        graph, settings, instance = context.graph, context.settings, context.instance
        return _checked_context(graph, settings, instance, kind, host.is_stopped)

    return run_through_own_fence(run, context.instance)


def _run_once(
    context: WorkerContext, kind: Kind, host: Host, *, until_caught_up: bool
) -> WorkerCounts:
    with (
        _observed(context, kind, host.watch) as observed,
        _task_maker(context) as make_task,
        closing(ownership_of(context)) as claims,
    ):

        def on_round(counts: WorkerCounts) -> None:
            host.watch.turn()
            host.turned(counts, worker.view)
            if observed is not None:
                observed.turn(worker.view)
            if is_orphaned():
                worker.stop()

        context = replace(context, observed=observed)
        worker: Worker | TableWriter
        if kind is Kind.TABLES:
            worker = _table_writer(context, on_round)
        else:
            watch = _watch(context)
            plan = _plan(context, make_task, watch)
            worker = _worker(context, plan, watch, claims, on_round)
        host.began(worker.stop)
        return worker.run(until_caught_up=until_caught_up)


def settings_of_child(settings: Settings, instance: str, all_instances: Sequence[str]) -> Settings:
    """Return the settings of one of several workers that run side by side.

    Args:
        settings: of all of them.
        instance: name of this one.
        all_instances: the names of all, in the order of their HTTP ports.
    """
    address = settings.worker.http_address
    if address is not None:
        # Import the server only if it is used.
        from eosframework.application.monitoring.http.http_server import address_of_child

        address = address_of_child(address, all_instances.index(instance))
    return settings.with_instance(instance, address)


@contextmanager
def _checked_instance(
    graph: Graph, settings: Settings, kind: Kind, is_stopped: Callable[[], bool]
) -> Generator[WorkerContext]:
    """Hold an instance name during the block, and count the block as a sudden end until it ends."""
    with own_instance(graph.application, settings.worker) as instance:
        context = _checked_context(graph, settings, instance, kind, is_stopped)
        ends = sudden_ends(graph.application, instance, settings.worker)
        if ends.are_suspect and (left := free_bytes()) is not None:
            # Import kafka-python only then.
            from eosframework.application.composition.batch_check import check_batches

            check_batches(context, instance, ends.count, left, tables=kind is Kind.TABLES)
        with ends.counted():
            yield context


def _checked_context(
    graph: Graph,
    settings: Settings,
    instance: str,
    kind: Kind,
    is_stopped: Callable[[], bool],
) -> WorkerContext:
    opened = connect(graph, settings)
    admin, control_topic = opened.admin, opened.control_topic
    # The supervisor made some checks when it started. A child must also start while a server is
    # unavailable: if it ended, the supervisor would stop the other children.
    is_child = PIPE_VARIABLE in os.environ

    def check() -> Facts:
        facts = check_worker_start(opened, id_source(settings))
        if kind is Kind.TRANSFORMS and not is_child:
            require_fitting_partitioners(graph, settings, admin, facts.partitions)
        return facts

    limit_seconds = None if is_child else settings.kafka.start_timeout_seconds
    facts = waiting_for_brokers(check, limit_seconds, is_stopped)
    open_schemas(graph.codecs, settings.schema_registry, checked=not is_child)
    if kind is Kind.TABLES and not is_child:
        _require_tables(graph, settings)
    if kind is Kind.TRANSFORMS and not is_child:
        _log_doubtful_settings(graph, facts)
    return WorkerContext(graph, settings, admin, control_topic, instance, facts)


def _log_doubtful_settings(graph: Graph, facts: Facts) -> None:
    events = structlog.get_logger("eosframework.worker")
    for found in doubtful_settings(graph, facts.topics):
        events.warning("topic_setting", topic=found.topic, reason=str(found))


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

    context = CompileContext(
        receipts=receipts,
        limits=limits or {},
        is_missing=is_missing,
        own_topics=graph.repartition_topics,
        timed_topics=timed,
    )
    return Plan(
        application=graph.application,
        parts={part.name: compile_part(part, context) for part in graph.sub_topologies},
        identify=identify,
        receipts=receipts,
        own_topics=graph.repartition_topics,
        internal_topics=graph.internal_topics.union(graph.rows_topics),
        downstream=downstream_of(timed, partitions or {}),
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
        purger=RecordPurger(settings.kafka) if purges else None,
        identities=watch,
        measured=context.observed is not None,
        on_round=on_round,
    )


def _input_log(context: WorkerContext, watch: TopicWatch) -> KafkaInputLog:
    graph, settings = context.graph, context.settings
    return KafkaInputLog(
        consumer_client(settings, context.facts.largest_input_bytes(graph)),
        group_settings(graph.application, settings, context.instance),
        request_timeout_seconds=settings.kafka.request_timeout_seconds,
        statistics=context.statistics,
        refuse=watch.refuse_new,
        admin=context.admin,
    )


def _watch(context: WorkerContext) -> TopicWatch:
    """Return the watch over the topics of a worker of transforms."""
    graph, facts = context.graph, context.facts
    control_topic = context.control_topic.topic
    uses = {**uses_of(graph), control_topic: Use.CONTROL}
    known = {t: found for t, found in facts.identities.items() if t in uses}
    known |= context.admin.identities([control_topic])
    return TopicWatch(known, uses, WatchedCluster(context), facts.control.committed)


def _state(context: WorkerContext) -> LocalState | None:
    graph = context.graph
    if not graph.global_tables and not graph.stores:
        return None
    # Import stores only if the topology has some.
    from eosframework.application.composition.worker_state import local_state

    shared = context.observed.shared if context.observed else None
    topics = context.facts.topics
    return local_state(graph, context.settings, context.instance, topics, context.admin, shared)


def _task_maker(context: WorkerContext) -> AbstractContextManager[Callable[..., Task]]:
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


def _observed(
    context: WorkerContext, kind: Kind, watch: TurnWatch
) -> AbstractContextManager[Observed[WorkerView] | None]:
    """Run the HTTP server during the block, if an address is configured."""
    if context.settings.worker.http_address is None:
        return nullcontext()
    # Import the server only if it is used.
    from eosframework.application.composition.http import observed_worker
    from eosframework.application.monitoring.metrics.catalogue import Process

    return observed_worker(context, Process(kind.value), watch)


def _require_tables(graph: Graph, settings: Settings) -> None:
    """Check the tables of the graph's table sinks."""
    if graph.table_sinks:
        from eosframework.application.composition.table_writer import require_tables

        require_tables(graph, settings)


def _table_writer(context: WorkerContext, on_round: Callable[[WorkerCounts], None]) -> TableWriter:
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
        graph.whole_topics,
        members=lambda: context.admin.describe_group(graph.application),
        judged=context.facts.control,
    )


def _ownership(context: WorkerContext, claims: OwnershipTopic) -> Ownership | None:
    """Return the claims of the worker; None: without transactions there is nothing to fence."""
    if context.settings.worker.guarantee is not Guarantee.EXACTLY_ONCE:
        return None
    claims.prepare()  # while the worker joins its group
    return Ownership(claims, uuid4().hex)


def _outputs(context: WorkerContext, log: KafkaInputLog) -> ProducerPool | AtLeastOnceOutputs:
    graph, settings = context.graph, context.settings
    properties = producer_client(settings, context.facts.output_limits(graph))
    timeout_seconds = settings.worker.transaction_timeout_seconds
    if settings.worker.guarantee is Guarantee.AT_LEAST_ONCE:
        return AtLeastOnceOutputs(properties, log, delivery_timeout_seconds=timeout_seconds)
    return producer_pool(settings, properties, graph.written_topics, context.statistics)


def _watchdog(settings: Settings) -> Watchdog:
    return Watchdog(
        turn_seconds=turn_seconds(settings),
        stop_seconds=settings.worker.stop_deadline_seconds,
        probe_seconds=0.0 if settings.worker.http_address is None else PROBE_SECONDS,
        restarted=PIPE_VARIABLE in os.environ,
    )


def turn_seconds(settings: Settings) -> float:
    """Return an upper bound for a turn.

    A worker's turn may take partitions over, commit, recycle producers and read offsets. A table
    writer's turn may claim and write, each with a few statements.
    """
    database = settings.database
    return (
        TAKEOVER_DEADLINE_SECONDS
        + 4 * settings.worker.transaction_timeout_seconds
        + 4 * settings.kafka.request_timeout_seconds
        + 4 * (database.statement_timeout_seconds + database.network_timeout_seconds)
    )


@contextmanager
def _shown_progress() -> Generator[Callable[[WorkerCounts], None]]:
    report = reporter()
    if report is not None:
        yield report.show
        return
    with terminal_line() as show:
        yield show
