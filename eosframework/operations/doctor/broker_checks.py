"""Broker settings, compared with the needs of transactions and of the worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from eosframework.application.needed_access import (
    Access,
    merged,
    ownership_access,
    purging_access,
    tables_access,
    topic_access,
)
from eosframework.config import Guarantee, Ids
from eosframework.kafka.admin.verification import SETTING, is_conclusive, shortcoming
from eosframework.operations.doctor.findings import NotSeen, Observation, Severity
from eosframework.operations.doctor.snapshot import (
    WEEK_MS,
    Snapshot,
    grant,
    number_of,
    restart_with,
)
from eosframework.txnid import prefix, tables_group


def topics_and_group(snapshot: Snapshot) -> Iterator[Observation]:
    """Find missing permissions on topics and groups."""
    groups = {snapshot.graph.application: snapshot.group}
    if snapshot.tables_group is not None:
        groups[tables_group(snapshot.graph.application)] = snapshot.tables_group
    needed = [
        *topic_access(snapshot.graph, snapshot.sources, snapshot.sinks),
        *tables_access(snapshot.graph),
        *purging_access(snapshot.graph, snapshot.settings),
    ]
    for access in merged(needed):
        if access.kind == "Topic":
            found = snapshot.existing(access.name or "").get(access.name or "")
            allowed = found.allowed if found else None
        else:
            allowed = groups[access.name or ""].read().allowed
        yield from _missing(snapshot, access, allowed)


def registry(snapshot: Snapshot) -> Iterator[Observation]:
    """Find missing permissions on the control topic, or on the cluster to create it."""
    name = snapshot.registry
    for facts in snapshot.existing(name).values():
        needed = Access("Topic", name, ("Read", "Write", "Describe"))
        yield from _missing(snapshot, needed, facts.allowed)
        return
    allowed = snapshot.allowed_on_cluster.read()
    if Access("Cluster", None, ("Create",)).missing(allowed):
        yield Observation(
            f"topic {name}",
            "does not exist, and this principal is not allowed Create on the cluster",
            expected="Create on the topic, or the topic",
            fix="eosframework apply APP, by a principal with Create",
            severity=Severity.WARNING,
        )


def ownership(snapshot: Snapshot) -> Iterator[Observation]:
    """Find missing permissions on the ownership topic, once it exists."""
    found = snapshot.facts.read().ownership
    if found is not None and found.exists:
        yield from _missing(snapshot, ownership_access(snapshot.graph.application), found.allowed)


def settings(snapshot: Snapshot) -> Iterator[Observation]:
    """Find settings that cannot be read for lack of DescribeConfigs."""
    for topic, facts in snapshot.described.items():
        if facts.values is None:
            fix = grant(snapshot, f"--topic {topic}", "DescribeConfigs")
            yield Observation(f"topic {topic}", "DescribeConfigs is not allowed", fix=fix)


def transactional_ids(snapshot: Snapshot) -> Iterator[Observation]:
    """Find transactional ids without Write permission, for a worker that uses transactions."""
    if snapshot.settings.worker.guarantee is not Guarantee.EXACTLY_ONCE:
        return
    unseen: NotSeen | None = None
    for name, seen in snapshot.lacking.items():
        try:
            missing = seen.read()
        except NotSeen as error:
            unseen = error
            continue
        if missing:
            resource = (
                f"--transactional-id {prefix(snapshot.graph.application)} "
                "--resource-pattern-type prefixed"
            )
            if snapshot.settings.worker.ids is Ids.LEASED:
                resource = f"--transactional-id '{name}'"
            yield Observation(
                f"TransactionalId {name}",
                f"{missing} is not allowed",
                fix=grant(snapshot, resource, "Write and Describe"),
            )
    if unseen is not None:
        raise unseen


def _missing(
    snapshot: Snapshot, access: Access, allowed: frozenset[str] | None
) -> Iterator[Observation]:
    if missing := access.missing(allowed):
        resource = f"--{access.kind.lower()} {access.name}"
        yield Observation(
            f"{access.kind} {access.name}",
            f"{missing} is not allowed",
            expected=access.listed,
            fix=grant(snapshot, resource, missing),
        )


DAY_MS = 24 * 60 * 60 * 1000


def verification(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that do not reject delayed frames, for a worker that uses transactions."""
    if snapshot.settings.worker.guarantee is not Guarantee.EXACTLY_ONCE:
        return
    brokers, all_answered = snapshot.some_brokers, False
    with suppress(NotSeen):
        brokers, all_answered = snapshot.brokers.read(), True
    for broker, values in brokers.items():
        if wrong := shortcoming(values):
            yield Observation(
                f"broker {broker}",
                wrong.found,
                wrong.expected,
                wrong.remedy if wrong.expected != "true" else None,
                wrong.consequence,
            )
    silent = [f"broker {broker}" for broker, values in brokers.items() if not is_conclusive(values)]
    if silent or not all_answered:
        assumed = snapshot.settings.kafka.assume_transaction_verification
        yield Observation(
            ", ".join(silent) if all_answered else "the brokers that did not answer",
            f"{SETTING} and the version cannot be read",
            fix="grant DescribeConfigs on the cluster, or, if you know both of every broker: "
            "--set kafka.assume_transaction_verification=true",
            severity=Severity.WARNING if assumed else Severity.ERROR,
        )


