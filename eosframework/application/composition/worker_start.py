"""The start of a worker, from a resolved graph to its first poll: a list.

    own        the instance's name; a process with the same name is refused
    gather     what the cluster has, once
    judge      would the guarantee hold (`start_checks`); do other programs' records fit
    act        record the topology and the ids; all three again while brokers do not answer
    open       schemas; for table writers the tables
    look back  after sudden ends, for batches that fill the memory
    watch      signals, turns, progress
    compose    the worker (`worker`), and run it: subscribe, and poll

A worker that is fenced starts again once, from `gather` on, because the fence may be its own:

1. It sends JoinGroup with its `group.instance.id`; the connection breaks before the answer.
2. It sends JoinGroup again, becomes a member and is assigned partitions.
3. The first request arrives late. To the coordinator it is a restart of the instance (KIP-345): the
   name gets a new member id, which no process has, and the worker is fenced.

The coordinator's description of the group is no help: a replaced member keeps the client id and
host of its predecessor. The worker that starts again takes the name back at once. A real rival with
the same name fences it again, which ends it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import structlog

from eosframework.application.composition.context import Observed, WorkerContext
from eosframework.application.composition.ids import id_source
from eosframework.application.composition.worker import (
    TAKEOVER_DEADLINE_SECONDS,
    Kind,
    composed,
    composed_table_writer,
    kinds,
    observed,
    require_journals_of,
    require_tables_of,
    task_maker,
)
from eosframework.application.context import ApplicationContext, connect
from eosframework.application.failed_records import record_failure
from eosframework.application.internal_topics import doubtful_settings, task_counts
from eosframework.application.matched_topics import report_matched_topics, waiting_for_topics
from eosframework.application.ownership_topic import ownership_of
from eosframework.application.partitioner_checks import require_fitting_partitioners
from eosframework.application.start_checks import Facts, check_worker_start
from eosframework.application.start_wait import waiting_for_brokers
from eosframework.config import Settings
from eosframework.engine.worker.worker import Worker
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.errors import MatchedTopicGone, MatchedTopicsChanged, RecordFailed
from eosframework.kafka.schema_registry.schema_codecs import open_schemas
from eosframework.kafka.taxonomy import InstanceReplaced
from eosframework.postgres.tables.write_cycle import TableWriter
from eosframework.process.instance import own_instance, sudden_ends
from eosframework.process.memory import (
    exclude_what_is_there,
    free_bytes,
    keep_little,
    returned_memory,
)
from eosframework.process.progress import PIPE_VARIABLE, reporter, terminal_line, total
from eosframework.process.signals import StopRequest, SuddenEnds, stop_requests
from eosframework.process.supervisor import is_orphaned
from eosframework.process.watchdog import PROBE_SECONDS, TurnWatch, Watchdog
from eosframework.topology.graph.graph import Graph
from eosframework.transactions import failpoints

if TYPE_CHECKING:
    from eosframework.application.monitoring.owners import Owners
    from eosframework.engine.stores.shared_stores import SharedStores
    from eosframework.engine.worker.worker_views import WorkerView

RIVAL_SECONDS = 300.0
"""A worker that is fenced twice within this time has a rival with the same instance name."""


class Host(Protocol):
    """The process that a worker runs in."""

    @property
    def watch(self) -> TurnWatch:
        """The watch over the worker's turns."""
        ...

    @property
    def shared(self) -> SharedStores | None:
        """The worker's stores for other threads; None: no thread reads them."""
        ...

    def began(
        self, stop: Callable[[], None], tasks: Mapping[str, int], owners: Owners | None
    ) -> None:
        """Note that the worker has passed its checks.

        Args:
            stop: stops it.
            tasks: number of tasks of each sub-topology.
            owners: of the tasks; None: the worker serves no HTTP.
        """
        ...

    def turned(self, counts: WorkerCounts, view: Callable[[], WorkerView]) -> None:
        """Take the counts after a turn, and a function that takes a snapshot."""
        ...

    def is_stopped(self) -> bool:
        """Return whether the worker was asked to stop while it starts."""
        ...


@dataclass(frozen=True, slots=True)
class _OwnProcess:
    """A process that has nothing but a worker."""

    watch: Watchdog
    request: StopRequest
    show: Callable[[WorkerCounts], None]
    shared: SharedStores | None = None

    def began(
        self, stop: Callable[[], None], tasks: Mapping[str, int], owners: Owners | None
    ) -> None:
        self.request.forward_to(stop)
        exclude_what_is_there()

    def turned(self, counts: WorkerCounts, view: Callable[[], WorkerView]) -> None:
        self.show(counts)

    def is_stopped(self) -> bool:
        return is_orphaned()


