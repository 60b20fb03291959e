"""Whether the brokers verify that a partition is part of a transaction (KIP-890, part 1).

Everything else rests on it: without it a straggler of a fenced producer is written all the same.
Brokers older than 3.6 do not have it; newer ones let it be switched off.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, cast

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from eosframework.errors import ClusterUnreachable, StartRefused
from eosframework.kafka.defaults import admin_properties

SETTING = "transaction.partition.verification.enable"

_verified: set[str] = set()
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
        assume: take it for granted where the setting cannot be read.
        timeout_seconds: for the answers.

    Raises:
        StartRefused: the setting is off, missing, or may not be read.
        ClusterUnreachable: no broker answered.
    """
    reachable = admin_properties(properties)
    cluster = str(reachable.get("bootstrap.servers"))
    with _lock:
        if cluster in _verified:
            return
        brokers = _ask(cluster, AdminClient(reachable), timeout_seconds)
        require_verified(cluster, brokers, assume=assume)


def require_verified(
    cluster: str, brokers: Mapping[int, Mapping[str, str | None] | None], *, assume: bool = False
) -> None:
    """Refuse what the settings of a cluster's brokers do not rule out, as above; asks nobody.

    The answer holds for all producers that this process makes for the cluster.

    Args:
        cluster: its bootstrap.servers.
        brokers: settings of each broker; None: they cannot be read.
        assume: take it for granted where no broker's setting can be read.

    Raises:
        StartRefused: the setting is off, missing, or cannot be read.
    """
    for broker, settings in brokers.items():
        if settings is not None and (wrong := unverified(broker, settings)):
            raise StartRefused(f"{cluster}: {wrong}")
    if not any(settings is not None for settings in brokers.values()) and not assume:
        raise StartRefused(
            f"{SETTING} of {cluster} cannot be read, so it is not known whether a delayed frame "
            f"could tear a transaction. Grant DescribeConfigs on the cluster, or, if you know "
            f"that it is on, set assume_transaction_verification"
        )
    _verified.add(cluster)


def unverified(broker: int, settings: Mapping[str, str | None]) -> str | None:
    """Return why a broker with these settings does not verify transactions; None: it does."""
    value = settings.get(SETTING)
    if value is None:
        return (
            f"broker {broker} has no setting {SETTING}, so it is older than Kafka 3.6 and a "
            f"delayed frame could tear a transaction; upgrade the brokers"
        )
    if value.lower() != "true":
        return (
            f"broker {broker} has {SETTING}={value}, expected true: a delayed frame could tear a "
            f"transaction. Set {SETTING}=true on every broker (it may be changed while they run) "
            f"and start again"
        )
    return None


def _settings(answer: Any) -> Mapping[str, str | None] | None:
    try:
        return {name: entry.value for name, entry in answer.result().items()}
    except KafkaException:
        return None


def _ask(
    cluster: str, admin: AdminClient, timeout_seconds: float
) -> dict[int, Mapping[str, str | None] | None]:
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
