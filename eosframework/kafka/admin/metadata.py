"""Descriptions of topics and groups, built from admin responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupState

from eosframework.records import TopicPartition

Values = Mapping[str, str | None]
"""Settings of a broker or a topic by name; None stands for a secret value."""


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """The identity of a topic: its id is another one if it is deleted and created again."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The brokers that host a partition, by id.

    Args:
        leader: None: the partition has no leader, so it can be neither read nor written.
        in_sync: the replicas that have every record.
    """

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """Description of a topic; a topic that does not exist has no partitions.

    Args:
        max_message_bytes: 0: the setting cannot be read.
        values: the topic's settings, including those inherited from brokers; None: they cannot be
            read.
        allowed: operations that this principal may perform on the topic; None: brokers do not
            report them.
    """

    exists: bool
    topic_id: str = ""
    partitions: int = 0
    replication_factor: int = 0
    max_message_bytes: int = 0
    values: Values | None = None
    allowed: frozenset[str] | None = None
    placements: tuple[Placement, ...] = ()

    @property
    def identity(self) -> TopicIdentity:
        """The topic's identity, if it exists."""
        return TopicIdentity(self.topic_id, self.partitions)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group.

    Args:
        name: its `group.instance.id`, else its client id.
        host: its address, as the coordinator sees it.
        partitions: the assigned partitions; while the group rebalances, those before.
        member_id: its id, which the coordinator chose.
    """

    name: str
    host: str
    partitions: tuple[TopicPartition, ...]
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Description of a consumer group; a group that does not exist has no members.

    Args:
        allowed: operations that this principal may perform on the group; None: brokers do not
            report them.
        instances: the `group.instance.id` of each member; None: a dynamic member.
        members: each with its assignment.
        is_stable: no rebalance is under way.
    """

    client_ids: tuple[str, ...] = ()
    allowed: frozenset[str] | None = None
    instances: tuple[str | None, ...] = ()
    members: tuple[GroupMember, ...] = ()
    is_stable: bool = False


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """The record sizes that a set of output topics accepts, in bytes.

    Args:
        smallest: the smallest max.message.bytes of the topics; a batch has to fit it. None: no
            topic is known.
        largest: the largest one; a record may have that size. None: no topic is known.
        are_all: no other topic is written to, so these limits are complete.
    """

    smallest: int | None = None
    largest: int | None = None
    are_all: bool = False


def size_limits(topics: Iterable[TopicDescription], *, are_all: bool = True) -> SizeLimits:
    """Return the limits of topics that are written to.

    Args:
        topics: as the cluster describes them.
        are_all: no other topic is written to.
    """
    found = [topic.max_message_bytes for topic in topics]
    known = [limit for limit in found if limit]
    return SizeLimits(
        smallest=min(known, default=None),
        largest=max(known, default=None),
        are_all=are_all and bool(known) and len(known) == len(found),
    )


def topic_facts(topic: Any, values: Values | None) -> TopicDescription:
    """Return a topic's description from a response; None: the topic does not exist."""
    if topic is None:
        return TopicDescription(exists=False)
    return TopicDescription(
        exists=True,
        topic_id=str(topic.topic_id),
        partitions=len(topic.partitions),
        replication_factor=min(len(partition.replicas) for partition in topic.partitions),
        max_message_bytes=int((values or {}).get("max.message.bytes") or 0),
        values=values,
        allowed=operation_names(topic.authorized_operations),
        placements=tuple(
            Placement(
                partition=partition.id,
                leader=_broker(partition.leader),
                replicas=tuple(node.id for node in partition.replicas),
                in_sync=tuple(node.id for node in partition.isr),
            )
            for partition in topic.partitions
        ),
    )


def group_facts(described: Any) -> GroupDescription:
    """Return a group's description from a response; None: the group does not exist."""
    if described is None:
        return GroupDescription()
    return GroupDescription(
        client_ids=tuple(member.client_id for member in described.members),
        allowed=operation_names(described.authorized_operations),
        instances=tuple(member.group_instance_id or None for member in described.members),
        members=tuple(map(_member, described.members)),
        is_stable=described.state is ConsumerGroupState.STABLE,
    )


def setting_values(entries: Mapping[str, Any] | None) -> Values | None:
    """Return settings without their origins; None: they cannot be read."""
    return None if entries is None else {name: entry.value for name, entry in entries.items()}


def operation_names(answered: Sequence[Any] | None) -> frozenset[str] | None:
    """Return operations as Kafka's tools write them, for example DescribeConfigs."""
    if answered is None:
        return None
    return frozenset("".join(map(str.capitalize, o.name.split("_"))) for o in answered)


def _member(member: Any) -> GroupMember:
    given = member.assignment.topic_partitions if member.assignment else ()
    return GroupMember(
        member.group_instance_id or member.client_id,
        member.host.removeprefix("/"),
        tuple(sorted(TopicPartition(entry.topic, entry.partition) for entry in given)),
        member.member_id,
    )


def _broker(node: Any) -> int | None:
    return None if node is None or node.id < 0 else node.id
