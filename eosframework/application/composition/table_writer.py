"""Composition of table writers: create and check their tables, and build the worker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from eosframework.application.composition.context import WorkerContext
from eosframework.application.position_changes import (
    COMMITTED,
    PositionRequest,
    by_partition,
    offsets_for,
)
from eosframework.application.topic_identity import Use
from eosframework.application.topic_watch import TopicWatch
from eosframework.application.watched_cluster import WatchedCluster
from eosframework.config import Settings, Start
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.errors import ConfigurationError, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.purging import RecordPurger
from eosframework.kafka.consumer.input_log import KafkaInputLog
from eosframework.kafka.worker_clients import consumer_client, tables_group_settings
from eosframework.postgres.database import Database
from eosframework.postgres.database.grants import DECISION_GRANTS, require_grants
from eosframework.postgres.database.tables.table_schema import TablesPlan, apply_tables, plan_tables
from eosframework.postgres.database.tables.table_sink import (
    PostgresRowStore,
    StoredPosition,
    store_positions,
    stored_positions,
)
from eosframework.postgres.tables.write_cycle import TableWriter, TableWriterOptions
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import Graph
from eosframework.txnid import tables_group

LONGEST_INTERVAL_SECONDS = 5.0
"""Upper bound to which a slow database stretches the commit interval."""


def plan_database(graph: Graph, settings: Settings) -> TablesPlan | None:
    """Return the changes that a graph's tables need; None: it has none. Changes nothing.

    Raises:
        ConfigurationError: no database is configured.
        DatabaseUnusable: the connection fails, or the server is too old or a standby.
        StartRefused: a newer eosframework created the schema.
    """
    if not graph.all_tables:
        return None
    database = _database(graph, settings)
    database.require()
    if graph.together:
        require_grants(database, DECISION_GRANTS)
    return plan_tables(database, graph.all_tables)


def apply_database(graph: Graph, settings: Settings) -> list[str]:
    """Create the tables and schema that a graph needs and the database lacks; return their names.

    Raises:
        ConfigurationError: no database is configured.
        DatabaseUnusable: the connection fails, or the server is too old or a standby.
        DatabaseRefused: a privilege is missing.
        StartRefused: a newer eosframework created the schema.
    """
    if not graph.all_tables:
        return []
    database = _database(graph, settings)
    database.require()
    return apply_tables(database, graph.all_tables)


def require_tables(graph: Graph, settings: Settings) -> None:
    """Check that a graph's rows can be written, before any record is read.

    Raises:
        ConfigurationError: no database is configured.
        DatabaseUnusable: the connection fails, or the server is too old or a standby.
        StartRefused: tables are missing or do not match; lists all findings and the next step.
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
    """Return the positions of a graph's table sinks in the database.

    Raises:
        ConfigurationError: no database is configured.
        DatabaseUnusable: the database cannot be queried, or has no schema yet.
    """
    stored = stored_positions(_database(graph, settings), graph.application)
    topics = set(graph.table_sink_topics)
    return [Position(*p.partition, p.next_offset) for p in stored if p.partition.topic in topics]


