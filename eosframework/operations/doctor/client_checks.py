"""The worker's own settings: timeouts compared with each other, and effective client properties."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

from eosframework.application.backfill_jobs import refuse_unfinished_jobs
from eosframework.application.start_checks import (
    jobs_of,
    refuse_another_application,
    refuse_another_cluster,
    refuse_changed_topics,
)
from eosframework.application.start_positions import refuse_lost_offsets
from eosframework.config import Guarantee
from eosframework.errors import StartRefused, TopologyError
from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.kafka.consumer.group import is_worker
from eosframework.kafka.inspect.coordinators import TransactionListing
from eosframework.kafka.inspect.formats import TxnState
from eosframework.kafka.inspect.hanging import Health, OpenTransaction, remedy
from eosframework.operations.doctor.findings import Observation, Seen, Severity, Unseen
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
        if listed.state is TxnState.ONGOING and _is_task(snapshot, listed):
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


def hanging(snapshot: Snapshot) -> Iterator[Observation]:
    """Find hanging transactions in the application's topics."""
    for entry in snapshot.open_transactions.read():
        if entry.health is not Health.HEALTHY:
            yield _hanging(entry)


def hanging_offsets(snapshot: Snapshot) -> Iterator[Observation]:
    """Find hanging transactions in the partition with the group's offsets."""
    for entry in snapshot.open_offsets.read():
        if entry.health is not Health.HEALTHY:
            yield _hanging(entry)


def blocked_readers(snapshot: Snapshot) -> Iterator[Observation]:
    """Report readers blocked by open transactions, and transactions that are open for long."""
    for entry in snapshot.open_transactions.read():
        transaction = entry.described
        if entry.health is not Health.HEALTHY or transaction is None:
            continue
        open_for = transaction.open_for(snapshot.taken_at) or timedelta(0)
        long = open_for.total_seconds() * 1000 > snapshot.transaction_timeout_ms
        yield Observation(
            str(entry.partition),
            f"last stable offset {entry.last_stable_offset}, end {entry.high_watermark}: "
            f"{transaction.transactional_id} has a transaction open for "
            f"{open_for.total_seconds():.1f} s",
            expected=f"it ends within {transaction.timeout.total_seconds():g} s of its begin",
            fix=f"eosframework txn describe {transaction.transactional_id}",
            severity=Severity.WARNING if long else Severity.NOTE,
        )


def _hanging(entry: OpenTransaction) -> Observation:
    who = f" of {entry.described.transactional_id}" if entry.described else ""
    return Observation(
        str(entry.partition),
        f"producer {entry.producer.producer_id}{who} has a transaction open at offset "
        f"{entry.start_offset}, and {entry.held_back} offsets wait: {entry.health.meaning}",
        fix=remedy(entry),
    )


BROKER_TRANSACTIONS_PER_SECOND = 300
"""Measured commits per second of one broker core, alongside the workers (docs/scale.md)."""

_PRODUCER_TIMEOUTS = ("message.timeout.ms", "socket.timeout.ms")


def guarantee(snapshot: Snapshot) -> Iterator[Observation]:
    """Find an application with a weaker guarantee than exactly-once."""
    if snapshot.settings.worker.guarantee is not Guarantee.EXACTLY_ONCE:
        yield Observation("this configuration", "worker.guarantee=at_least_once")


DECISION_QUESTIONS = 8
"""Round trips to the database in a decision: its statements, COPY into one table, and COMMIT."""


def decision_time(snapshot: Snapshot) -> Iterator[Observation]:
    """Find a database whose decisions take more than half of the commit interval."""
    if snapshot.database_seconds is None:
        return
    seconds = DECISION_QUESTIONS * snapshot.database_seconds.read()
    interval = snapshot.settings.worker.commit_interval_seconds
    if seconds > interval / 2:
        yield Observation(
            "the database",
            f"a decision takes {1000 * seconds:.0f} ms or more, and the commit interval is "
            f"{1000 * interval:.0f} ms",
        )


def refused_properties(snapshot: Snapshot) -> Iterator[Observation]:
    """Find properties that librdkafka rejects, except the timeouts of other checks."""
    for reason in snapshot.refused_properties:
        if not any(name in reason for name in _PRODUCER_TIMEOUTS):
            yield Observation("kafka.properties", reason)


def ignored_properties(snapshot: Snapshot) -> Iterator[Observation]:
    """Find properties that a worker overrides, so that the user's value has no effect."""
    for name, value in snapshot.settings.kafka.properties.items():
        used = snapshot.consumer.get(name)
        if name in snapshot.consumer and str(used).lower() != str(value).lower():
            yield Observation(f"kafka.properties {name}", f"{value}; a worker uses {used}")


def delivery_timeout(snapshot: Snapshot) -> Iterator[Observation]:
    """Find a delivery timeout longer than the transaction timeout."""
    yield from _within_transaction(snapshot, "message.timeout.ms", 0)


def request_timeout(snapshot: Snapshot) -> Iterator[Observation]:
    """Find a request timeout longer than the transaction timeout."""
    yield from _within_transaction(snapshot, "socket.timeout.ms", 100)


