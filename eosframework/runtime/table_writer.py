"""Composition of what fills tables: settings and a graph become tables and a worker for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eosframework.application.position_changes import (
    COMMITTED,
    PositionRequest,
    by_partition,
    offsets_for,
)
from eosframework.application.start_checks import Facts
from eosframework.config import Settings, Start
from eosframework.errors import ConfigurationError, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.purging import RecordPurger
from eosframework.kafka.client.properties import Role, client_properties
from eosframework.kafka.client.statistics import ClientStatistics
from eosframework.kafka.consumer.input_log import KafkaInputLog
from eosframework.kafka.worker_clients import tables_group_settings
from eosframework.postgres import Database
from eosframework.postgres.tables.table_positions import (
    StoredPosition,
    store_positions,
    stored_positions,
)
from eosframework.postgres.tables.table_schema import TablesPlan, apply_tables, plan_tables
from eosframework.postgres.tables.table_sink import PostgresRowStore
from eosframework.processing.plan import WorkerCounts
from eosframework.records import Position, TopicPartition
from eosframework.tables.claims import Starts
from eosframework.tables.writer import PersisterOptions, PersisterWorker
from eosframework.topology.graph.graph import Graph
from eosframework.txnid import tables_group

LONGEST_INTERVAL_SECONDS = 5.0
"""No slow database stretches the interval beyond this."""


def plan_database(graph: Graph, settings: Settings) -> TablesPlan | None:
    """Return what a graph's tables need; None: it fills none. Changes nothing.

    Raises:
        ConfigurationError: no database is named.
        DatabaseUnusable: it cannot be connected to, is too old, or is a standby.
        StartRefused: its schema was made by a newer eosframework.
    """
    if not graph.persisters:
        return None
    database = _database(graph, settings)
    database.require()
    return plan_tables(database, graph.persisters)


def apply_database(graph: Graph, settings: Settings) -> list[str]:
    """Create what a graph's tables need and the database lacks, and return what was made.

    Raises:
        ConfigurationError: no database is named.
        DatabaseUnusable: it cannot be connected to, is too old, or is a standby.
        DatabaseRefused: a privilege is missing.
        StartRefused: its schema was made by a newer eosframework.
    """
    if not graph.persisters:
        return []
    database = _database(graph, settings)
    database.require()
    return apply_tables(database, graph.persisters)


def require_tables(graph: Graph, settings: Settings) -> None:
    """Make sure that rows can be written before any is read.

    Raises:
        ConfigurationError: no database is named.
        DatabaseUnusable: it cannot be connected to, is too old, or is a standby.
        StartRefused: something is missing or does not fit; says all of it and what to do.
    """
    plan = plan_database(graph, settings)
    if plan is None:
        return
    findings = list(plan.problems)
    if plan.lacking:
        listed = "; ".join(plan.lacking)
        findings.append(f"{plan.database} lacks {listed}: create it with `eosframework apply APP`")
    if findings:
        raise StartRefused("\n".join(findings))


def table_positions(graph: Graph, settings: Settings) -> list[Position]:
    """Return where a graph's tables go on, as the database has it.

    Raises:
        ConfigurationError: no database is named.
        DatabaseUnusable: it cannot be asked, or has no schema yet.
    """
    stored = stored_positions(_database(graph, settings), graph.application)
    topics = {persister.topic for persister in graph.persisters}
    return [Position(*p.partition, p.next_offset) for p in stored if p.partition.topic in topics]


def set_table_positions(
    graph: Graph, wishes: Sequence[PositionRequest], settings: Settings, admin: ClusterAdmin
) -> list[Position]:
    """Set where a graph's tables go on, while no worker fills them; a topic made again is accepted.

    Rows stay as they are: what is read again is written again, upserts apart.

    Raises:
        StartRefused: workers are running.
        ConfigurationError: a topic, a partition or an offset does not exist, `committed` is asked
            for, or a topic that was created again is not given completely.
        DatabaseUnusable: the database cannot be asked, or has no schema yet.
    """
    members = admin.describe_group(tables_group(graph.application)).client_ids
    if members:
        raise StartRefused(
            f"application {graph.application!r} has {len(members)} running workers that fill "
            f"tables; stop them before their positions are set"
        )
    topics = admin.describe_topics([persister.topic for persister in graph.persisters])
    wanted = by_partition(graph, wishes, topics)
    if kept := [partition for partition, where in wanted.items() if where == COMMITTED]:
        raise ConfigurationError(
            f"{kept[0]}: tables go on where the database is, so {COMMITTED} sets nothing; give an "
            f"offset, earliest or latest"
        )
    database = _database(graph, settings)
    for stored in stored_positions(database, graph.application):
        facts = topics.get(stored.partition.topic)
        given = {partition.topic for partition in wanted}
        if stored.partition in wanted or facts is None or stored.partition.topic not in given:
            continue
        if stored.topic_id != facts.topic_id and stored.partition.partition < facts.partitions:
            raise ConfigurationError(
                f"topic {stored.partition.topic!r} was created again, so all of its partitions "
                f"have to be given; missing: {stored.partition.partition}"
            )
    positions = offsets_for(wanted, admin)
    store_positions(
        database,
        graph.application,
        [StoredPosition(p.topic_partition, topics[p.topic].topic_id, p.offset) for p in positions],
    )
    return positions


def forget_table_positions(graph: Graph, settings: Settings, topics: Sequence[str]) -> None:
    """Let topics be read from their first row, whichever topics of these names are made next.

    Whoever claimed them before writes no more.

    Raises:
        DatabaseUnusable: the database cannot be asked, or has no schema yet.
    """
    database = _database(graph, settings)
    stored = stored_positions(database, graph.application)
    forgotten = [StoredPosition(p.partition, "", None) for p in stored if p.partition[0] in topics]
    store_positions(database, graph.application, forgotten)


def _database(graph: Graph, settings: Settings) -> Database:
    name = f"eosframework {graph.application}"
    return Database(settings.database, application_name=name)


def persister_worker(
    graph: Graph,
    settings: Settings,
    instance: str,
    facts: Facts,
    on_round: Callable[[WorkerCounts], None],
    statistics: ClientStatistics | None = None,
) -> PersisterWorker:
    """Return the worker that carries a graph's topics into tables.

    Args:
        graph: of the application.
        settings: of the worker.
        instance: its name.
        facts: about the cluster, as found at the start.
        on_round: called about ten times a second.
        statistics: looks at the consumer; None: nobody does.

    Raises:
        ConfigurationError: no database is named, or a property would break the guarantee.
    """
    log = KafkaInputLog(
        client_properties(settings.kafka, Role.CONSUMER),
        tables_group_settings(graph.application, settings, instance),
        request_timeout_seconds=settings.kafka.request_timeout_seconds,
        repositioning="eosframework positions set APP --tables",
        statistics=statistics,
    )
    topic_ids = {p.topic: str(facts.topics[p.topic].topic_id) for p in graph.persisters}
    return PersisterWorker(
        graph.application,
        graph.persisters,
        log,
        PostgresRowStore(_database(graph, settings), graph.application, topic_ids),
        PersisterOptions(
            commit_interval_seconds=settings.database.commit_interval_seconds,
            longest_interval_seconds=LONGEST_INTERVAL_SECONDS,
            longest_pause_seconds=settings.database.longest_pause_seconds,
            heartbeat_interval_seconds=settings.worker.heartbeat_interval_seconds,
            batch_records=settings.worker.batch_records,
            batch_rows=settings.database.batch_rows,
            leave_on_stop=settings.worker.leave_on_stop,
        ),
        start=_starts(graph, settings, log),
        late=_late_topics(graph, settings),
        tell_group=log.tell,
        purger=_purger(graph, settings),
        on_round=on_round,
    )


def _purger(graph: Graph, settings: Settings) -> RecordPurger | None:
    """Return what removes rows that the database has; an audit by receipts counts all of them."""
    keep_seconds = settings.database.keep_rows_seconds
    if keep_seconds is None or settings.worker.receipts:
        return None
    return RecordPurger(settings.kafka, keep_seconds=keep_seconds)


def _late_topics(graph: Graph, settings: Settings) -> frozenset[str]:
    """Return the topics that are read from their end, unless something of them is written.

    The application's own topics are read from their first row whatever `worker.start` says:
    where the application itself started is decided where it reads its sources.
    """
    if settings.worker.start is not Start.LATEST:
        return frozenset()
    return frozenset(p.topic for p in graph.persisters if p.sub_topology is None)


def _starts(graph: Graph, settings: Settings, log: KafkaInputLog) -> Starts:
    """Return where partitions start that were never written."""
    at_end = _late_topics(graph, settings)

    def start(partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        late = [p for p in partitions if p.topic in at_end]
        early = [p for p in partitions if p not in late]
        return {**log.beginning_offsets(early), **log.end_offsets(late)}

    return start
