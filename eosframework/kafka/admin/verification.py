"""Check that brokers protect transactions from delayed requests (KIP-890, part 1).

Exactly-once processing relies on two properties of every broker:

- It verifies that a partition is part of a transaction; otherwise a straggler of a fenced producer
  is written nevertheless. Brokers from 3.6 on do, unless it is switched off.
- It coordinates groups as brokers from 4.0 on do. Up to 3.9 the group coordinator that rejects a
  late TxnOffsetCommit drops the pending offsets of the *next* transaction of the same producer:
  that transaction is committed, and the committed offset stays where it was (seen on 3.6.2, 3.7.2
  and 3.9.1).

Brokers report neither their version nor their features to librdkafka. Their settings show both: the
settings that Kafka 4.0 removed are present or absent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from eosframework.errors import ClusterUnreachable, StartRefused
from eosframework.kafka.client.defaults import admin_properties
from eosframework.kafka.client.unanswered import UNANSWERED, unreachable

SETTING = "transaction.partition.verification.enable"

OLDER = "inter.broker.protocol.version"
"""The protocol version among brokers before 4.0, which removed the setting (KIP-724)."""

COORDINATOR = "group.coordinator.rebalance.protocols"
"""A setting of the group coordinator that all brokers from 4.0 on have."""

Settings = Mapping[str, str | None]
"""Settings of one broker, by name."""

_UPGRADE = "upgrade the brokers, or set worker.guarantee=at_least_once"


@dataclass(frozen=True, slots=True)
class Shortcoming:
    """A protection that a broker lacks.

    Args:
        found: the broker's state, as a predicate: "has no setting ...".
        expected: the required value or version.
        consequence: the effect of the difference.
        remedy: how to fix it.
    """

    found: str
    expected: str
    consequence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.found}, expected {self.expected}: {self.consequence}; {self.remedy}"


LEAVING_SECONDS = 20.0
"""Time for silent brokers to answer or to leave the cluster: longer than broker.session.timeout.ms,
after which the controller no longer lists them."""

RETRY_SECONDS = 0.5

_verified: dict[str, set[int]] = {}
"""By bootstrap.servers, the brokers that this process found to be protected."""

_lock = threading.Lock()


def require_transaction_verification(
    properties: Mapping[str, Any],
    *,
    assume: bool = False,
    timeout_seconds: float = 10.0,
) -> None:
    """Refuse a cluster in which a delayed request could tear a transaction.

    Asks every broker once per cluster and process.

    Args:
        properties: of any client; only those that reach the cluster are used.
        assume: trust brokers whose settings cannot be read.
        timeout_seconds: for the answers.

    Raises:
        StartRefused: a broker is not protected, or its settings cannot be read.
        ClusterUnreachable: no broker answered.
    """
    reachable = admin_properties(properties)
    cluster = str(reachable.get("bootstrap.servers"))
    with _lock:
        if cluster in _verified:
            return
        failures: list[KafkaError] = []
        noting: dict[str, Any] = {**reachable, "error_cb": failures.append}
        admin = AdminClient(noting)
        ask = partial(_ask, cluster, admin, failures, timeout_seconds)
        seconds = min(timeout_seconds, LEAVING_SECONDS)
        require_answered(cluster, ask(), ask, assume=assume, within_seconds=seconds)


def require_answered(
    cluster: str,
    brokers: Mapping[int, Settings | None],
    ask: Callable[[], Mapping[int, Settings | None]],
    *,
    assume: bool,
    within_seconds: float = LEAVING_SECONDS,
) -> None:
    """Refuse brokers that are not protected, after asking silent brokers again.

    A broker that was killed or hangs stays in the list of brokers until its session expires, so
    silent brokers are asked again before they are refused.

    Args:
        cluster: its bootstrap.servers.
        brokers: settings of each broker; None: they cannot be read.
        ask: reads them again.
        assume: trust brokers whose settings cannot be read.
        within_seconds: the time for which silent brokers are asked again.

    Raises:
        StartRefused: a broker is not protected, or its settings cannot be read.
        ClusterUnreachable: no broker answered.
    """
    deadline = time.monotonic() + within_seconds
    while not assume and _some_unavailable(brokers) and unread(cluster, brokers):
        if time.monotonic() > deadline:
            break
        time.sleep(RETRY_SECONDS)
        brokers = ask()
    require_verified(cluster, brokers, assume=assume)


def require_verified(
    cluster: str, brokers: Mapping[int, Settings | None], *, assume: bool = False
) -> None:
    """Refuse brokers whose settings show no protection; sends no request.

    A success holds for all producers that this process creates for the cluster.

    Args:
        cluster: its bootstrap.servers.
        brokers: settings of each broker; None: they cannot be read.
        assume: trust brokers whose settings cannot be read.

    Raises:
        StartRefused: a broker is not protected, or its settings cannot be read.
        ClusterUnreachable: some brokers answered, and others did not.
    """
    for broker, settings in sorted(brokers.items()):
        if settings is not None and (wrong := shortcoming(settings)):
            raise StartRefused(f"{cluster}: broker {broker} {wrong}")
    if not assume and (unknown := unread(cluster, brokers)):
        named = ", ".join(map(str, unknown))
        # If some answered, reading is allowed, and the others are unavailable.
        raise (ClusterUnreachable if _some_unavailable(brokers) else StartRefused)(
            f"{SETTING} and the version of broker {named} of {cluster} cannot be read, expected "
            f"true and Kafka 4.0 or later, so it is not known whether a delayed frame could tear a "
            f"transaction. Grant DescribeConfigs on the cluster; see whether the broker is up; or, "
            f"if you know both of every broker, set kafka.assume_transaction_verification"
        )
    _verified.setdefault(cluster, set()).update(brokers.keys() - set(unread(cluster, brokers)))


def unread(cluster: str, brokers: Mapping[int, Settings | None]) -> list[int]:
    """Return the brokers whose protection is unknown, now and from earlier reads.

    A broker that this process has read before and that is unavailable now counts as known. If no
    broker reports settings, reading them is denied, and earlier reads do not count.
    """
    known = _verified.get(cluster, set()) if any(brokers.values()) else set[int]()
    return sorted(
        b
        for b, settings in brokers.items()
        if b not in known and not (settings is not None and is_conclusive(settings))
    )


def _some_unavailable(brokers: Mapping[int, Settings | None]) -> bool:
    """Return whether some brokers answered and others did not; if reading is denied, none does."""
    return None in brokers.values() and any(brokers.values())


def shortcoming(settings: Settings) -> Shortcoming | None:
    """Return the missing protection of a broker with these settings; None: none shows."""
    value = settings.get(SETTING)
    if value is None:
        return Shortcoming(
            f"has no setting {SETTING}, so it is older than Kafka 3.6",
            "Kafka 4.0 or later",
            "a delayed frame could tear a transaction",
            _UPGRADE,
        )
    if value.lower() != "true":
        return Shortcoming(
            f"has {SETTING}={value}",
            "true",
            "a delayed frame could tear a transaction",
            f"set {SETTING}=true on every broker (it may be changed while they run) and start "
            f"again",
        )
    if OLDER in settings:
        return Shortcoming(
            f"has {OLDER}={settings[OLDER]}, so it is older than Kafka 4.0",
            "Kafka 4.0 or later",
            "its group coordinator loses the offsets of a transaction when a frame of the one "
            "before comes late",
            _UPGRADE,
        )
    return None


def is_conclusive(settings: Settings) -> bool:
    """Return whether the settings suffice to judge a broker; some services omit most of them."""
    return shortcoming(settings) is not None or COORDINATOR in settings


def _ask(
    cluster: str, admin: Any, failures: list[KafkaError], timeout_seconds: float
) -> dict[int, Settings | None]:
    """Return each broker's settings; None where they cannot be read.

    Raises:
        ClusterUnreachable: no broker answered.
    """
    try:
        brokers = admin.list_topics(timeout=timeout_seconds).brokers
    except KafkaException as error:
        raise ClusterUnreachable(
            f"no broker of {cluster} answered within {timeout_seconds:g} s ({error.args[0]}); "
            f"check bootstrap.servers and that the cluster is up"
        ) from error
    resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers]
    # A call takes one broker at most (rd_kafka_DescribeConfigs); the calls overlap.
    answers = [
        (int(resource.name), answer)
        for one in resources
        for resource, answer in admin.describe_configs(
            [one], request_timeout=timeout_seconds
        ).items()
    ]
    settings: dict[int, Settings | None] = {}
    unanswered: set[int] = set()
    for broker, answer in answers:
        try:
            settings[broker] = {name: entry.value for name, entry in answer.result().items()}
        except KafkaException as error:
            settings[broker] = None
            if error.args[0].code() in UNANSWERED:
                unanswered.add(broker)
    if settings and unanswered == settings.keys():
        admin.poll(0)
        failure = failures[-1].str() or "" if failures else ""
        raise unreachable(cluster, timeout_seconds, failure)
    return settings