def versions(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers of different versions, and feature levels older than all brokers."""
    levels = snapshot.levels.read()
    supported = levels.supported
    if len(set(supported.values())) > 1:
        each = ", ".join(f"broker {broker} {level}" for broker, level in sorted(supported.items()))
        yield Observation("the brokers", f"highest metadata.version: {each}")
    elif levels.finalized < (every := min(supported.values(), default=0)):
        yield Observation(
            "the cluster",
            f"metadata.version {levels.finalized} in use; every broker supports {every}",
            expected=f"the feature levels of the brokers' version, metadata.version {every}",
            fix="kafka-features.sh upgrade --release-version VERSION, with the brokers' version",
        )


def longest_transaction(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that refuse the worker's transaction timeout."""
    name = "transaction.max.timeout.ms"
    for broker, limit in _numbers(snapshot, name):
        if snapshot.transaction_timeout_ms > limit:
            yield Observation(
                f"broker {broker}",
                f"{name}={limit}",
                expected=f"{snapshot.transaction_timeout_ms} or more, as "
                f"worker.transaction_timeout_seconds asks for",
                fix=f"--set worker.transaction_timeout_seconds={limit / 1000:g}, or "
                f"{restart_with(name, snapshot.transaction_timeout_ms)}",
            )


def expired_ids(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that expire idle transactional ids early."""
    yield from _below(snapshot, "transactional.id.expiration.ms", WEEK_MS)


def expired_producers(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that expire the sequence numbers of an idle producer early."""
    yield from _below(snapshot, "producer.id.expiration.ms", DAY_MS)


def expired_offsets(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that expire the offsets of a stopped group early."""
    yield from _below(snapshot, "offsets.retention.minutes", WEEK_MS // 60_000)


def late_aborts(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that rarely look for expired transactions."""
    name = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    for broker, interval in _numbers(snapshot, name):
        if interval > snapshot.transaction_timeout_ms:
            yield Observation(
                f"broker {broker}",
                f"{name}={interval}",
                expected=f"at most the transaction timeout, {snapshot.transaction_timeout_ms}",
                fix=restart_with(name, 10_000),
            )


def session_limits(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that refuse the worker's session timeout."""
    wanted = round(snapshot.settings.worker.session_timeout_seconds * 1000)
    lowest, highest = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
    for name, refuses in ((lowest, int.__lt__), (highest, int.__gt__)):
        for broker, limit in _numbers(snapshot, name):
            if refuses(wanted, limit):
                yield Observation(
                    f"broker {broker}",
                    f"{name}={limit}",
                    expected=f"{'at most' if name == lowest else 'at least'} {wanted}, as "
                    f"worker.session_timeout_seconds asks for",
                    fix=f"--set worker.session_timeout_seconds={limit / 1000:g}",
                )


def automatic_topics(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that create topics on first use."""
    for broker, values in snapshot.brokers.read().items():
        if values.get("auto.create.topics.enable") == "true":
            yield Observation(f"broker {broker}", "auto.create.topics.enable=true")


def _below(snapshot: Snapshot, name: str, enough: int) -> Iterator[Observation]:
    for broker, value in _numbers(snapshot, name):
        if value < enough:
            yield Observation(f"broker {broker}", f"{name}={value}", f"{enough} or more")


def _numbers(snapshot: Snapshot, name: str) -> Iterator[tuple[int, int]]:
    """Yield each broker that has a setting, with its value."""
    for broker, values in sorted(snapshot.brokers.read().items()):
        value = number_of(values, name)
        if value is not None:
            yield broker, value


CHECKS = {
    "transaction-verification": verification,
    "broker-versions": versions,
    "longest-transaction": longest_transaction,
    "transactional-id-expiration": expired_ids,
    "producer-id-expiration": expired_producers,
    "offsets-retention": expired_offsets,
    "expired-transaction-interval": late_aborts,
    "session-limits": session_limits,
    "automatic-topics": automatic_topics,
    "topic-and-group-acls": topics_and_group,
    "registry-acls": registry,
    "ownership-acls": ownership,
    "transactional-id-acls": transactional_ids,
    "settings-acls": settings,
}