def check_start(graph: Graph, settings: Settings) -> None:
    """Check that workers can start.

    Raises:
        UserError: nothing was started; names the cause and the next step.
    """
    _opened(graph, settings, kinds(graph), is_orphaned)


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
    with own_instance(graph.application, settings.worker) as instance:
        waits = not until_caught_up
        context = _started(graph, settings, instance, kind, is_orphaned, waits=waits)
        with (
            _looked_back(context, kind).counted(),
            stop_requests(structlog.get_logger("eosframework.worker")) as request,
            _shown_progress() as show,
            _watchdog(settings) as watchdog,
            returned_memory(),
        ):
            host = _OwnProcess(watchdog, request, show)
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
    with own_instance(graph.application, settings.worker) as instance:
        waits = not until_caught_up
        context = _started(graph, settings, instance, kind, host.is_stopped, waits=waits)
        with _looked_back(context, kind).counted():
            return _run(context, kind, host, until_caught_up=until_caught_up)


def checked(
    context: ApplicationContext, wanted: Collection[Kind], is_stopped: Callable[[], bool]
) -> Facts:
    """Gather, judge and act; open schemas and tables.

    A child of a supervisor leaves out what the supervisor has checked, and waits without a limit:
    it must also start while a server is unavailable, since if it ended, the supervisor would stop
    the other children.

    Args:
        context: of the application.
        wanted: the kinds of workers that are to start.
        is_stopped: returns whether to give up while brokers do not answer.

    Raises:
        UserError: nothing was started; names the cause and the next step.
    """
    graph, settings = context.graph, context.settings
    require_journals_of(graph, settings)
    is_child = PIPE_VARIABLE in os.environ
    runs_transforms = Kind.TRANSFORMS in wanted and not is_child
    judge = partial(_judged, context, partitioners=runs_transforms)
    facts = waiting_for_brokers(judge, _limit_seconds(settings), is_stopped)
    open_schemas(graph.codecs, settings.schema_registry, checked=not is_child)
    if (runs_transforms and graph.together) or (Kind.TABLES in wanted and not is_child):
        require_tables_of(graph, settings)
    if runs_transforms:
        _log_doubtful_settings(graph, facts)
    return facts


def _judged(context: ApplicationContext, *, partitioners: bool) -> Facts:
    graph, settings = context.graph, context.settings
    facts = check_worker_start(context, id_source(settings))
    if partitioners:
        require_fitting_partitioners(graph, settings, context.admin, facts.partitions)
    return facts


def _started(
    graph: Graph,
    settings: Settings,
    instance: str,
    kind: Kind,
    is_stopped: Callable[[], bool],
    *,
    waits: bool = True,
) -> WorkerContext:
    opened, facts = _opened(graph, settings, [kind], is_stopped, waits=waits)
    admin, control_topic = opened.admin, opened.control_topic
    return WorkerContext(opened.graph, settings, admin, control_topic, instance, facts)


def _opened(
    graph: Graph,
    settings: Settings,
    wanted: Collection[Kind],
    is_stopped: Callable[[], bool],
    *,
    waits: bool = False,
) -> tuple[ApplicationContext, Facts]:
    """Connect, match patterns with the topics of now, and perform `checked`.

    Args:
        graph: of the application.
        settings: of its workers.
        wanted: the kinds of workers that are to start.
        is_stopped: returns whether to give up while brokers do not answer.
        waits: for the first topic that matches, if the topology reads no other one.
    """
    limit_seconds = _limit_seconds(settings)
    while True:
        context = waiting_for_brokers(partial(connect, graph, settings), limit_seconds, is_stopped)
        if waits and Kind.TRANSFORMS in wanted:
            report_matched_topics(context.graph)
            found = waiting_for_topics(context.graph, context.admin, is_stopped)
            context = replace(context, graph=found)
        try:
            return context, checked(context, wanted, is_stopped)
        except MatchedTopicGone as gone:
            structlog.get_logger("eosframework.worker").warning("checked_again", reason=str(gone))


def _limit_seconds(settings: Settings) -> float | None:
    is_child = PIPE_VARIABLE in os.environ
    return None if is_child else settings.kafka.start_timeout_seconds


def _log_doubtful_settings(graph: Graph, facts: Facts) -> None:
    events = structlog.get_logger("eosframework.worker")
    for found in doubtful_settings(graph, facts.topics):
        events.warning("topic_setting", topic=found.topic, reason=str(found))


def _looked_back(context: WorkerContext, kind: Kind) -> SuddenEnds:
    """Return the sudden ends of earlier starts; after several, refuse batches of another size."""
    ends = sudden_ends(context.graph.application, context.instance, context.settings.worker)
    if ends.are_suspect and (left := free_bytes()) is not None:
        # Import kafka-python only then.
        from eosframework.application.composition.batch_check import check_batches

        check_batches(context, context.instance, ends.count, left, tables=kind is Kind.TABLES)
    return ends


