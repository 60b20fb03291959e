"""Whether the brokers verify that a partition is part of a transaction (KIP-890, part 1).

Everything else rests on it: without it a straggler of a fenced producer is written all the same.
Brokers older than 3.6 do not have it; newer ones let it be switched off.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException
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
        _check(cluster, AdminClient(reachable), assume, timeout_seconds)
        _verified.add(cluster)


def _check(cluster: str, admin: AdminClient, assume: bool, timeout_seconds: float) -> None:
    answers = _ask(cluster, admin, timeout_seconds)
    unreadable: list[str] = []
    verified = 0
    for broker, answer in answers.items():
        try:
            entries = answer.result()
        except KafkaException as error:
            unreadable.append(f"broker {broker}: {error.args[0]}")
            if _is_unauthorized(error) and not assume:
                raise StartRefused(_unreadable_message(cluster, unreadable)) from error
            continue
        _require_enabled(cluster, broker, entries)
        verified += 1
    if not verified and not assume:
        raise StartRefused(_unreadable_message(cluster, unreadable))


def _ask(cluster: str, admin: AdminClient, timeout_seconds: float) -> dict[str, Any]:
    """Return a future of each broker's settings."""
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
    return {
        resource.name: answer
        for one in resources
        for resource, answer in describe([one], request_timeout=timeout_seconds).items()
    }


def _require_enabled(cluster: str, broker: str, entries: Mapping[str, Any]) -> None:
    entry = entries.get(SETTING)
    if entry is None:
        raise StartRefused(
            f"broker {broker} of {cluster} has no setting {SETTING}, so it is older than Kafka "
            f"3.6 and a delayed frame could tear a transaction; upgrade the brokers"
        )
    if str(entry.value).lower() != "true":
        raise StartRefused(
            f"broker {broker} of {cluster} has {SETTING}={entry.value}, expected true: a delayed "
            f"frame could tear a transaction. Set {SETTING}=true on every broker (it may be "
            f"changed while they run) and start again"
        )


def _is_unauthorized(error: KafkaException) -> bool:
    return error.args[0].code() in (
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )


def _unreadable_message(cluster: str, unreadable: list[str]) -> str:
    return (
        f"{SETTING} of {cluster} cannot be read ({'; '.join(unreadable)}), so it is not known "
        f"whether a delayed frame could tear a transaction. Grant DescribeConfigs on the cluster, "
        f"or, if you know that it is on, set assume_transaction_verification"
    )
