"""The owners of tasks, of a worker that has no group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eosframework.application.monitoring.owners import Owners
from eosframework.kafka.admin.metadata import GroupDescription, GroupMember
from eosframework.records import TopicPartition


def sole_owner(instance: str, sources: Mapping[str, Sequence[str]], partitions: int) -> Owners:
    """Return owners by which one worker has all tasks."""
    topics = [topic for each in sources.values() for topic in each]
    given = tuple(TopicPartition(t, n) for t in topics for n in range(partitions))
    group = GroupDescription(
        members=(GroupMember(instance, "127.0.0.1", given, "member"),), is_stable=True
    )
    owners = Owners(instance, sources, lambda: group, dict, lambda job: job())
    owners.sit(lambda: "member")
    return owners
