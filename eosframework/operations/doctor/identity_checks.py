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
from eosframework.kafka.client.properties import CLIENT_ID
from eosframework.kafka.inspect.coordinators import TransactionListing
from eosframework.kafka.inspect.formats import State
from eosframework.operations.doctor.findings import Check, Observation, Seen, Severity, Unseen
from eosframework.operations.doctor.snapshot import Snapshot
from eosframework.txnid import co_partitioned, tables_group

_FRAMEWORKS_OWN = ("backfill.", "relay.")


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
    return [client_id for client_id in members if not client_id.startswith(CLIENT_ID)]


def _known_sub_topologies(snapshot: Snapshot) -> Iterator[str]:
    """Yield the topology's sub-topologies, and those that processed its inputs before."""
    yield from (part.name for part in snapshot.graph.sub_topologies)
    for owners in snapshot.facts.read().control.owners.values():
        yield from owners


def _is_task(snapshot: Snapshot, listed: TransactionListing) -> bool:
    names = {part.name for part in snapshot.graph.sub_topologies}
    return listed.owner is not None and listed.owner.sub_topology in names


CHECKS = (
    Check(
        "registry-cluster",
        Severity.ERROR,
        "a control topic created on this cluster",
        "Offsets of one cluster mean nothing on another; a worker refuses to start.",
        "correct kafka.bootstrap_servers, or use another application name on this cluster",
        another_cluster,
    ),
    Check(
        "application-name",
        Severity.ERROR,
        "one application of this name on the cluster",
        "Two of one name would fence each other.",
        "give one of them another name",
        another_application,
    ),
    Check(
        "group-members",
        Severity.ERROR,
        "no members in the application's group but eosframework workers",
        "They take partitions away, and commit offsets outside any transaction.",
        "stop them, or give this application another name",
        foreign_members,
    ),
    Check(
        "changed-topics",
        Severity.ERROR,
        "inputs as they were registered: the same topic id and number of partitions",
        "Offsets of a recreated topic mean other records, and more partitions move keys.",
        "eosframework positions set APP TOPIC=earliest, or TOPIC=committed",
        changed_topics,
    ),
    Check(
        "lost-offsets",
        Severity.ERROR,
        "a committed offset of every partition that was ever committed",
        "The next offset is unknown; from the beginning all records would be processed again.",
        "eosframework positions set APP 'TOPIC[PARTITION]=OFFSET'",
        lost_offsets,
    ),
    Check(
        "unfinished-backfill",
        Severity.ERROR,
        "no backfill job that fills the live topics and is not cut over, unless workers have "
        "positions of their own",
        "Workers would process the job's records again; they refuse to start.",
        "eosframework backfill cutover APP --job JOB, or eosframework reset APP",
        unfinished_jobs,
    ),
    Check(
        "partition-counts",
        Severity.ERROR,
        "the same number of partitions of all sources of a sub-topology",
        "A task reads the same partition of each, so that equal keys meet.",
        "give them the same number, or write one through a repartition topic",
        partition_counts,
    ),
    Check(
        "foreign-ids",
        Severity.WARNING,
        "no transactional ids that begin with `APPLICATION:` but those of its tasks",
        "Another program uses them, or an earlier topology whose workers may still run, and "
        "permissions by prefix cover it too.",
        "eosframework txn describe ID; then give one of the two programs another name",
        foreign_ids,
    ),
    Check(
        "leased-ids",
        Severity.ERROR,
        "with worker.ids=leased, a transactional id for each task in the pool in the database",
        "A worker refuses to start.",
        "eosframework ids add APP ID..., and Write and Describe on each ID",
        leased_ids,
    ),
    Check(
        "ids-in-use",
        Severity.NOTE,
        "no open transaction of an application that has no worker running",
        "A worker was killed, or another program uses its ids; brokers do not report the client.",
        "start a worker, which ends it, or wait for its timeout",
        ids_in_use,
    ),
)
