"""Topics with an application's entries: compacted, with one partition."""

from __future__ import annotations

from eosframework.application.internal_topics import refuse_unfit_settings
from eosframework.application.topic_settings import TopicRole
from eosframework.errors import StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.admin.metadata import TopicDescription


def ensure_compacted(
    admin: ClusterAdmin, topic: TopicToCreate, role: TopicRole, remedy: str
) -> tuple[TopicDescription, bool]:
    """Create a topic of entries if it is missing; return its description, and whether it was.

    Args:
        admin: requests to the cluster.
        topic: as it is created.
        role: of the topic.
        remedy: the next step if a topic of this name has several partitions.

    Raises:
        StartRefused: there is such a topic.
    """
    # Described first: a principal without Create may not request an existing topic either.
    found, made = admin.describe_topics([topic.name])[topic.name], False
    if not found.exists:
        # Another process may create it first.
        made = bool(admin.create_topics([topic]))
        found = admin.describe_topics([topic.name])[topic.name]
    refuse_unfit_entries(topic.name, role, found, remedy)
    return found, made


def refuse_unfit_entries(name: str, role: TopicRole, found: TopicDescription, remedy: str) -> None:
    """Refuse a topic that would lose or split entries.

    Raises:
        StartRefused: names the topic, the found and the expected value.
    """
    refuse_unfit_settings(name, role, found)
    if found.partitions > 1:
        raise StartRefused(
            f"{role} topic {name!r} has {found.partitions} partitions, expected 1: entries would "
            f"lose their order. {remedy}"
        )
