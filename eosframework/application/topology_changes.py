"""Allows a start on a changed topology only if the change spoils no kept state.

The control topic has the topology of the last worker that started; `topology.evolution` says what a
difference requires.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import ControlState
from eosframework.errors import StartRefused
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.kafka.consumer.range_reader import hold_nothing, read_ranges
from eosframework.kafka.consumer.settled import decided_ends
from eosframework.records import TopicPartition, partitions_of
from eosframework.topology.evolution import (
    Change,
    RecordedTopology,
    Verdict,
    changes_between,
    follow_rows,
    recorded,
)
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.patterns import matched_by_pattern, shown_name
from eosframework.topology.spec.loaded import KeptName
from eosframework.txnid import changelog_topic

TOPOLOGY = "topology"
"""Key of the control topic's entry."""


def topology_changes(
    graph: Graph,
    control: ControlState,
    topics: Mapping[str, TopicDescription],
    unwritten: Callable[[], Collection[str]] = tuple,
) -> list[Change]:
    """Return the differences of a graph from the one that ran before; empty if none did.

    Args:
        graph: of the application.
        control: the content of the control topic.
        topics: every topic that the graph names.
        unwritten: returns the stores whose changelogs never had a record; called if it matters.
    """
    before = _before(control)
    if before is None:
        return []
    matched = matched_by_pattern(graph)
    changes = partial(
        changes_between,
        before,
        _now(graph, topics),
        partitions={name: found.partitions for name, found in topics.items()},
        upgradable={store.name for store in graph.stores if store.upgrade},
        declared=_declared(graph),
        matched={shown_name(one): matched[one.source] for one in graph.patterns},
    )
    found = changes()
    return changes(unwritten=unwritten()) if follow_rows(found) else found


def unwritten_stores(
    context: ApplicationContext, topics: Mapping[str, TopicDescription]
) -> frozenset[str]:
    """Return the stores of a graph whose changelogs never had a record, committed or not.

    A worker of the topology before could still be about to write the first one. If it is a member
    of the group, a change that needs all workers stopped is refused. If it is not, it cannot commit
    what it writes: the group takes no offsets from it.

    Args:
        context: of the application.
        topics: every topic that the graph names.

    Raises:
        ClusterUnreachable: no broker answered in time.
    """
    stores = {store.changelog: store.name for store in context.graph.stores}
    existing = {
        name: found.partitions for name, found in topics.items() if name in stores and found.exists
    }
    ends = context.admin.high_watermarks(partitions_of(existing))
    written = {partition.topic for partition, end in ends.items() if end > 0}
    return frozenset(stores[name] for name in existing if name not in written)


def _declared(graph: Graph) -> dict[str, KeptName]:
    """Return where the names of a graph's stores and repartition topics are stated."""
    stores = ((store.name, store.declared) for store in graph.stores)
    topics = ((repartition.topic, repartition.declared) for repartition in graph.repartitions)
    return {name: kept for name, kept in (*stores, *topics) if kept is not None}


def topology_entry(
    graph: Graph, control: ControlState, topics: Mapping[str, TopicDescription]
) -> dict[str, object]:
    """Return the new entry of the control topic for a graph that is about to run, if it differs."""
    entry = _now(graph, topics).after(_before(control)).to_entry()
    is_new = graph.all_parts and entry != control.entries.get(TOPOLOGY)
    return {TOPOLOGY: entry} if is_new else {}


def accepted_entry(
    graph: Graph,
    control: ControlState,
    topics: Mapping[str, TopicDescription],
    accepted: Collection[str],
) -> dict[str, object]:
    """Return the entry of the topology that ran, with changes that `apply` accepts.

    Args:
        graph: of the application; its functions continue with the stores.
        control: the content of the control topic.
        topics: every topic that the graph names.
        accepted: changelogs of stores that the graph lacks.
    """
    before = _before(control)
    if before is None:
        return {}
    gone = {name for topic, name in removed_stores(graph, control).items() if topic in accepted}
    entry = before.accepting(_now(graph, topics), gone).to_entry()
    return {} if entry == control.entries[TOPOLOGY] else {TOPOLOGY: entry}


def removed_stores(graph: Graph, control: ControlState) -> dict[str, str]:
    """Return the stores that the topology that ran had, and a graph lacks, by changelog."""
    before, now = _before(control) or RecordedTopology(), {store.name for store in graph.stores}
    return {
        changelog_topic(graph.application, name): name
        for name, store in before.stores.items()
        if name not in now and not store.removed
    }


def recorded_stores(control: ControlState) -> Collection[str] | None:
    """Return the names of the stores of the topologies that ran; None: none is recorded."""
    before = _before(control)
    return None if before is None else before.stores.keys()