def set_table_positions(
    graph: Graph, wishes: Sequence[PositionRequest], settings: Settings, admin: ClusterAdmin
) -> list[Position]:
    """Set the positions of a graph's table sinks while no table writer runs.

    Rows stay as they are, so records that are read again give duplicate rows, except for upserts.
    A topic that was created again is accepted.

    Raises:
        StartRefused: table writers are running.
        ConfigurationError: a topic, a partition or an offset does not exist, `committed` is
            requested, or partitions of a topic that was created again are missing.
        DatabaseUnusable: the database cannot be queried, or has no schema yet.
    """
    members = admin.describe_group(tables_group(graph.application)).client_ids
    if members:
        raise StartRefused(
            f"application {graph.application!r} has {len(members)} running table writers; stop "
            f"them before their positions are set"
        )
    topics = admin.describe_topics([table_sink.topic for table_sink in graph.table_sinks])
    wanted = by_partition(graph, wishes, topics)
    if kept := [partition for partition, where in wanted.items() if where == COMMITTED]:
        raise ConfigurationError(
            f"{kept[0]}: table sinks resume at the database's position, so {COMMITTED} sets "
            f"nothing; give an offset, earliest or latest"
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


def forget_table_positions(
    graph: Graph, settings: Settings, topics: Sequence[str], emptied: Sequence[str] = ()
) -> None:
    """Remove the positions of topics, so that new topics with these names are read from the start.

    Earlier claims of the topics' partitions can no longer write.

    Args:
        graph: of the application.
        settings: of the application.
        topics: whose positions are removed.
        emptied: tables whose rows are deleted, in the same transaction.

    Raises:
        DatabaseUnusable: the database cannot be queried, or has no schema yet.
    """
    database = _database(graph, settings)
    stored = stored_positions(database, graph.application)
    forgotten = [StoredPosition(p.partition, "", None) for p in stored if p.partition[0] in topics]
    store_positions(database, graph.application, forgotten, emptied)


def _database(graph: Graph, settings: Settings) -> Database:
    name = f"eosframework {graph.application}"
    return Database(settings.database, application_name=name)


def table_writer(context: WorkerContext, on_round: Callable[[WorkerCounts], None]) -> TableWriter:
    """Return the table writer of a graph.

    Args:
        context: of the worker.
        on_round: called about ten times a second.

    Raises:
        ConfigurationError: no database is configured, or a property would break the guarantee.
    """
    graph, settings = context.graph, context.settings
    log = KafkaInputLog(
        consumer_client(settings),
        tables_group_settings(graph.application, settings, context.instance),
        request_timeout_seconds=settings.kafka.request_timeout_seconds,
        repositioning="eosframework positions set APP --tables",
        statistics=context.statistics,
    )
    topic_ids = {p.topic: str(context.facts.topics[p.topic].topic_id) for p in graph.table_sinks}
    late = _late_topics(graph, settings)
    return TableWriter(
        graph.application,
        graph.table_sinks,
        log,
        PostgresRowStore(_database(graph, settings), graph.application, topic_ids),
        TableWriterOptions(
            commit_interval_seconds=settings.database.commit_interval_seconds,
            longest_interval_seconds=LONGEST_INTERVAL_SECONDS,
            longest_pause_seconds=settings.database.longest_pause_seconds,
            heartbeat_interval_seconds=settings.worker.heartbeat_interval_seconds,
            batch_records=settings.worker.batch_records,
            batch_rows=settings.database.batch_rows,
            leave_on_stop=settings.worker.leave_on_stop,
        ),
        start=partial(_start_offsets, log, late),
        late=late,
        commit_to_group=log.tell,
        purger=_purger(settings),
        identities=_watch(context),
        on_round=on_round,
    )


class _WatchedRows(WatchedCluster):
    """The `Cluster` of a table writer, whose positions are in the database."""

    command = "eosframework positions set APP --tables"

    def committed(self) -> Sequence[Position]:
        """Return nothing: the group's offsets are for lag monitoring only."""
        return ()

    def positions(self) -> Sequence[Position]:
        """Return the positions in the database."""
        return table_positions(self.context.graph, self.context.settings)


def _watch(context: WorkerContext) -> TopicWatch:
    """Return the watch over the topics of a table writer."""
    topics = {p.topic for p in context.graph.table_sinks}
    known = {t: found for t, found in context.facts.identities.items() if t in topics}
    return TopicWatch(known, dict.fromkeys(topics, Use.ROWS), _WatchedRows(context))


def _purger(settings: Settings) -> RecordPurger | None:
    """Return the purger of written records; None: they are kept, as for an audit by receipts."""
    keep_seconds = settings.database.keep_rows_seconds
    if keep_seconds is None or settings.worker.receipts:
        return None
    return RecordPurger(settings.kafka, keep_seconds=keep_seconds)


def _late_topics(graph: Graph, settings: Settings) -> frozenset[str]:
    """Return the topics whose partitions start at their end if they have no position.

    Internal topics are read from their first record independent of `worker.start`, which applies
    to the sources of the application.
    """
    if settings.worker.start is not Start.LATEST:
        return frozenset()
    return frozenset(p.topic for p in graph.table_sinks if p.sub_topology is None)


def _start_offsets(
    log: KafkaInputLog, late_topics: Collection[str], partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """Return the start offsets of partitions without a position."""
    late = [p for p in partitions if p.topic in late_topics]
    early = [p for p in partitions if p.topic not in late_topics]
    return {**log.beginning_offsets(early), **log.end_offsets(late)}
