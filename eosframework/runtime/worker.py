"""Composition root: settings and a topology become a worker on a real cluster."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

import structlog

from eosframework.application.control_topic import Registry
from eosframework.application.known_refusals import known_refusals
from eosframework.application.partition_growth import Growth, counting
from eosframework.application.partitioner_checks import require_fitting_partitioners
from eosframework.application.start_checks import (
    Facts,
    check_worker_start,
    global_topics,
    persisted_topics,
    source_topics,
    written_topics,
)
from eosframework.application.start_positions import RegistryLedger, UnmarkedLedger
from eosframework.config import Guarantee, Settings
from eosframework.errors import RunError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.missing_topics import ChosenTopics
from eosframework.kafka.admin.purging import RecordPurger
from eosframework.kafka.at_least_once import AtLeastOnceOutputs
from eosframework.kafka.consumer.input_log import KafkaInputLog
from eosframework.kafka.consumer.range_reader import hold_nothing
from eosframework.kafka.producer.producer_pool import KafkaOutputs
from eosframework.kafka.schema_registry.schema_codecs import open_schemas
from eosframework.kafka.worker_clients import consumer_client, group_settings, producer_client
from eosframework.process.fork import is_orphaned
from eosframework.process.instance import own_instance
from eosframework.process.progress import PIPE_VARIABLE, ProgressLine, reporter
from eosframework.process.signals import requests
from eosframework.process.watchdog import Watchdog
from eosframework.processing.codegen.compiler import compile_part
from eosframework.processing.failures.refused_outputs import OutputLimits
from eosframework.processing.plan import Plan, WorkerCounts, WorkerOptions
from eosframework.processing.stores.local_state import LocalState
from eosframework.processing.task import Task
from eosframework.processing.worker import Worker
from eosframework.runtime.ids import id_source
from eosframework.tables.writer import PersisterWorker
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from eosframework.txnid import TransactionalId

if TYPE_CHECKING:
    from eosframework.runtime.http import AskedWorker

TAKEOVER_DEADLINE_SECONDS = 120.0
"""How long taking partitions over is tried. Less than max.poll.interval.ms, after which the
group would give the partitions to somebody else."""


class Kind(StrEnum):
    """What a worker does: the two kinds have groups of their own, so neither waits for the other.

    A database that is away holds no transform up.
    """

    TRANSFORMS = "transforms"
    TABLES = "tables"


def load(application: str) -> Graph:
    """Return the topology that `application` names.

    Raises:
        TopologyError: it cannot be loaded, or does not hold together.
    """
    return resolve(load_app(application))


def kinds(graph: Graph) -> list[Kind]:
    """Return what a graph needs workers for; rows come to be before they are written."""
    has = {Kind.TRANSFORMS: graph.sub_topologies, Kind.TABLES: graph.persisters}
    return [kind for kind, parts in has.items() if parts]


def prepare(graph: Graph, settings: Settings) -> None:
    """Make sure that workers can start.

    Raises:
        UserError: nothing was started; says what is wrong and what to do.
    """
    admin = ClusterAdmin(settings.kafka)
    facts = check_worker_start(
        graph, settings, admin, _registry(graph, settings, admin), id_source(settings)
    )
    require_fitting_partitioners(graph, settings, admin, facts.partitions)
    open_schemas(graph.codecs, settings.schema_registry)
    _require_tables(graph, settings)


def run_in_process(graph: Graph, settings: Settings, kind: Kind, *, until_caught_up: bool) -> bool:
    """Run a worker in this process until it is caught up or asked to stop.

    Returns:
        Whether it was asked to stop.

    Raises:
        UserError: nothing was started.
        RunError: processing cannot go on; what was complete is committed.
        InstanceFenced: another worker took this one's identity over.
    """
    with own_instance(graph.application, settings.worker.instance) as instance:
        admin = ClusterAdmin(settings.kafka)
        registry = _registry(graph, settings, admin)
        facts = check_worker_start(graph, settings, admin, registry, id_source(settings))
        # A child's servers were there when its supervisor started; now they may be away.
        is_child = PIPE_VARIABLE in os.environ
        if kind is Kind.TRANSFORMS and not is_child:
            require_fitting_partitioners(graph, settings, admin, facts.partitions)
        open_schemas(graph.codecs, settings.schema_registry, checked=not is_child)
        if kind is Kind.TABLES and not is_child:
            _require_tables(graph, settings)
        with (
            requests(structlog.get_logger("eosframework.worker")) as request,
            _shown_progress() as show,
            _watchdog(settings) as watchdog,
            _asked(graph, settings, instance, kind, facts) as asked,
            _making_tasks(graph, settings, instance) as make_task,
        ):

            def on_round(counts: WorkerCounts) -> None:
                watchdog.turn()
                growth.turn()
                show(counts)
                if asked is not None:
                    asked.turn(worker.view)
                if is_orphaned():
                    worker.stop()

            growth = _growth(graph, settings, facts, kind)
            worker: Worker | PersisterWorker
            if kind is Kind.TABLES:
                worker = _persister(graph, settings, instance, facts, on_round, asked)
            else:
                state = _state(graph, settings, instance, facts, admin, asked)
                plan = plan_of(
                    graph.with_times_within(settings.worker.max_event_time_ahead),
                    facts.ids,
                    known_refusals(settings, facts, graph),
                    receipts=settings.worker.receipts,
                    is_missing=ChosenTopics(settings.kafka, admin).is_missing,
                )
                plan = replace(plan, make_task=make_task)
                log = _input_log(graph, settings, instance, facts, asked, growth)
                worker = _worker(
                    graph, settings, log, registry, facts, admin, on_round, state, asked, plan
                )
            request.goes_to(worker.stop)
            _collect_rarely()
            counts = worker.run(until_caught_up=until_caught_up)
        show(counts)
    return request.came


def plan_of(
    graph: Graph,
    ids: Sequence[TransactionalId],
    limits: Mapping[str, OutputLimits] | None = None,
    *,
    receipts: bool = False,
    is_missing: Callable[[str], bool] | None = None,
) -> Plan:
    """Compile a graph into what a worker runs.

    Args:
        graph: of the application.
        ids: of all tasks.
        limits: by topic, what it is known to refuse.
        receipts: give outputs a receipt.
        is_missing: see `compile_part`.
    """
    known = {(task.sub_topology, task.partition): task for task in ids}

    def identify(sub_topology: str, partition: int) -> TransactionalId:
        name = (sub_topology, partition)
        if name not in known and any(
            task.leased or task.partitions_per_producer > 1 for task in ids
        ):
            raise RunError(
                f"the sources of sub-topology {sub_topology!r} got a partition {partition} after "
                f"this worker had started, and it has no transactional id; start the worker again"
            )
        return known.get(name) or TransactionalId.make(graph.application, *name)

    return Plan(
        application=graph.application,
        parts={
            part.name: compile_part(
                part,
                receipts=receipts,
                closed_topics=graph.internal_topics,
                limits=limits,
                is_missing=is_missing,
            )
            for part in graph.sub_topologies
        },
        identify=identify,
        receipts=receipts,
        own_topics=frozenset(repartition.topic for repartition in graph.repartitions),
        partitions_per_producer=max((t.partitions_per_producer for t in ids), default=1),
        partitions=Counter(task.sub_topology for task in ids),
    )


def _worker(
    graph: Graph,
    settings: Settings,
    log: KafkaInputLog,
    registry: Registry,
    facts: Facts,
    admin: ClusterAdmin,
    on_round: Callable[[WorkerCounts], None],
    state: LocalState | None,
    asked: AskedWorker | None,
    plan: Plan,
) -> Worker:
    worker = settings.worker
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
        commit_turns=1 if worker.guarantee is Guarantee.AT_LEAST_ONCE else worker.commit_turns,
    )
    return Worker(
        plan,
        log,
        _outputs(graph, settings, facts, log, asked),
        _ledger(graph, settings, registry, admin),
        options,
        state=state,
        purger=None if worker.receipts else _purger(graph, settings),
        hold_nothing=partial(hold_nothing, settings.kafka, admin),
        measured=asked is not None,
        on_round=on_round,
    )


def _input_log(
    graph: Graph,
    settings: Settings,
    instance: str,
    facts: Facts,
    asked: AskedWorker | None,
    growth: Growth,
) -> KafkaInputLog:
    return KafkaInputLog(
        consumer_client(settings, facts.largest_input_bytes(graph)),
        group_settings(graph.application, settings, instance),
        request_timeout_seconds=settings.kafka.request_timeout_seconds,
        statistics=asked.statistics if asked else None,
        refuse=growth.refuse_new,
    )


def _growth(graph: Graph, settings: Settings, facts: Facts, kind: Kind) -> Growth:
    """Return what finds topics that grow: a table writer takes new partitions in as they come."""
    counts = {name: found.partitions for name, found in facts.topics.items() if found.exists}
    tables = set(persisted_topics(graph))
    if kind is Kind.TABLES:
        known, read, whole = {t: n for t, n in counts.items() if t in tables}, (), ()
    else:
        known, read, whole = counts, source_topics(graph), global_topics(graph)
    return Growth(known, read, whole, counting(settings.kafka, known))


def _purger(graph: Graph, settings: Settings) -> RecordPurger | None:
    """Return what removes records of own topics that were read; an audit by receipts needs them."""
    return RecordPurger(settings.kafka) if graph.repartitions else None


def _state(
    graph: Graph,
    settings: Settings,
    instance: str,
    facts: Facts,
    admin: ClusterAdmin,
    asked: AskedWorker | None,
) -> LocalState | None:
    if not graph.global_tables and not any(part.stores for part in graph.sub_topologies):
        return None
    # Whoever keeps nothing needs no stores.
    from eosframework.runtime.state import local_state

    shared = asked.shared if asked else None
    return local_state(graph, settings, instance, facts.topics, admin, shared)


@contextmanager
def _making_tasks(
    graph: Graph, settings: Settings, instance: str
) -> Generator[Callable[..., Task]]:
    """Trace what tasks do, if that is wanted."""
    if not settings.tracing.enabled:
        yield Task
        return
    # Whoever is not traced needs no OpenTelemetry.
    from eosframework.monitoring.tracing.traced_tasks import traced_tasks

    with traced_tasks(graph.application, instance, settings.tracing) as make_task:
        yield make_task


@contextmanager
def _asked(
    graph: Graph, settings: Settings, instance: str, kind: Kind, facts: Facts
) -> Generator[AskedWorker | None]:
    """Answer over HTTP, if that is wanted."""
    address = settings.worker.http_address
    if address is None:
        yield None
        return
    # Whoever is not asked needs no server.
    from eosframework.monitoring.metrics.metric import Process
    from eosframework.runtime.http import asked_worker

    stuck_seconds = _turn_seconds(settings)
    process = Process(kind.value)
    with asked_worker(address, graph, settings, instance, process, facts, stuck_seconds) as asked:
        yield asked


def _require_tables(graph: Graph, settings: Settings) -> None:
    """Check the tables, where there are any."""
    if graph.persisters:
        from eosframework.runtime.table_writer import require_tables

        require_tables(graph, settings)


def _persister(
    graph: Graph,
    settings: Settings,
    instance: str,
    facts: Facts,
    on_round: Callable[[WorkerCounts], None],
    asked: AskedWorker | None,
) -> PersisterWorker:
    # Whoever fills no tables needs no driver of a database.
    from eosframework.runtime.table_writer import persister_worker

    statistics = asked.statistics if asked else None
    return persister_worker(graph, settings, instance, facts, on_round, statistics)


def _ledger(
    graph: Graph, settings: Settings, registry: Registry, admin: ClusterAdmin
) -> RegistryLedger:
    exactly_once = settings.worker.guarantee is Guarantee.EXACTLY_ONCE
    ledger = RegistryLedger if exactly_once else UnmarkedLedger
    return ledger(
        graph.application,
        registry,
        settings.worker.start,
        graph.whole_topics,
        members=lambda: admin.describe_group(graph.application).client_ids,
    )


def _outputs(
    graph: Graph,
    settings: Settings,
    facts: Facts,
    log: KafkaInputLog,
    asked: AskedWorker | None,
) -> KafkaOutputs | AtLeastOnceOutputs:
    properties = producer_client(settings, facts.output_limits(graph))
    timeout_seconds = settings.worker.transaction_timeout_seconds
    if settings.worker.guarantee is Guarantee.AT_LEAST_ONCE:
        return AtLeastOnceOutputs(properties, log, delivery_timeout_seconds=timeout_seconds)
    return KafkaOutputs(
        properties,
        transaction_timeout_seconds=timeout_seconds,
        request_timeout_seconds=settings.kafka.request_timeout_seconds,
        assume_transaction_verification=settings.kafka.assume_transaction_verification,
        topics=written_topics(graph),
        statistics=asked.statistics if asked else None,
    )


def _registry(graph: Graph, settings: Settings, admin: ClusterAdmin) -> Registry:
    factor = settings.topics.replication_factor
    return Registry(graph.application, settings.kafka, admin, replication_factor=factor)


def _watchdog(settings: Settings) -> Watchdog:
    return Watchdog(
        turn_seconds=_turn_seconds(settings),
        stop_seconds=settings.worker.stop_deadline_seconds,
        restarted=PIPE_VARIABLE in os.environ,
    )


def _turn_seconds(settings: Settings) -> float:
    """Return the most that a turn takes.

    It may take partitions over, commit, replace producers and read offsets. That of a persister may
    claim and write, each a few statements long.
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
    with ProgressLine() as line:
        yield line.show


def _collect_rarely() -> None:
    """Let the garbage collector look once in a while instead of several times in each batch.

    A batch makes thousands of tuples and messages, all freed by their reference counts; walking
    them at every 700th took 3 to 7% of the main thread. Cycles that users' functions make are
    still found.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