def undrained_topics(context: ApplicationContext, changes: Sequence[Change]) -> frozenset[str]:
    """Return the names of the changed topics and stores with records that would be lost.

    Args:
        context: of the application that owns the topics.
        changes: of its topology.

    Raises:
        ClusterUnreachable: no broker answered in time.
    """
    application, admin, settings = context.graph.application, context.admin, context.settings.kafka
    drained = [change for change in changes if change.verdict is Verdict.DRAIN]
    wanted = [change.name for change in drained if change.kind == "topic"]
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
    stores = [change.name for change in drained if change.kind == "store"]
    dropped = [change.name for change in changes if change.verdict is Verdict.ACCEPT]
    return frozenset(
        {
            *unread,
            *(name for name in stores if _holds_records(context, name)),
            *(name for name in dropped if _has_state(context, name)),
        }
    )


def _has_state(context: ApplicationContext, store: str) -> bool:
    """Return whether a changelog exists and has records."""
    changelog = changelog_topic(context.graph.application, store)
    found = context.admin.describe_topics([changelog])[changelog]
    bounds = context.admin.log_bounds(partitions_of({changelog: found.partitions}))
    return found.exists and any(first < end for first, end in bounds.values())


def _holds_records(context: ApplicationContext, store: str) -> bool:
    """Return whether a reorder step holds records, by its changelog; also if it is undecided."""
    admin, settings = context.admin, context.settings.kafka
    changelog = changelog_topic(context.graph.application, store)
    found = admin.describe_topics([changelog])[changelog]
    if not found.exists:
        return False
    partitions = partitions_of({changelog: found.partitions})
    ends = decided_ends(admin, partitions, settings.request_timeout_seconds)
    if None in ends.values():
        return True
    held: set[tuple[TopicPartition, bytes | None]] = set()
    for partition, messages in read_ranges(settings, admin.log_bounds(partitions)):
        for message in messages:
            change = held.discard if message.value() is None else held.add
            change((partition, message.key()))
    return bool(held)


def refuse_changes(application: str, changes: Sequence[Change], unread: Collection[str]) -> None:
    """Refuse a change that would spoil kept state, or lose records.

    Args:
        application: the application whose topology has changed.
        changes: of that, the most demanding first.
        unread: topics with unread records, stores with records that wait for stream time, and
            removed stores with state.

    Raises:
        StartRefused: names the first change, its effect, and what to do.
    """
    for change in changes:
        start = _start(application, change)
        if change.verdict.is_refused:
            raise StartRefused(f"{start}; {change.why}. {_next(change, changes)}")
        if change.verdict is Verdict.DRAIN and change.name in unread:
            raise StartRefused(
                f"{start}, and it holds records that are not read; {change.why}. "
                f"{_next(change, changes)}"
            )
        if change.verdict is Verdict.ACCEPT and change.name in unread:
            changelog = changelog_topic(application, change.name)
            raise StartRefused(
                f"{start}, and its changelog {changelog} has state; {change.why}. "
                f"{_next(change, changes)}"
            )
        if change.verdict is Verdict.CONFIRM:
            raise StartRefused(f"{start}; {change.why}. {_next(change, changes)}")


def refuse_running_workers(
    application: str, changes: Sequence[Change], client_ids: Sequence[str]
) -> None:
    """Refuse a change that would spoil the work of running workers.

    Args:
        application: the application whose topology has changed.
        changes: of that, the most demanding first.
        client_ids: of the members of its group.

    Raises:
        StartRefused: names the first change, its effect, and what to do.
    """
    for change in changes:
        if change.verdict.stops_all and client_ids:
            raise StartRefused(
                f"{_start(application, change)}, and {len(client_ids)} workers run; {change.why}. "
                f"{_next(change, changes)} (one that was killed counts until "
                f"worker.session_timeout_seconds have passed)"
            )


def _start(application: str, change: Change) -> str:
    return (
        f"the topology of application {application!r} is not the one that ran before: "
        f"{change.subject}: {change.found}"
    )


def _next(change: Change, changes: Sequence[Change]) -> str:
    listed = f"; `eosframework plan APP` lists all {len(changes)} changes"
    return f"{change.next[0].upper()}{change.next[1:]}{listed if len(changes) > 1 else ''}"


def _before(control: ControlState) -> RecordedTopology | None:
    return RecordedTopology.from_entry(control.entries.get(TOPOLOGY))


def _now(graph: Graph, topics: Mapping[str, TopicDescription]) -> RecordedTopology:
    return recorded(graph, {name: found.topic_id for name, found in topics.items()})
