"""Topics with an application's entries: compacted, with one partition."""

from __future__ import annotations

from eosframework.errors import StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.admin.metadata import TopicDescription

COMPACT = {"cleanup.policy": "compact"}


def ensure_compacted(
    admin: ClusterAdmin, topic: TopicToCreate, remedy: str
) -> tuple[TopicDescription, bool]:
    """Create a topic of entries if it is missing; return its description, and whether it was.

    Args:
        admin: requests to the cluster.
        topic: as it is created.
        remedy: the next step if a topic of this name would lose or split entries.

    Raises:
        StartRefused: there is such a topic.
    """
    # Described first: a principal without Create may not request an existing topic either.
    found, made = admin.describe_topics([topic.name])[topic.name], False
    if not found.exists:
        # Another process may create it first.
        made = bool(admin.create_topics([topic]))
        found = admin.describe_topics([topic.name])[topic.name]
    policy = (found.values or {}).get("cleanup.policy")
    if policy not in (None, "compact") or found.partitions > 1:
        raise StartRefused(
            f"topic {topic.name!r} has cleanup.policy={policy} and {found.partitions} partitions, "
            f"expected compact and 1: brokers would remove entries that the application needs, or "
            f"lose their order. {remedy}"
        )
    return found, made
