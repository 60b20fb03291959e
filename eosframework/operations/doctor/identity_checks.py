"""The application's identity on the cluster: control topic, group, transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from eosframework.application.backfill_jobs import refuse_unfinished_jobs
from eosframework.application.start_checks import (
    jobs_of,
    refuse_another_application,
    refuse_another_cluster,
    refuse_changed_topics,
)
from eosframework.application.start_positions import refuse_lost_offsets
from eosframework.errors import StartRefused, TopologyError
from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.kafka.consumer.group import is_worker
from eosframework.kafka.inspect.coordinators import TransactionListing
from eosframework.kafka.inspect.formats import State
from eosframework.operations.doctor.findings import Observation, Seen, Unseen
from eosframework.operations.doctor.snapshot import Snapshot
from eosframework.txnid import co_partitioned, tables_group
from eosframework.txnid.names import WORKER

_FRAMEWORKS_OWN = ("backfill.", "relay.", WORKER)


def another_cluster(snapshot: Snapshot) -> Iterator[Observation]:
    """Find a control topic that was copied from another cluster."""
    facts = snapshot.facts.read()
    yield from _refused(snapshot, partial(refuse_another_cluster, snapshot.graph, facts))


def another_application(snapshot: Snapshot) -> Iterator[Observation]:
    """Find another application of the same name."""
    facts = snapshot.facts.read()
    if not _strangers(snapshot.group):
        yield from _refused(snapshot, partial(refuse_another_application, snapshot.graph, facts))


def foreign_members(snapshot: Snapshot) -> Iterator[Observation]:
    """Find group members that are not workers of this framework."""
    application = snapshot.graph.application
    groups = {application: snapshot.group, tables_group(application): snapshot.tables_group}
    for group, seen in groups.items():
        if seen is not None and (strangers := _strangers(seen)):
            yield Observation(
                f"consumer group {group}",
                f"{len(strangers)} members of client.id {', '.join(sorted(set(strangers)))}",
            )


def changed_topics(snapshot: Snapshot) -> Iterator[Observation]:
    """Find inputs that were created again, or have another number of partitions."""
    facts = snapshot.facts.read()
    if all(topic.exists for topic in facts.topics.values()):
        yield from _refused(snapshot, partial(refuse_changed_topics, snapshot.graph, facts))


def lost_offsets(snapshot: Snapshot) -> Iterator[Observation]:
    """Find partitions whose committed offset was lost."""
    facts = snapshot.facts.read()
    application = snapshot.graph.application
    rule = partial(refuse_lost_offsets, application, facts.control, facts.committed)
    yield from _refused(snapshot, rule)


def unfinished_jobs(snapshot: Snapshot) -> Iterator[Observation]:
    """Find backfill jobs whose range workers would process again."""
    facts = snapshot.facts.read()
    jobs = jobs_of(snapshot.graph, facts)
    yield from _refused(
        snapshot, partial(refuse_unfinished_jobs, snapshot.graph, jobs, facts.committed)
    )


def partition_counts(snapshot: Snapshot) -> Iterator[Observation]:
    """Find sources that cannot share a task."""
    existing = snapshot.existing(*snapshot.sources)
    for part in snapshot.graph.sub_topologies:
        counts = {
            source.topic: existing[source.topic].partitions
            for source in part.sources
            if source.topic in existing
        }
        if len(counts) > 1:
            yield from _refused(snapshot, partial(co_partitioned, part.name, counts))


def foreign_ids(snapshot: Snapshot) -> Iterator[Observation]:
    """Find ids with this application's prefix that belong to none of its tasks."""
    owners = set(_known_sub_topologies(snapshot))
    for listed in snapshot.ids.read():
        task = listed.owner
        if task is not None and (
            task.sub_topology in owners or task.sub_topology.startswith(_FRAMEWORKS_OWN)
        ):
            continue
        whose = f"sub-topology {task.sub_topology}" if task else "not an id of eosframework"
        yield Observation(
            f"transactional id {listed.transactional_id}",
            f"{listed.state}, {whose}; this topology has {', '.join(sorted(owners))}",
            fix=f"eosframework txn describe {listed.transactional_id}; then give one of the two "
            f"programs another name",
        )


def leased_ids(snapshot: Snapshot) -> Iterator[Observation]:
    """Find tasks without a leased id, or unreadable leases."""
    if isinstance(snapshot.leases.found, Unseen):
        yield Observation("transactional ids", snapshot.leases.found.reason)


def ids_in_use(snapshot: Snapshot) -> Iterator[Observation]:
    """Find open transactions of an application without a running worker."""
    if snapshot.group.read().client_ids:
        return
    for listed in snapshot.ids.read():
        if listed.state is State.ONGOING and _is_task(snapshot, listed):
            yield Observation(
                f"transactional id {listed.transactional_id}",
                "has a transaction open, and the group has no member",
                fix=f"eosframework txn describe {listed.transactional_id}",
            )


def _refused(snapshot: Snapshot, rule: Callable[[], object]) -> Iterator[Observation]:
    """Yield the refusal of a start check, which names its own next step."""
    try:
        rule()
    except (StartRefused, TopologyError) as error:
        yield Observation(f"application {snapshot.graph.application}", str(error))


def _strangers(group: Seen[GroupDescription]) -> list[str]:
    members = group.read().client_ids
    return [client_id for client_id in members if not is_worker(client_id)]


def _known_sub_topologies(snapshot: Snapshot) -> Iterator[str]:
    """Yield the topology's sub-topologies, and those that have committed before."""
    yield from (part.name for part in snapshot.graph.sub_topologies)
    for key in snapshot.facts.read().control.entries:
        if key.startswith("committed/"):
            yield key.split("/")[1]


def _is_task(snapshot: Snapshot, listed: TransactionListing) -> bool:
    names = {part.name for part in snapshot.graph.sub_topologies}
    task = listed.owner
    return task is not None and (task.sub_topology in names or task.instance is not None)


CHECKS = {
    "registry-cluster": another_cluster,
    "application-name": another_application,
    "group-members": foreign_members,
    "changed-topics": changed_topics,
    "lost-offsets": lost_offsets,
    "unfinished-backfill": unfinished_jobs,
    "partition-counts": partition_counts,
    "foreign-ids": foreign_ids,
    "leased-ids": leased_ids,
    "ids-in-use": ids_in_use,
}
