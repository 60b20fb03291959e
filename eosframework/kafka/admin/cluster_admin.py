"""Admin requests to one cluster: blocking, each within one deadline."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    NewPartitions,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
    OffsetSpec,  # pyright: ignore[reportPrivateImportUsage]
)

from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError, StartRefused
from eosframework.kafka.admin.metadata import (
    GroupDescription,
    TopicDescription,
    TopicIdentity,
    Values,
    group_facts,
    operation_names,
    setting_values,
    topic_facts,
)
from eosframework.kafka.admin.requests import (
    DENIED,
    AccessDenied,
    AdminRequests,
    ClientExchangedError,
    is_transient,
    knows_broker,
)
from eosframework.kafka.client.partitioner import committed_position
from eosframework.kafka.client.properties import Role, client_properties, new_client
from eosframework.kafka.client.unanswered import UNANSWERED
from eosframework.kafka.taxonomy import Call, classify
from eosframework.records import Position, TopicPartition, partitions_of

_DENIED: Any = object()
"""Placeholder for the description of a topic that may not be described."""

_SILENT: Any = object()
"""Placeholder for the settings of a broker that did not answer."""

_COMMITTED_TURN_SECONDS = 2.0
"""The longest delay until Ctrl-C takes effect."""


@dataclass(frozen=True, slots=True)
class TopicToCreate:
    """A topic that does not exist yet.

    Args:
        replication_factor: None: the cluster's default.
    """

    name: str
    partitions: int
    replication_factor: int | None = None
    config: Mapping[str, str] | None = None


class ClusterAdmin(AdminRequests):
    """Admin client of one cluster; each method raises ClusterUnreachable on a timeout."""

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(settings)
        self._readers: dict[tuple[str, bool], Consumer] = {}

    def cluster_id(self) -> str:
        """Return the cluster id from the metadata of any broker.

        `describe_cluster` also returns it, but waits for the broker that librdkafka takes for the
        controller: if that broker has just died, for as long as its session lasts.
        """
        return self._first_answer(lambda client, timeout: str(client.cluster_id(timeout=timeout)))

    def topic_names(self) -> list[str]:
        """Return the names of all topics that this principal may describe."""
        return self._first_answer(
            lambda client, timeout: sorted(client.list_topics(timeout=timeout).topics)
        )

    def allowed_on_cluster(self) -> frozenset[str] | None:
        """Return this principal's operations on the cluster; None: brokers do not report them."""
        described = self._request(
            lambda timeout: self._client.describe_cluster(
                include_authorized_operations=True, request_timeout=timeout
            )
        )
        return operation_names(described.authorized_operations)

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Return the description of each topic, including topics that do not exist."""
        return {name: facts for name, facts in self._described(names).items() if facts is not None}

    def describe_written(self, names: Iterable[str]) -> dict[str, TopicDescription | None]:
        """Return the description of each topic; None where this principal may not describe it."""
        return self._described(names, {KafkaError.TOPIC_AUTHORIZATION_FAILED: _DENIED})

    def identities(self, names: Iterable[str]) -> dict[str, TopicIdentity]:
        """Return the identity of each topic that exists."""
        if not (wanted := sorted(set(names))):
            return {}
        described = self._request_each(
            lambda timeout: self._client.describe_topics(
                TopicCollection(wanted), request_timeout=timeout
            ),
            absent=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
        )
        return {
            name: TopicIdentity(str(found.topic_id), len(found.partitions))
            for name, found in described.items()
            if found
        }

    def partition_counts(self, names: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of each topic that exists."""
        return {name: found.partitions for name, found in self.identities(names).items()}

    def broker_settings(self) -> dict[int, Values | None]:
        """Return the settings of each broker; None if denied, or if the broker does not answer.

        Raises:
            ClusterUnreachable: none of them answered; it may be the addresses that they name.
        """
        described = self._request(
            lambda timeout: self._client.describe_cluster(request_timeout=timeout)
        )
        resources = [
            ConfigResource(ConfigResource.Type.BROKER, str(broker.id)) for broker in described.nodes
        ]
        answers = self._request_each(
            # A call takes one broker at most (rd_kafka_DescribeConfigs); the calls overlap.
            lambda timeout: {
                resource: answer
                for one in resources
                for resource, answer in self._client.describe_configs(
                    [one], request_timeout=timeout
                ).items()
            },
            absent=(KafkaError.CLUSTER_AUTHORIZATION_FAILED,),
            instead=dict.fromkeys(UNANSWERED, _SILENT),
        )
        if answers and all(entries is _SILENT for entries in answers.values()):
            raise self._unreachable()
        return {
            int(resource.name): setting_values(None if entries is _SILENT else entries)
            for resource, entries in answers.items()
        }

    def create_topics(self, topics: Sequence[TopicToCreate]) -> list[str]:
        """Create the topics that do not exist, and return their names.

        Raises:
            ConfigurationError: the cluster rejects a topic; the message has its reason.
            StartRefused: this principal may not create one of them.
        """
        wanted = {
            topic.name: NewTopic(
                topic.name,
                topic.partitions,
                -1 if topic.replication_factor is None else topic.replication_factor,
                config=dict(topic.config or {}),
            )
            for topic in topics
        }
        began_at = time.monotonic()
        created: list[str] = []
        while wanted:
            with suppress(ClientExchangedError):
                self._create(wanted, created, began_at)
        self._wait_until_described(created)
        return created

    def _create(self, wanted: dict[str, NewTopic], created: list[str], began_at: float) -> None:
        """Send one request, and move what needs no other one from `wanted` to `created`."""
        deadline = began_at + self._deadline_seconds
        answers = self._client.create_topics(
            list(wanted.values()), request_timeout=self._deadline_seconds
        )
        for name, future in answers.items():
            try:
                self._result(future, deadline)
                created.append(name)
            except KafkaException as error:
                reason = error.args[0]
                if self._is_passing(reason, began_at) or (
                    _is_fenced(reason) and time.monotonic() < deadline
                ):
                    time.sleep(0.1)
                    continue
                if reason.code() in UNANSWERED or is_transient(reason):
                    raise self._explained(error, about=f"topic {name!r}") from error
                if reason.code() in DENIED:
                    raise StartRefused(
                        f"topic {name!r} may not be created; grant Create on it, or let "
                        f"another principal create it (`eosframework plan APP` shows how)"
                    ) from error
                if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise ConfigurationError(_not_created(name, reason)) from error
            del wanted[name]

    def grow_topics(self, counts: Mapping[str, int]) -> None:
        """Increase partition counts; a topic that has as many already is not an error.

        Raises:
            StartRefused: this principal may not alter a topic.
        """
        wanted = [NewPartitions(name, count) for name, count in counts.items()]
        if not wanted:
            return
        try:
            self._request_each(
                lambda timeout: self._client.create_partitions(wanted, request_timeout=timeout),
                absent=(KafkaError.INVALID_PARTITIONS,),
            )
        except AccessDenied as error:
            raise StartRefused(
                f"topic {error.name!r} may not be given more partitions; grant Alter on it, or "
                f"let another principal run `eosframework apply APP`"
            ) from error

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics; a topic that does not exist is not an error."""
        self._request_each(
            lambda timeout: self._client.delete_topics(list(names), request_timeout=timeout),
            absent=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
        )

    def delete_records(self, names: Iterable[str]) -> None:
        """Delete the records of topics that brokers do not merely compact; the topics stay.

        Raises:
            ClusterUnreachable: some records may be left; repeat the call.
        """
        partitions = partitions_of(self.partition_counts(names))
        ends = self.high_watermarks(partitions)
        wanted = [KafkaTopicPartition(*partition, offset) for partition, offset in ends.items()]
        if wanted:
            self._request_each(
                lambda timeout: self._client.delete_records(wanted, request_timeout=timeout)
            )

    def delete_group(self, group: str) -> bool:
        """Delete a consumer group; a group that does not exist is not an error.

        Returns:
            False: the group has members, so the broker refused.
        """
        try:
            self._request_each(
                lambda timeout: self._client.delete_consumer_groups(
                    [group], request_timeout=timeout
                ),
                absent=(KafkaError.GROUP_ID_NOT_FOUND,),
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NON_EMPTY_GROUP:
                raise
            return False
        return True

    def describe_group(self, group: str) -> GroupDescription:
        """Return the members of a consumer group, and this principal's operations on it."""
        described = self._request_each(
            lambda timeout: self._client.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=timeout
            ),
            absent=(KafkaError.GROUP_ID_NOT_FOUND,),
        )[group]
        return group_facts(described)

    def no_membership(self, group: str) -> Any:
        """Return the membership of a process that is no member, for a group that has none."""
        return self._reader_of(group, stable=True).consumer_group_metadata()

    def committed(
        self, group: str, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> list[Position]:
        """Return the committed positions of a group, with or without members.

        Args:
            group: its id.
            partitions: the partitions to look up.
            stable: wait for pending transactional offsets.
        """
        wanted = [KafkaTopicPartition(topic, number) for topic, number in partitions]
        if not wanted:
            return []
        deadline = time.monotonic() + self._deadline_seconds
        consumer = self._reader_of(group, stable=stable)
        while True:
            try:
                return [committed_position(entry) for entry in _committed(consumer, wanted)]
            except KafkaException as error:
                reason = error.args[0]
                self._client.poll(0)
                timed_out = reason.code() == KafkaError._TIMED_OUT  # noqa: SLF001
                if not (timed_out or is_transient(reason)) or time.monotonic() > deadline:
                    raise self._explained(error) from error
                if timed_out and not knows_broker(consumer):
                    del self._readers[group, stable]
                    consumer = self._reader_of(group, stable=stable)

    def _reader_of(self, group: str, *, stable: bool) -> Consumer:
        """Return a consumer with the group's id that never joins the group."""
        # The admin client's own request (list_consumer_group_offsets) ends the process with a
        # segmentation fault while the coordinator moves or starts (librdkafka #5040).
        if (group, stable) not in self._readers:
            properties = client_properties(self._settings, Role.CONSUMER)
            isolation = "read_committed" if stable else "read_uncommitted"
            properties |= {"group.id": group, "isolation.level": isolation}
            properties["error_cb"] = self._remember
            self._readers[group, stable] = new_client(Consumer, properties)
        return self._readers[group, stable]

    def commit(self, group: str, positions: Sequence[Position]) -> None:
        """Set the committed positions of a group without members.

        Raises:
            ConfigurationError: the group has members, or a partition does not exist.
        """
        wanted = [
            KafkaTopicPartition(p.topic, p.partition, p.offset or 0, metadata=p.metadata)
            for p in positions
        ]
        request = [ConsumerGroupTopicPartitions(group, wanted)]
        try:
            answer = self._request_each(
                lambda timeout: self._client.alter_consumer_group_offsets(
                    request, request_timeout=timeout
                )
            )[group]
        except KafkaException as error:
            reason = error.args[0]
            raise ConfigurationError(
                f"positions of group {group!r} were not set: {reason.str()}; "
                f"stop its workers and try again"
            ) from error
        for entry in answer.topic_partitions:
            if entry.error and is_transient(entry.error):
                reason = KafkaException(entry.error)
                raise self._explained(reason, about=f"group {group!r}") from reason
            if entry.error:
                raise ConfigurationError(
                    f"position of {entry.topic}[{entry.partition}] of group {group!r} was not "
                    f"set: {entry.error.str()}"
                )

    def log_bounds(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the last stable offset of each partition."""
        first = self._offsets(partitions, OffsetSpec.earliest())
        last = self._offsets(partitions, OffsetSpec.latest())
        return {partition: (first[partition], last[partition]) for partition in partitions}

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition, which includes open transactions."""
        return self._offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def offsets_at(
        self, partitions: Sequence[TopicPartition], moment: int
    ) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record of each partition at or after a time.

        Args:
            partitions: the partitions to look up.
            moment: in milliseconds since the epoch, compared with the records' own timestamps.

        Returns:
            None where every record is older.
        """
        found = self._offsets(partitions, OffsetSpec.for_timestamp(moment))
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def topic_setting(self, names: Iterable[str], setting: str) -> dict[str, str | None]:
        """Return one setting of each topic; None if the topic is missing or cannot be read."""
        found = self._topic_values(sorted(set(names)))
        return {name: (values or {}).get(setting) for name, values in found.items()}

    def _offsets(
        self,
        partitions: Sequence[TopicPartition],
        spec: Any,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        wanted = {KafkaTopicPartition(topic, number): spec for topic, number in partitions}
        answers = self._request_each(
            lambda timeout: self._client.list_offsets(
                wanted, isolation_level=isolation_level, request_timeout=timeout
            )
        )
        if any(answer.offset == OFFSET_INVALID for answer in answers.values()):
            raise self._unreachable()  # librdkafka's answer if the broker left meanwhile
        return {
            TopicPartition(entry.topic, entry.partition): answer.offset
            for entry, answer in answers.items()
        }

    def _described(
        self, names: Iterable[str], instead: Mapping[int, Any] | None = None
    ) -> dict[str, TopicDescription | None]:
        wanted = sorted(set(names))
        if not wanted:
            return {}
        described = self._request_each(
            lambda timeout: self._client.describe_topics(
                TopicCollection(wanted), include_authorized_operations=True, request_timeout=timeout
            ),
            absent=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
            instead=instead,
        )
        there = [name for name, found in described.items() if found not in (None, _DENIED)]
        values = self._topic_values(there)
        return {
            name: None if topic is _DENIED else topic_facts(topic, values.get(name))
            for name, topic in described.items()
        }

    def _topic_values(self, names: Sequence[str]) -> dict[str, Values | None]:
        if not names:
            return {}
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        answers = self._request_each(
            lambda timeout: self._client.describe_configs(resources, request_timeout=timeout),
            absent=(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART),
        )
        return {resource.name: setting_values(entries) for resource, entries in answers.items()}

    def _wait_until_described(self, names: Sequence[str]) -> None:
        """Wait until brokers describe new topics: their metadata follows a moment later."""
        deadline = time.monotonic() + self._deadline_seconds
        while time.monotonic() < deadline:
            if all(facts.exists for facts in self.describe_topics(names).values()):
                return
            time.sleep(0.02)
        raise self._unreachable()


def _committed(consumer: Consumer, wanted: list[KafkaTopicPartition]) -> list[KafkaTopicPartition]:
    answers = consumer.committed(wanted, timeout=_COMMITTED_TURN_SECONDS)
    consumer.poll(0)
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return answers


def _is_fenced(error: KafkaError) -> bool:
    """Return whether no broker takes a new partition now: the controller missed heartbeats."""
    is_few = error.code() == KafkaError.INVALID_REPLICATION_FACTOR
    return is_few and "currently fenced" in (error.str() or "")


def _not_created(name: str, error: KafkaError) -> str:
    advice = classify(error, Call.COMMITTED).fix or (
        "set topics.partitions and topics.replication_factor to what the cluster takes"
    )
    if error.code() == KafkaError.TOPIC_EXCEPTION:
        advice = "give the topic, or the part of the topology it is named after, another name"
    return f"topic {name!r} was not created: {error.str()}; {advice}"
