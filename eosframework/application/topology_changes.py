"""Allows a start on a changed topology only if the change spoils no kept state.

The control topic has the topology of the last worker that started; `topology.evolution` says what a
difference requires.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import ControlState
from eosframework.errors import StartRefused
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.kafka.consumer.range_reader import hold_nothing
from eosframework.kafka.consumer.settled import decided_ends
from eosframework.records import partitions_of
from eosframework.topology.evolution import (
    Change,
    RecordedTopology,
    Verdict,
    changes_between,
    recorded,
)
from eosframework.topology.graph.graph import Graph

TOPOLOGY = "topology"
"""Key of the control topic's entry."""


def topology_changes(
    graph: Graph, control: ControlState, topics: Mapping[str, TopicDescription]
) -> list[Change]:
    """Return the differences of a graph from the one that ran before; empty if none did.

    Args:
        graph: of the application.
        control: the content of the control topic.
        topics: every topic that the graph names.
    """
    before = _before(control)
    if before is None:
        return []
    return changes_between(
        before,
        _now(graph, topics),
        partitions={name: found.partitions for name, found in topics.items()},
        upgradable={store.name for store in graph.stores if store.upgrade},
    )


def topology_entry(
    graph: Graph, control: ControlState, topics: Mapping[str, TopicDescription]
) -> dict[str, object]:
    """Return the new entry of the control topic for a graph that is about to run, if it differs."""
    entry = _now(graph, topics).after(_before(control)).to_entry()
    is_new = graph.sub_topologies and entry != control.entries.get(TOPOLOGY)
    return {TOPOLOGY: entry} if is_new else {}


def recorded_stores(control: ControlState) -> Collection[str] | None:
    """Return the names of the stores of the topologies that ran; None: none is recorded."""
    before = _before(control)
    return None if before is None else before.stores.keys()


def undrained_topics(context: ApplicationContext, changes: Sequence[Change]) -> frozenset[str]:
    """Return the topics among the changes with records that the application has not read.

    Args:
        context: of the application that owns the topics.
        changes: of its topology.

    Raises:
        ClusterUnreachable: no broker answered in time.
    """
    application, admin, settings = context.graph.application, context.admin, context.settings.kafka
    wanted = [change.name for change in changes if change.verdict is Verdict.DRAIN]
    topics = admin.describe_topics(wanted)
    unread: set[str] = set()
    for name in (name for name, found in topics.items() if found.exists):
        partitions = partitions_of({name: topics[name].partitions})
        ends = decided_ends(admin, partitions, settings.request_timeout_seconds)
        if None in ends.values():  # Committed records may lie after the open transaction.
            unread.add(name)
            continue
        bounds = admin.log_bounds(partitions)
        read_to = {p.topic_partition: p.offset for p in admin.committed(application, partitions)}
        ranges = {
            partition: (first if (offset := read_to[partition]) is None else offset, end)
            for partition, (first, end) in bounds.items()
        }
        if not hold_nothing(settings, admin, ranges):
            unread.add(name)
    return frozenset(unread)


def refuse_changes(
    application: str,
    changes: Sequence[Change],
    unread: Collection[str],
    client_ids: Sequence[str],
) -> None:
    """Refuse a change that would spoil kept state, or the work of running workers.

    Args:
        application: the application whose topology has changed.
        changes: of that, the most demanding first.
        unread: topics with unread records.
        client_ids: of the members of its group.

    Raises:
        StartRefused: names the first change, its effect, and what to do.
    """
    for change in changes:
        start = (
            f"the topology of application {application!r} is not the one that ran before: "
            f"{change.subject}: {change.found}"
        )
        if change.verdict.is_refused:
            raise StartRefused(f"{start}; {change.why}. {_next(change, changes)}")
        if change.verdict is Verdict.DRAIN and change.name in unread:
            raise StartRefused(
                f"{start}, and it holds records that are not read; {change.why}. "
                f"{_next(change, changes)}"
            )
        if change.verdict.stops_all and client_ids:
            raise StartRefused(
                f"{start}, and {len(client_ids)} workers run; {change.why}. "
                f"{_next(change, changes)} (one that was killed counts until "
                f"worker.session_timeout_seconds have passed)"
            )


def _next(change: Change, changes: Sequence[Change]) -> str:
    listed = f"; `eosframework plan APP` lists all {len(changes)} changes"
    return f"{change.next[0].upper()}{change.next[1:]}{listed if len(changes) > 1 else ''}"


def _before(control: ControlState) -> RecordedTopology | None:
    return RecordedTopology.from_entry(control.entries.get(TOPOLOGY))


def _now(graph: Graph, topics: Mapping[str, TopicDescription]) -> RecordedTopology:
    return recorded(graph, {name: found.topic_id for name, found in topics.items()})
