"""Composition of a reset: removes an application's state in Kafka, on disk and in a database.

Outputs, dead letters and tables stay as they are, unless they are requested to be emptied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eosframework.application.application_reset import (
    BEFORE_RESET,
    FORGOTTEN,
    KafkaReset,
    finish_reset,
    remove_state,
)
from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import ControlState
from eosframework.application.decided import forget_decided
from eosframework.application.fencing import all_but_owners, owners, refuse_members
from eosframework.application.internal_topics import own_topics
from eosframework.application.topology_changes import TOPOLOGY
from eosframework.config import Settings, StateBackendKind
from eosframework.engine.task.offsets import Progress
from eosframework.errors import ConfigurationError, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.records import Position, TopicPartition, partitions_of
from eosframework.state.store_directories import (
    FoundStores,
    application_directory,
    list_stores,
    remove,
)
from eosframework.topology.evolution import RecordedTopology
from eosframework.topology.graph.graph import Graph
from eosframework.txnid import changelog_topic, ownership_topic, tables_group

BEGINNING, END = "beginning", "end"


@dataclass(frozen=True, slots=True)
class Reset:
    """The state that a reset removes, and the positions at which the application resumes.

    Args:
        kafka: the state in the cluster.
        stores: directories on this machine.
        rows: topics whose positions are in the database, to remove.
        tables: to empty.
        read_whole: sources that are tables, which are always read from their beginning.
    """

    kafka: KafkaReset
    stores: tuple[Path, ...]
    rows: tuple[str, ...]
    tables: tuple[str, ...]
    read_whole: tuple[str, ...]

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        kafka = self.kafka
        return {
            "application": kafka.application,
            "groups": list(kafka.groups),
            "topics": list(kafka.topics),
            "emptied_topics": list(kafka.emptied),
            "emptied_tables": list(self.tables),
            "transactional_ids": list(kafka.ids),
            "registry_entries": list(kafka.entries),
            "stores": [str(path) for path in self.stores],
            "table_positions": list(self.rows),
            "positions": [
                {"topic": p.topic, "partition": p.partition, "offset": p.offset}
                for p in kafka.positions
            ],
        }

    def lines(self) -> Iterator[str]:
        """Yield the plan as text, a line for each step."""
        kafka = self.kafka
        yield f"application {kafka.application}"
        yield from (f"  delete group {group} with its committed offsets" for group in kafka.groups)
        yield from (f"  delete topic {topic}" for topic in kafka.topics)
        yield from (f"  delete all records of topic {topic}" for topic in kafka.emptied)
        if kafka.ids:
            between = f"{kafka.ids[0]} to {kafka.ids[-1]}"
            yield f"  fence {len(kafka.ids)} transactional ids, {between}"
        yield f"  delete {len(kafka.entries)} entries of its control topic"
        yield from (f"  delete stores in {path}" for path in self.stores)
        yield from (
            f"  delete the positions of table sinks in topic {topic}" for topic in self.rows
        )
        yield from (f"  delete all rows of table {table}" for table in self.tables)
        for position in kafka.positions:
            whole = " (a table)" if position.topic in self.read_whole else ""
            yield f"  resume {position.topic_partition} at {position.offset}{whole}"
        if not kafka.positions:
            yield "  start where worker.start says, as if it had never run"
        stays = "other" if kafka.emptied or self.tables else "sink"
        yield (
            f"  {stays} topics, dead letters and tables stay; stores on other machines are not "
            f"used again"
        )


@dataclass(frozen=True, slots=True)
class Outputs:
    """Outputs that a reset empties.

    Args:
        deleted: topics that are only compacted: brokers delete no single records of them.
        emptied: topics that stay, without records.
        tables: that stay, without rows.
        read: topics whose records are rows of these tables.
    """

    deleted: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


OUTPUTS_STAY = Outputs()


def outputs_of(context: ApplicationContext) -> Outputs:
    """Return the outputs that the topology names, without topics that it also reads.

    Raises:
        ClusterUnreachable: no broker answered in time.
    """
    graph, admin = context.graph, context.admin
    read = {*graph.source_topics, *graph.global_topics, *graph.table_sink_topics}
    described = admin.describe_topics({*graph.sink_topics} - graph.internal_topics - read)
    policies = admin.topic_setting(
        [name for name, facts in described.items() if facts.exists], "cleanup.policy"
    )
    compacted = tuple(sorted(name for name, policy in policies.items() if policy == "compact"))
    return Outputs(
        deleted=compacted,
        emptied=tuple(sorted(set(policies).difference(compacted))),
        tables=tuple(sorted({t.table for sink in graph.all_tables for t in sink.tables})),
        read=tuple(graph.table_sink_topics),
    )


def plan_reset(
    context: ApplicationContext, to: str | None = None, outputs: Outputs = OUTPUTS_STAY
) -> Reset:
    """Return the plan of a reset. Changes nothing.

    Args:
        context: of the application.
        to: position of the sources: beginning, end, or a time; None: as if the application had
            never run.
        outputs: to empty.

    Raises:
        ConfigurationError: `to` is none of these.
        StartRefused: its groups have members, or a process on this machine holds its stores.
        ClusterUnreachable: no broker answered in time.
    """
    graph, settings, admin = context.graph, context.settings, context.admin
    moment = _moment(to)
    groups = (graph.application, tables_group(graph.application))
    refuse_members(groups, admin, BEFORE_RESET)
    registered = context.control_topic.refresh()
    own = _own_topics(graph, registered, admin)
    sources = admin.describe_topics([t for t in graph.source_topics if t not in own])
    existing = {name for name, facts in own.items() if facts.exists}
    written = {p.topic for p in graph.table_sinks if p.sub_topology is not None}
    tables = {name for name in graph.whole_topics if name in sources}
    places = [] if settings.state.backend is StateBackendKind.MEMORY else _places(graph, settings)
    return Reset(
        KafkaReset(
            application=graph.application,
            groups=groups,
            topics=tuple(sorted(existing.union(outputs.deleted))),
            emptied=outputs.emptied,
            ids=tuple(
                sorted(all_but_owners(graph, registered) | owners(settings, context.control_topic))
            ),
            ids_of=lambda found: all_but_owners(graph, found),
            entries=tuple(
                sorted(key for key in registered.entries if key.partition("/")[0] in FORGOTTEN)
            ),
            positions=() if to is None else _positions(sources, to, moment, tables, admin),
            sources=sources,
        ),
        stores=tuple(place.path for place in places),
        rows=tuple(sorted(written.union(outputs.read))),
        tables=outputs.tables,
        read_whole=tuple(sorted(tables)),
    )


def execute_reset(reset: Reset, context: ApplicationContext) -> None:
    """Execute a plan; after an interruption the reset may be planned and executed again.

    Raises:
        StartRefused: its groups have members, or a process on this machine holds its stores.
        DatabaseUnusable: positions of table sinks could not be set.
        TransactionError: an id could not be inited.
        ClusterUnreachable: no broker answered in time.
    """
    graph, settings = context.graph, context.settings
    remove_state(reset.kafka, context)
    if reset.stores:
        for place in _places(graph, settings):
            remove(place)
    forget_decided(context)
    if reset.rows or reset.tables:
        # Import the database driver only for table sinks.
        from eosframework.application.composition.table_writer import forget_table_positions

        forget_table_positions(graph, settings, reset.rows, reset.tables)
    finish_reset(reset.kafka, context)


def _own_topics(
    graph: Graph, registered: ControlState, admin: ClusterAdmin
) -> dict[str, TopicDescription]:
    """Return the application's internal topics, also those of topologies that ran before."""
    names = {*own_topics(graph, {}), ownership_topic(graph.application)}
    before = RecordedTopology.from_entry(registered.entries.get(TOPOLOGY))
    if before is not None:
        names.update(changelog_topic(graph.application, store) for store in before.stores)
        names.update(before.repartitions)
    return admin.describe_topics(names)


