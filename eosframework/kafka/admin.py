"""Questions to the cluster and topics made on it: blocking, each within one deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
    OffsetSpec,  # pyright: ignore[reportPrivateImportUsage]
)

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable, ConfigurationError, StartRefused
from eosframework.kafka.positions import committed_position
from eosframework.kafka.properties import Role, client_properties, new_client
from eosframework.records import Position, TopicPartition

Answer = TypeVar("Answer")
Key = TypeVar("Key")

_UNANSWERED = {
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError.REQUEST_TIMED_OUT,
}
_REFUSED = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError._SSL,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED,
}
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
"""What an ACL is missing on."""

_TAKE_A_MOMENT = {
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
"""What a cluster answers that has just started or created the topic."""

_NOT_YET = _TAKE_A_MOMENT | {
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._WAIT_COORD,  # noqa: SLF001
}
_COMMITTED_TURN_SECONDS = 2.0
"""Ctrl-C is noticed after as long."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the cluster says about a topic. One that does not exist has no partitions."""

    exists: bool
    topic_id: str = ""
    partitions: int = 0
    replication_factor: int = 0
    max_message_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TopicToCreate:
    """A topic that is missing.

    Args:
        replication_factor: None: the cluster's default.
    """

    name: str
    partitions: int
    replication_factor: int | None = None
    config: Mapping[str, str] | None = None


