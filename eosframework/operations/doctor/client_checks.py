"""The worker's own settings: timeouts compared with each other, and effective client properties."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from eosframework.config import Guarantee
from eosframework.operations.doctor.findings import Observation, Severity
from eosframework.operations.doctor.snapshot import Snapshot

BROKER_TRANSACTIONS_PER_SECOND = 300
"""Measured commits per second of one broker core, alongside the workers (docs/scale.md)."""

_PRODUCER_TIMEOUTS = ("message.timeout.ms", "socket.timeout.ms")


def guarantee(snapshot: Snapshot) -> Iterator[Observation]:
    """Find an application with a weaker guarantee than exactly-once."""
    if snapshot.settings.worker.guarantee is not Guarantee.EXACTLY_ONCE:
        yield Observation("this configuration", "worker.guarantee=at_least_once")


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
}