def _places(graph: Graph, settings: Settings) -> list[FoundStores]:
    places = list_stores(application_directory(settings.state, graph.application))
    for place in places:
        if place.held:
            raise StartRefused(
                f"a process on this machine holds the stores in {place.path}; stop it before the "
                f"application is reset"
            )
    return places


def _positions(
    sources: Mapping[str, TopicDescription],
    to: str,
    moment: int | None,
    tables: set[str],
    admin: ClusterAdmin,
) -> tuple[Position, ...]:
    partitions = partitions_of({name: sources[name].partitions for name in sorted(sources)})
    bounds = admin.log_bounds(partitions)
    at = _offsets_at(partitions, moment, admin)
    positions: list[Position] = []
    for partition, (first, end) in bounds.items():
        is_whole = to == BEGINNING or partition.topic in tables
        offset = first if is_whole else at.get(partition, end)
        positions.append(Position(*partition, offset, str(Progress())))
    return tuple(positions)


def _offsets_at(
    partitions: Sequence[TopicPartition], moment: int | None, admin: ClusterAdmin
) -> dict[TopicPartition, int]:
    if moment is None:
        return {}
    offsets = admin.offsets_at(partitions, moment)
    return {partition: offset for partition, offset in offsets.items() if offset is not None}


def _moment(to: str | None) -> int | None:
    """Return the time in milliseconds since the epoch; None: `to` is not a time."""
    if to in (None, BEGINNING, END):
        return None
    try:
        moment = datetime.fromisoformat(to)
    except ValueError:
        raise ConfigurationError(
            f"--to {to!r} is not a position; expected {BEGINNING}, {END}, or a time such as "
            f"2026-01-31 or 2026-01-31T06:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