class ClusterAdmin:
    """Asks one cluster. Every method raises ClusterUnreachable if nobody answers in time."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._deadline_seconds = settings.request_timeout_seconds
        self._last_error: KafkaError | None = None
        properties = client_properties(settings, Role.ADMIN)
        properties["error_cb"] = self._remember
        # Any: the stubs leave the futures' results open.
        self._client: Any = new_client(AdminClient, properties)
        self._readers: dict[tuple[str, bool], Consumer] = {}

    def cluster_id(self) -> str:
        """Return the id that the cluster got when it was formatted."""
        return str(self._ask(self._client.describe_cluster).cluster_id)

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        """Return the facts of each topic, also of those that do not exist."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        described = self._ask_each(
            lambda timeout: self._client.describe_topics(
                TopicCollection(wanted), request_timeout=timeout
            ),
            absent=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
        )
        existing = [name for name, topic in described.items() if topic is not None]
        limits = self._topic_configs(existing, "max.message.bytes")
        return {
            name: _facts(topic, int(limits.get(name) or 0)) for name, topic in described.items()
        }

    def broker_settings(self, name: str) -> dict[int, str | None]:
        """Return a setting's value at each broker; None where it cannot be read."""
        brokers = self._ask(self._client.describe_cluster).nodes
        resources = [
            ConfigResource(ConfigResource.Type.BROKER, str(broker.id)) for broker in brokers
        ]
        answers = self._ask_each(
            # A call takes one broker at most (rd_kafka_DescribeConfigs); all wait at the same time.
            lambda timeout: {
                resource: answer
                for one in resources
                for resource, answer in self._client.describe_configs(
                    [one], request_timeout=timeout
                ).items()
            },
            absent=(KafkaError.CLUSTER_AUTHORIZATION_FAILED,),
        )
        return {
            int(resource.name): entries[name].value if entries and name in entries else None
            for resource, entries in answers.items()
        }

    def broker_setting(self, name: str) -> str | None:
        """Return a setting that all brokers share; None where one differs or cannot be read."""
        values = set(self.broker_settings(name).values())
        return values.pop() if len(values) == 1 else None

    def create_topics(self, topics: Sequence[TopicToCreate]) -> list[str]:
        """Create those that do not exist and return their names.

        Raises:
            ConfigurationError: the cluster does not take one of them; says why.
        """
        if not topics:
            return []
        wanted = [
            NewTopic(
                topic.name,
                topic.partitions,
                -1 if topic.replication_factor is None else topic.replication_factor,
                config=dict(topic.config or {}),
            )
            for topic in topics
        ]
        created = self._futures(
            lambda timeout: self._client.create_topics(wanted, request_timeout=timeout)
        )
        names: list[str] = []
        for name, future in created.items():
            try:
                self._result(future)
                names.append(name)
            except KafkaException as error:
                if error.args[0].code() in _UNANSWERED:
                    raise self._explained(error) from error
                if error.args[0].code() in _DENIED:
                    raise StartRefused(
                        f"topic {name!r} may not be created; grant Create on it, or have it "
                        f"created by somebody who may (`eosframework plan APP` tells how)"
                    ) from error
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise ConfigurationError(_not_created(name, error.args[0])) from error
        self._wait_until_described(names)
        return names

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics; one that does not exist is no error."""
        self._ask_each(
            lambda timeout: self._client.delete_topics(list(names), request_timeout=timeout),
            absent=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
        )

    def group_client_ids(self, group: str) -> list[str]:
        """Return the client ids of the live members of a consumer group."""
        described = self._ask_each(
            lambda timeout: self._client.describe_consumer_groups([group], request_timeout=timeout),
            absent=(KafkaError.GROUP_ID_NOT_FOUND,),
        )[group]
        return [] if described is None else [member.client_id for member in described.members]

    def committed(
        self, group: str, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> list[Position]:
        """Return the committed positions of a group, whether it has members or not.

        `stable` waits for transactions in doubt.
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
                code = error.args[0].code()
                self._client.poll(0)
                if code not in _NOT_YET or time.monotonic() > deadline:
                    raise self._explained(error) from error

    def _reader_of(self, group: str, *, stable: bool) -> Consumer:
        """Return a consumer that is no member of the group and asks in its name.

        The admin client's own question (list_consumer_group_offsets) ends the process with a
        segmentation fault when the coordinator is just moving or starting (librdkafka #5040).
        """
        if (group, stable) not in self._readers:
            properties = client_properties(self._settings, Role.CONSUMER)
            isolation = "read_committed" if stable else "read_uncommitted"
            properties |= {"group.id": group, "isolation.level": isolation}
            properties["error_cb"] = self._remember
            self._readers[group, stable] = new_client(Consumer, properties)
        return self._readers[group, stable]

    def commit(self, group: str, positions: Sequence[Position]) -> None:
        """Set the committed positions of a group that has no members.

        Raises:
            ConfigurationError: the group has members, or a partition does not exist.
        """
        wanted = [
            KafkaTopicPartition(p.topic, p.partition, p.offset or 0, metadata=p.metadata)
            for p in positions
        ]
        request = [ConsumerGroupTopicPartitions(group, wanted)]
        try:
            answer = self._ask_each(
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
            if entry.error:
                raise ConfigurationError(
                    f"position of {entry.topic}[{entry.partition}] of group {group!r} was not "
                    f"set: {entry.error.str()}"
                )

    def log_bounds(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the last stable one of each partition."""
        first = self._offsets(partitions, OffsetSpec.earliest())
        last = self._offsets(partitions, OffsetSpec.latest())
        return {partition: (first[partition], last[partition]) for partition in partitions}

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset behind the last record, of open transactions too, of each partition."""
        return self._offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def topic_setting(self, names: Iterable[str], setting: str) -> dict[str, str | None]:
        """Return a setting of each topic; None where it does not exist or cannot be read."""
        return self._topic_configs(sorted(set(names)), setting)

    def _offsets(
        self,
        partitions: Sequence[TopicPartition],
        spec: Any,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        wanted = {KafkaTopicPartition(topic, number): spec for topic, number in partitions}
        answers = self._ask_each(
            lambda timeout: self._client.list_offsets(
                wanted, isolation_level=isolation_level, request_timeout=timeout
            )
        )
        return {
            TopicPartition(entry.topic, entry.partition): answer.offset
            for entry, answer in answers.items()
        }

    def _topic_configs(self, names: Sequence[str], setting: str) -> dict[str, str | None]:
        if not names:
            return {}
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        answers = self._ask_each(
            lambda timeout: self._client.describe_configs(resources, request_timeout=timeout),
            absent=(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART),
        )
        return {
            resource.name: entries[setting].value if entries and setting in entries else None
            for resource, entries in answers.items()
        }

    def _wait_until_described(self, names: Sequence[str]) -> None:
        """Return once brokers describe new topics: they learn of them a moment later."""
        deadline = time.monotonic() + self._deadline_seconds
        while time.monotonic() < deadline:
            if all(facts.exists for facts in self.describe_topics(names).values()):
                return
            time.sleep(0.02)
        raise self._unreachable()

    def _ask(self, call: Callable[..., Future[Answer]]) -> Answer:
        """Return the one answer of a call."""
        future = self._futures(lambda timeout: {0: call(request_timeout=timeout)})[0]
        try:
            return self._result(future)
        except KafkaException as error:
            raise self._explained(error) from error

    def _ask_each(
        self,
        call: Callable[[float], Mapping[Key, Future[Any]]],
        absent: Sequence[int] = (),
    ) -> dict[Key, Any]:
        """Return the answer for each key; None where it is one of the codes in `absent`."""
        deadline = time.monotonic() + self._deadline_seconds
        while True:
            answers: dict[Key, Any] = {}
            key: Key | None = None
            try:
                for key, future in self._futures(call).items():
                    try:
                        answers[key] = self._result(future)
                    except KafkaException as error:
                        if error.args[0].code() not in absent:
                            raise
                        answers[key] = None
                return answers
            except KafkaException as error:
                again = error.args[0].code() in _TAKE_A_MOMENT
                if not again or time.monotonic() > deadline:
                    raise self._explained(error, about=key) from error
                time.sleep(0.1)

    def _futures(
        self, call: Callable[[float], Mapping[Key, Future[Answer]]]
    ) -> Mapping[Key, Future[Answer]]:
        return call(self._deadline_seconds)

    def _result(self, future: Future[Answer]) -> Answer:
        """Wait for an answer, serving librdkafka's log and error callbacks meanwhile."""
        deadline = time.monotonic() + self._deadline_seconds + 1
        while not future.done():
            if time.monotonic() > deadline:
                raise self._unreachable()
            wait([future], timeout=0.05)
            self._client.poll(0)
        return future.result()

    def _remember(self, error: KafkaError) -> None:
        self._last_error = error

    def _explained(self, error: KafkaException, about: object = None) -> Exception:
        """Return what a failed question about a topic or a group means for the user."""
        if kind := _DENIED.get(error.args[0].code()):
            return _denied(kind, about)
        codes = {error.args[0].code()}
        if self._last_error is not None:
            codes.add(self._last_error.code())
        if codes & _UNANSWERED:
            return self._unreachable()
        return error

    def _unreachable(self) -> ClusterUnreachable:
        self._client.poll(0)
        last = self._last_error
        reason = f" (last error: {last.str()})" if last else ""
        servers = self._settings.bootstrap_servers
        if last and (last.code() in _REFUSED or "SSL" in (last.str() or "")):
            return ClusterUnreachable(
                f"the brokers at {servers} refused the connection{reason}; correct the "
                f"security.protocol, sasl and ssl entries of kafka.properties"
            )
        return ClusterUnreachable(
            f"no broker at {servers} answered within {self._deadline_seconds:g} s{reason}; "
            f"start one (`eosframework broker up`), or correct kafka.bootstrap_servers"
        )


def _committed(consumer: Consumer, wanted: list[KafkaTopicPartition]) -> list[KafkaTopicPartition]:
    answers = consumer.committed(wanted, timeout=_COMMITTED_TURN_SECONDS)
    consumer.poll(0)
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return answers


def _facts(topic: Any, max_message_bytes: int) -> TopicFacts:
    if topic is None:
        return TopicFacts(exists=False)
    return TopicFacts(
        exists=True,
        topic_id=str(topic.topic_id),
        partitions=len(topic.partitions),
        replication_factor=min(len(partition.replicas) for partition in topic.partitions),
        max_message_bytes=max_message_bytes,
    )


def _denied(kind: str, about: object) -> StartRefused:
    if kind == "cluster":
        what, needed = "the cluster", "Describe and DescribeConfigs on the cluster"
    else:
        name = getattr(about, "topic", None) or getattr(about, "name", None) or about
        what = f"{kind} {name!r}"
        needed = f"Describe on {what}"
    return StartRefused(
        f"{what} may not be described by this principal; grant {needed} "
        f"(`eosframework plan APP`, run by somebody who may, lists every ACL a worker needs)"
    )


def _not_created(name: str, error: KafkaError) -> str:
    return (
        f"topic {name!r} was not created: {error.str()}; "
        f"set topics.partitions and topics.replication_factor to what the cluster takes"
    )
