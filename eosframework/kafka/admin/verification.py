"""Whether the brokers rule out what a delayed frame could do (KIP-890, part 1).

Everything else rests on two things that every broker has to do:

- verify that a partition is part of a transaction: without it a straggler of a fenced producer is
  written all the same. Brokers from 3.6 on do, unless it is switched off.
- coordinate groups as brokers from 4.0 on do. Up to 3.9 the group coordinator that refuses a late
  TxnOffsetCommit drops what the *next* transaction of the same producer has pending: that one is
  committed, and the committed offset stays where it was (seen on 3.6.2, 3.7.2 and 3.9.1).

A broker tells neither its version nor its features to librdkafka. Its settings do: those that
Kafka 4.0 took out are there, or they are not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from eosframework.errors import ClusterUnreachable, StartRefused
from eosframework.kafka.client.defaults import admin_properties

SETTING = "transaction.partition.verification.enable"

OLDER = "inter.broker.protocol.version"
"""What brokers before 4.0 speak among themselves; 4.0 took the setting out (KIP-724)."""

COORDINATOR = "group.coordinator.rebalance.protocols"
"""A setting of the group coordinator that all brokers from 4.0 on have."""

Settings = Mapping[str, str | None]
"""Of one broker, by name."""

_UPGRADE = "upgrade the brokers, or set worker.guarantee=at_least_once"


@dataclass(frozen=True, slots=True)
class Shortcoming:
    """What a broker lacks.

    Args:
        found: as a predicate of the broker.
        expected: in its place.
        consequence: of that.
        remedy: what to do.
    """

    found: str
    expected: str
    consequence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.found}, expected {self.expected}: {self.consequence}; {self.remedy}"


LEAVING_SECONDS = 20.0
"""How long brokers that do not answer are given to answer or to leave the cluster: more than
broker.session.timeout.ms, after which the controller lists them no more."""

ASK_AGAIN_SECONDS = 0.5

_verified: dict[str, set[int]] = {}
"""By bootstrap.servers, the brokers that this process found to be as they should."""

_lock = threading.Lock()


def require_transaction_verification(
    properties: Mapping[str, Any],
    *,
    assume: bool = False,
    timeout_seconds: float = 10.0,
) -> None:
    """Refuse a cluster in which a delayed frame could tear a transaction.

    Asks every broker once per cluster and process.

    Args:
        properties: a client's, of which those that reach the cluster are used.
        assume: take it for granted of brokers whose settings cannot be read.
        timeout_seconds: for the answers.

    Raises:
        StartRefused: a broker does not rule it out, or its settings cannot be read.
        ClusterUnreachable: no broker answered.
    """
    reachable = admin_properties(properties)
    cluster = str(reachable.get("bootstrap.servers"))
    with _lock:
        if cluster in _verified:
            return
        ask = partial(_ask, cluster, AdminClient(reachable), timeout_seconds)
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
    """Refuse what the settings of a cluster's brokers do not rule out, as above.

    A broker that was killed or hangs is in the list of brokers until its session expires, so those
    that do not answer are asked again before they are refused.

    Args:
        cluster: its bootstrap.servers.
        brokers: settings of each broker; None: they cannot be read.
        ask: asks for them again.
        assume: take it for granted of brokers whose settings cannot be read.
        within_seconds: how long it is asked again.

    Raises:
        StartRefused: a broker does not rule it out, or its settings cannot be read.
        ClusterUnreachable: no broker answered.
    """
    deadline = time.monotonic() + within_seconds
    while not assume and _some_are_away(brokers) and unread(cluster, brokers):
        if time.monotonic() > deadline:
            break
        time.sleep(ASK_AGAIN_SECONDS)
        brokers = ask()
    require_verified(cluster, brokers, assume=assume)


def require_verified(
    cluster: str, brokers: Mapping[int, Settings | None], *, assume: bool = False
) -> None:
    """Refuse what the settings of a cluster's brokers do not rule out, as above; asks nobody.

    The answer holds for all producers that this process makes for the cluster.

    Args:
        cluster: its bootstrap.servers.
        brokers: settings of each broker; None: they cannot be read.
        assume: take it for granted of brokers whose settings cannot be read.

    Raises:
        StartRefused: a broker does not rule it out, or its settings cannot be read.
    """
    for broker, settings in sorted(brokers.items()):
        if settings is not None and (wrong := shortcoming(settings)):
            raise StartRefused(f"{cluster}: broker {broker} {wrong}")
    if not assume and (unknown := unread(cluster, brokers)):
        named = ", ".join(map(str, unknown))
        raise StartRefused(
            f"{SETTING} and the version of broker {named} of {cluster} cannot be read, expected "
            f"true and Kafka 4.0 or later, so it is not known whether a delayed frame could tear a "
            f"transaction. Grant DescribeConfigs on the cluster; see whether the broker is up; or, "
            f"if you know both of every broker, set kafka.assume_transaction_verification"
        )
    _verified.setdefault(cluster, set()).update(brokers.keys() - set(unread(cluster, brokers)))


def unread(cluster: str, brokers: Mapping[int, Settings | None]) -> list[int]:
    """Return the brokers of which it is not known what they do, now or from before.

    One that this process has read before and that is away now is known; where no broker tells
    anything, they may not be read.
    """
    known = _verified.get(cluster, set()) if any(brokers.values()) else set[int]()
    return sorted(
        b
        for b, settings in brokers.items()
        if b not in known and not (settings is not None and tells(settings))
    )


def _some_are_away(brokers: Mapping[int, Settings | None]) -> bool:
    """Tell whether brokers answer, but not all: where they may not be read, none does."""
    return None in brokers.values() and any(brokers.values())


def shortcoming(settings: Settings) -> Shortcoming | None:
    """Return what a broker with these settings lacks; None: nothing that they tell."""
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


def tells(settings: Settings) -> bool:
    """Tell whether settings show what a broker does; some services leave most of them out."""
    return shortcoming(settings) is not None or COORDINATOR in settings


def _settings(answer: Any) -> Settings | None:
    try:
        return {name: entry.value for name, entry in answer.result().items()}
    except KafkaException:
        return None


def _ask(cluster: str, admin: AdminClient, timeout_seconds: float) -> dict[int, Settings | None]:
    """Return each broker's settings; None where they cannot be read."""
    try:
        brokers = admin.list_topics(timeout=timeout_seconds).brokers
    except KafkaException as error:
        raise ClusterUnreachable(
            f"no broker of {cluster} answered within {timeout_seconds:g} s ({error.args[0]}); "
            f"check bootstrap.servers and that the cluster is up"
        ) from error
    resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers]
    describe = cast("Any", admin.describe_configs)  # pyright: ignore[reportUnknownMemberType]
    # A call takes one broker at most (rd_kafka_DescribeConfigs); they all wait at the same time.
    answers = [
        (int(resource.name), answer)
        for one in resources
        for resource, answer in describe([one], request_timeout=timeout_seconds).items()
    ]
    return {broker: _settings(answer) for broker, answer in answers}