def room_to_repeat(snapshot: Snapshot) -> Iterator[Observation]:
    """Find a request timeout that leaves no time for a retry before the records expire."""
    request, delivery = _timeouts(snapshot)
    if delivery <= request <= snapshot.transaction_timeout_ms + 100:
        yield Observation(
            "the producers",
            f"socket.timeout.ms={request}, message.timeout.ms={delivery}",
            expected="half of message.timeout.ms or less",
            fix=f"--set kafka.properties.socket.timeout.ms={max(delivery // 2, 10)}",
        )


def poll_interval(snapshot: Snapshot) -> Iterator[Observation]:
    """Find a transaction timeout longer than the group waits for a poll."""
    interval = int(snapshot.consumer["max.poll.interval.ms"])
    if snapshot.transaction_timeout_ms >= interval:
        yield Observation(
            "the consumer",
            f"max.poll.interval.ms={interval}, "
            f"transaction.timeout.ms={snapshot.transaction_timeout_ms}",
            fix=f"--set worker.transaction_timeout_seconds={interval / 2000:g}",
        )


def transaction_rate(snapshot: Snapshot) -> Iterator[Observation]:
    """Find a higher transaction rate than brokers are known to sustain."""
    worker = snapshot.settings.worker
    if worker.guarantee is not Guarantee.EXACTLY_ONCE or worker.has_own_id:
        return
    existing = snapshot.existing(*snapshot.sources)
    tasks = [
        max((existing[s.topic].partitions for s in part.sources if s.topic in existing), default=0)
        for part in snapshot.graph.sub_topologies
    ]
    rate = sum(tasks) / worker.commit_interval_seconds
    limit = BROKER_TRANSACTIONS_PER_SECOND * len(snapshot.brokers.read())
    if rate <= limit:
        return
    yield Observation(
        f"{sum(tasks)} tasks",
        f"worker.commit_interval_seconds={worker.commit_interval_seconds:g}: "
        f"up to {rate:,.0f} transactions a second",
        expected=f"{limit:,} or fewer, {BROKER_TRANSACTIONS_PER_SECOND} for each broker",
        fix="--set worker.ids=worker; or a longer worker.commit_interval_seconds",
    )


def heartbeats(snapshot: Snapshot) -> Iterator[Observation]:
    """Find a session that expires after few lost heartbeats."""
    session = int(snapshot.consumer["session.timeout.ms"])
    heartbeat = int(snapshot.consumer["heartbeat.interval.ms"])
    if heartbeat * 3 > session:
        yield Observation(
            "the consumer",
            f"heartbeat.interval.ms={heartbeat}, session.timeout.ms={session}",
            fix=f"--set worker.heartbeat_interval_seconds={session / 3000:g}",
        )


def instance_name(snapshot: Snapshot) -> Iterator[Observation]:
    """Report the derived instance name where none is set."""
    if snapshot.settings.worker.instance is None:
        yield Observation(
            "group.instance.id",
            f"derived from this host's name, {socket.gethostname()}",
        )


def readers(snapshot: Snapshot) -> Iterator[Observation]:
    """Report that the isolation level of downstream consumers cannot be checked."""
    if snapshot.sinks:
        yield Observation(
            f"readers of {', '.join(snapshot.sinks)}",
            "brokers do not report the isolation.level of a consumer",
        )


def clock(snapshot: Snapshot) -> Iterator[Observation]:
    """Find a difference between this host's clock and the controller's."""
    seen = snapshot.clock.read()
    ahead, unsure = seen.ahead.total_seconds(), seen.uncertainty.total_seconds()
    if abs(ahead) - unsure > 5:
        side = "behind" if ahead > 0 else "ahead of"
        yield Observation(
            f"the clock of {socket.gethostname()}",
            f"{abs(ahead):.1f} s {side} the controller's, give or take {unsure:.3f} s",
        )
    elif unsure > 5:
        yield Observation(
            f"the clock of {socket.gethostname()}",
            f"the controller took {2 * unsure:.1f} s to answer with its time",
            severity=Severity.NOTE,
        )


def _within_transaction(snapshot: Snapshot, name: str, more: int) -> Iterator[Observation]:
    value, longest = int(snapshot.producer[name]), snapshot.transaction_timeout_ms + more
    if value > longest:
        yield Observation(
            "the producers",
            f"{name}={value}, transaction.timeout.ms={snapshot.transaction_timeout_ms}",
            expected=f"{longest} or less",
            fix=f"remove {name} from kafka.properties, or "
            f"--set worker.transaction_timeout_seconds={value / 1000:g}",
        )


def _timeouts(snapshot: Snapshot) -> tuple[int, int]:
    """Return the request timeout and the delivery timeout."""
    delivery, request = (int(snapshot.producer[name]) for name in _PRODUCER_TIMEOUTS)
    return request, delivery


CHECKS = {
    "guarantee": guarantee,
    "decision-time": decision_time,
    "refused-properties": refused_properties,
    "ignored-properties": ignored_properties,
    "delivery-timeout": delivery_timeout,
    "request-timeout": request_timeout,
    "room-to-repeat": room_to_repeat,
    "poll-interval": poll_interval,
    "transaction-rate": transaction_rate,
    "heartbeats": heartbeats,
    "instance-name": instance_name,
    "clock": clock,
    "readers": readers,
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
    "hanging-transactions": hanging,
    "hanging-offsets": hanging_offsets,
    "held-back": blocked_readers,
}
