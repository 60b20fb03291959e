"""Output topics that were deleted or may not be written: they show only in failing transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclOperation,  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
)

from eosframework.errors import TransactionError
from eosframework.kafka.client.defaults import admin_properties
from eosframework.kafka.taxonomy import kafka_error

REPEAT_SECONDS = 300.0
"""A topic that is still missing is reported again after this time."""

ASK_SECONDS = 10.0
"""The longest wait for an answer."""

SIGNS = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._INCONSISTENT,  # noqa: SLF001
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
    }
)
"""Error codes of a transaction whose topic is missing. A producer that knew the topic waits for it
until its records expire, as it does for a broker."""


class OutputTopics:
    """The output topics of a process: reports missing ones, and finds those it may not write.

    Args:
        client: librdkafka properties that reach the cluster.
        topics: the output topics, as far as they are known.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        topics: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._topics = list(topics)
        self._clock = clock
        self._reported_at: dict[str, float] = {}
        self._looking = threading.Lock()
        self._events = structlog.get_logger("eosframework.kafka")

    def look_after(self, error: TransactionError) -> None:
        """Check on another thread for missing topics, if they may explain an error.

        The caller does not wait: brokers that do not answer must not delay its recovery.
        """
        if (
            self._topics
            and kafka_error(error).code() in SIGNS
            and self._looking.acquire(blocking=False)
        ):
            threading.Thread(target=self._look, name="eos-missing", daemon=True).start()

    def report(self, missing: Sequence[str]) -> None:
        """Report these topics unless that was done recently; forget those that exist again."""
        now = self._clock()
        self._reported_at = {t: at for t, at in self._reported_at.items() if t in missing}
        for topic in missing:
            if now - self._reported_at.get(topic, -REPEAT_SECONDS) < REPEAT_SECONDS:
                continue
            self._reported_at[topic] = now
            self._events.warning(
                "output_topic_missing",
                topic=topic,
                consequence="nothing that is written with it can be committed; the records are "
                "processed again until it exists",
                fix="create it with as many partitions as before (`eosframework apply APP "
                f"--accept {topic}`), or stop the workers and take it out of the topology",
            )

    def unwritable(self, timeout_seconds: float) -> list[str]:
        """Return the topics that this principal may not write; empty if no broker answers."""
        return self._chosen(_is_denied, timeout_seconds) if self._topics else []

    def _look(self) -> None:
        try:
            self.report(self._chosen(_is_missing, ASK_SECONDS))
        finally:
            self._looking.release()

    def _chosen(self, condition: Callable[[Any], bool], timeout_seconds: float) -> list[str]:
        # Any: the stubs leave the futures' results open.
        admin: Any = AdminClient(admin_properties(self._client))
        answers = admin.describe_topics(
            TopicCollection(self._topics),
            include_authorized_operations=True,
            request_timeout=timeout_seconds,
        )
        return sorted(topic for topic, answer in answers.items() if condition(answer))


def _is_missing(answer: Any) -> bool:
    try:
        answer.result()
    except KafkaException as error:
        return error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    return False


def _is_denied(answer: Any) -> bool:
    """Return whether a described topic may not be written; False if brokers do not report it."""
    try:
        operations = answer.result().authorized_operations
    except KafkaException as error:
        return error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    return operations is not None and AclOperation.WRITE not in operations
