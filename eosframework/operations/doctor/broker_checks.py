"""Settings of the brokers, against what transactions and this worker need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from eosframework.config import Guarantee
from eosframework.kafka.admin.verification import SETTING, is_conclusive, shortcoming
from eosframework.operations.doctor.findings import Check, NotSeen, Observation, Severity
from eosframework.operations.doctor.remedies import IN_PROPERTIES, restart_with
from eosframework.operations.doctor.snapshot import Snapshot, number_of

WEEK_MINUTES = 7 * 24 * 60
DAY_MS = 24 * 60 * 60 * 1000


def verification(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that do not rule delayed frames out, if transactions are to be made."""
    if snapshot.settings.worker.guarantee is not Guarantee.EXACTLY_ONCE:
        return
    brokers, all_told = snapshot.some_brokers, False
    with suppress(NotSeen):
        brokers, all_told = snapshot.brokers.read(), True
    for broker, values in brokers.items():
        if wrong := shortcoming(values):
            yield Observation(
                f"broker {broker}",
                wrong.found,
                wrong.expected,
                wrong.remedy if wrong.expected != "true" else None,
                wrong.consequence,
            )
    mute = [f"broker {broker}" for broker, values in brokers.items() if not is_conclusive(values)]
    if mute or not all_told:
        assumed = snapshot.settings.kafka.assume_transaction_verification
        yield Observation(
            ", ".join(mute) if all_told else "the brokers that did not tell",
            f"{SETTING} and the version cannot be read",
            mend="grant DescribeConfigs on the cluster, or, if you know both of every broker: "
            "--set kafka.assume_transaction_verification=true",
            severity=Severity.WARNING if assumed else Severity.ERROR,
        )


def versions(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers whose software is not the same."""
    levels = snapshot.levels.read()
    if len(set(levels.values())) > 1:
        each = ", ".join(f"broker {broker} {level}" for broker, level in sorted(levels.items()))
        yield Observation("the brokers", f"highest metadata.version: {each}")


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
                mend=f"--set worker.transaction_timeout_seconds={limit / 1000:g}, or "
                f"{restart_with(name, snapshot.transaction_timeout_ms)}",
            )


def expired_ids(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that forget an idle transactional id early."""
    yield from _below(snapshot, "transactional.id.expiration.ms", WEEK_MINUTES * 60_000)


def expired_producers(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that forget the sequence numbers of an idle producer early."""
    yield from _below(snapshot, "producer.id.expiration.ms", DAY_MS)


def expired_offsets(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that forget the offsets of a stopped group early."""
    yield from _below(snapshot, "offsets.retention.minutes", WEEK_MINUTES)


def late_aborts(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that look for expired transactions seldom."""
    name = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    for broker, interval in _numbers(snapshot, name):
        if interval > snapshot.transaction_timeout_ms:
            yield Observation(
                f"broker {broker}",
                f"{name}={interval}",
                expected=f"at most the transaction timeout, {snapshot.transaction_timeout_ms}",
                mend=restart_with(name, 10_000),
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
                    mend=f"--set worker.session_timeout_seconds={limit / 1000:g}",
                )


def automatic_topics(snapshot: Snapshot) -> Iterator[Observation]:
    """Find brokers that create a topic when somebody names it."""
    for broker, values in snapshot.brokers.read().items():
        if values.get("auto.create.topics.enable") == "true":
            yield Observation(f"broker {broker}", "auto.create.topics.enable=true")


def _below(snapshot: Snapshot, name: str, enough: int) -> Iterator[Observation]:
    for broker, value in _numbers(snapshot, name):
        if value < enough:
            yield Observation(f"broker {broker}", f"{name}={value}", f"{enough} or more")


def _numbers(snapshot: Snapshot, name: str) -> Iterator[tuple[int, int]]:
    """Yield each broker with its value of a setting, where it has it."""
    for broker, values in sorted(snapshot.brokers.read().items()):
        value = number_of(values, name)
        if value is not None:
            yield broker, value


CHECKS = (
    Check(
        "transaction-verification",
        Severity.ERROR,
        "Kafka 4.0 or later with transaction.partition.verification.enable=true at every broker",
        "Otherwise a delayed frame of a fenced producer is written all the same, and tears a "
        "transaction, or takes away the offsets that the next one commits.",
        "kafka-configs.sh --alter --entity-type brokers --entity-default --add-config "
        "transaction.partition.verification.enable=true",
        verification,
    ),
    Check(
        "broker-versions",
        Severity.NOTE,
        "the same at all brokers",
        "While brokers of several versions run, what one of them does another may not.",
        "finish the upgrade",
        versions,
    ),
    Check(
        "longest-transaction",
        Severity.ERROR,
        "transaction.max.timeout.ms at or above worker.transaction_timeout_seconds",
        "Brokers refuse a producer that asks for more, with INVALID_TRANSACTION_TIMEOUT.",
        "--set worker.transaction_timeout_seconds=SECONDS",
        longest_transaction,
    ),
    Check(
        "transactional-id-expiration",
        Severity.WARNING,
        "transactional.id.expiration.ms of 604800000 (7 days, the default) or more",
        "An id that was idle for longer is forgotten: the next transaction of its task is aborted "
        "and done again.",
        f"transactional.id.expiration.ms=604800000 {IN_PROPERTIES}",
        expired_ids,
    ),
    Check(
        "producer-id-expiration",
        Severity.WARNING,
        "producer.id.expiration.ms of 86400000 (a day, the default) or more",
        "A producer that was idle for longer loses its sequence numbers, by which brokers know a "
        "repeated batch.",
        "kafka-configs.sh --alter --entity-type brokers --entity-default --add-config "
        "producer.id.expiration.ms=86400000",
        expired_producers,
    ),
    Check(
        "offsets-retention",
        Severity.WARNING,
        "offsets.retention.minutes of 10080 (7 days, the default since KIP-186) or more",
        "An application that is stopped for longer loses its committed offsets, and refuses to "
        "start until positions are set.",
        f"offsets.retention.minutes=10080 {IN_PROPERTIES}",
        expired_offsets,
    ),
    Check(
        "expired-transaction-interval",
        Severity.WARNING,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms at or below the transaction "
        "timeout",
        "A transaction that its producer abandoned holds readers back for as much longer than its "
        "timeout.",
        f"transaction.abort.timed.out.transaction.cleanup.interval.ms=10000 {IN_PROPERTIES}",
        late_aborts,
    ),
    Check(
        "session-limits",
        Severity.ERROR,
        "worker.session_timeout_seconds between group.min.session.timeout.ms and "
        "group.max.session.timeout.ms",
        "Brokers do not let a member with another one into the group.",
        "--set worker.session_timeout_seconds=SECONDS",
        session_limits,
    ),
    Check(
        "automatic-topics",
        Severity.NOTE,
        "auto.create.topics.enable=false",
        "Whoever names a topic that does not exist, or is just being deleted, creates it with the "
        "brokers' number of partitions.",
        f"auto.create.topics.enable=false {IN_PROPERTIES}",
        automatic_topics,
    ),
)