def _run(context: WorkerContext, kind: Kind, host: Host, *, until_caught_up: bool) -> WorkerCounts:
    """Run a worker, and again if a late request of its own fences it, or topics came or went."""
    fences = OwnFences(context.instance)
    while True:
        if kind is Kind.TRANSFORMS and not context.graph.sub_topologies:
            return fences.with_former(WorkerCounts())  # No topic matches, and none is waited for.
        try:
            counts = _run_once(context, kind, host, fences, until_caught_up=until_caught_up)
            return fences.with_former(counts)
        except InstanceReplaced as fence:
            fences.excuse(fence)
        except MatchedTopicsChanged as change:
            fences.begin_anew()
            events = structlog.get_logger("eosframework.worker")
            events.info("matched_topics_changed", reason=str(change))
            failpoints.hit("topics.changed")
        # A reset or another topology may have fenced it, so the second start is checked again.
        graph, settings, instance = context.graph, context.settings, context.instance
        waits = not until_caught_up
        context = _started(graph, settings, instance, kind, host.is_stopped, waits=waits)


def _run_once(
    context: WorkerContext, kind: Kind, host: Host, fences: OwnFences, *, until_caught_up: bool
) -> WorkerCounts:
    context = replace(context, shared=host.shared)
    with (
        observed(context, kind, host.watch) as reader,
        task_maker(context) as make_task,
        closing(ownership_of(context)) as claims,
    ):
        shared = context.shared if reader is None else reader.shared
        context = replace(context, observed=reader, shared=shared)
        turns = _Turns(host, fences, reader)
        worker: Worker | TableWriter
        if kind is Kind.TABLES:
            worker = composed_table_writer(context, turns)
        else:
            worker = composed(context, make_task, claims, turns)
        turns.worker = worker
        tasks = task_counts(context.graph, context.facts.partitions)
        host.began(worker.stop, tasks, None if reader is None else reader.owners)
        try:
            return worker.run(until_caught_up=until_caught_up)
        except RecordFailed as error:
            record_failure(context.control_topic, error, context.instance)
            raise


@dataclass(slots=True)
class _Turns:
    """The consequences of a turn of a worker."""

    host: Host
    fences: OwnFences
    reader: Observed[WorkerView] | None
    worker: Worker | TableWriter | None = None

    def __call__(self, counts: WorkerCounts) -> None:
        assert self.worker is not None
        self.host.watch.turn()
        self.host.turned(self.fences.with_former(counts), self.worker.view)
        if self.reader is not None:
            self.reader.turn(self.worker.view)
        if is_orphaned():
            self.worker.stop()


class OwnFences:
    """The fences of one worker that may be its own, and the counts of the runs that they ended.

    Args:
        instance: name of the worker.
        clock: seconds, monotonic.
    """

    def __init__(self, instance: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._instance = instance
        self._clock = clock
        self._fenced_at = -RIVAL_SECONDS
        self._former: WorkerCounts | None = None
        self._latest = WorkerCounts()

    def with_former(self, counts: WorkerCounts) -> WorkerCounts:
        """Return the counts of the running worker with those of the runs before."""
        self._latest = counts if self._former is None else total([self._former, counts])
        return self._latest

    def begin_anew(self) -> None:
        """Keep the counts of the run that ended."""
        self._former = replace(self._latest, lag=0, restoring=0, held=0)

    def excuse(self, fence: InstanceReplaced) -> None:
        """Return if the worker may start again.

        Raises:
            InstanceFenced: the group fenced it twice within `RIVAL_SECONDS`.
        """
        if (now := self._clock()) - self._fenced_at < RIVAL_SECONDS:
            raise fence
        self._fenced_at = now
        self.begin_anew()
        events = structlog.get_logger("eosframework.worker")
        events.warning("worker_fenced", instance=self._instance, reason=str(fence))


def settings_of_child(settings: Settings, instance: str, all_instances: Sequence[str]) -> Settings:
    """Return the settings of one of several workers that run side by side.

    Args:
        settings: of all of them.
        instance: name of this one.
        all_instances: the names of all, in the order of their HTTP ports.
    """
    address, advertised = settings.worker.http_address, settings.worker.http_advertised_address
    if address is not None:
        # Import the server only if it is used.
        from eosframework.application.monitoring.http.http_server import address_of_child

        number = all_instances.index(instance)
        address = address_of_child(address, number)
        advertised = None if advertised is None else address_of_child(advertised, number)
    return settings.with_instance(instance, address, advertised)


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
