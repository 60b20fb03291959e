"""Which topics a principal may not write: the error of a transaction does not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclOperation,  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
)

from eosframework.kafka.defaults import admin_properties


def unwritable(
    properties: Mapping[str, Any], topics: Sequence[str], timeout_seconds: float
) -> list[str]:
    """Return those of `topics` that this principal may not write; none where nobody answers.

    Args:
        properties: a client's, of which those that reach the cluster are used.
        topics: as far as the application knows them.
        timeout_seconds: for the answer.
    """
    if not topics:
        return []
    # Any: the stubs leave the futures' results open.
    admin: Any = AdminClient(admin_properties(properties))
    answers = admin.describe_topics(
        TopicCollection(list(topics)),
        include_authorized_operations=True,
        request_timeout=timeout_seconds,
    )
    return sorted(topic for topic, answer in answers.items() if not _may_write(answer))


def _may_write(answer: Any) -> bool:
    """Tell whether a described topic may be written, as far as that is known."""
    try:
        operations = answer.result().authorized_operations
    except KafkaException as error:
        return error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED
    return operations is None or AclOperation.WRITE in operations
