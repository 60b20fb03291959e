"""The requests of a worker's watch over its topics and its group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from eosframework.application.context import ApplicationContext
from eosframework.application.group_members import strangers
from eosframework.application.topic_identity import resuming
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import TopicIdentity
from eosframework.records import Position, partitions_of


class WatchedTopics:
    """The `Cluster` of a process without a group.

    Args:
        admin: may be used on any thread.
    """

    def __init__(self, admin: ClusterAdmin) -> None:
        self._admin = admin

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicIdentity]:
        """Return the identity of each topic that exists."""
        return self._admin.identities(names)

    def committed(self) -> Sequence[Position]:
        """Return nothing."""
        return ()

    def strangers(self) -> Sequence[str]:
        """Return nothing."""
        return ()

    def resuming(self, topic: str, found: TopicIdentity | None, untouched: Sequence[int]) -> str:
        """Return nothing: no topic is read."""
        return ""

    def recorded(self, topic: str) -> str | None:
        """Return None: no topic is recorded."""
        return None


class WatchedCluster:
    """The `Cluster` of a worker of transforms.

    Args:
        context: of the application; its admin client may be used on any thread.
    """

    command = "eosframework positions set APP"

    def __init__(self, context: ApplicationContext) -> None:
        self.context = context
        self._sources = context.graph.source_topics
        self._counts: dict[str, int] = {}

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicIdentity]:
        """Return the identity of each topic that exists."""
        found = self.context.admin.identities(names)
        self._counts = {t: found[t].partitions for t in self._sources if t in found}
        return found

    def positions(self) -> Sequence[Position]:
        """Return the positions at which the sources are read next."""
        return self.committed()

    def committed(self) -> Sequence[Position]:
        """Return the committed positions of the application, without waiting for transactions."""
        application = self.context.graph.application
        partitions = partitions_of(self._counts)
        return self.context.admin.committed(application, partitions, stable=False)

    def strangers(self) -> Sequence[str]:
        """Return the members of the group that are no workers."""
        return strangers(self.context.admin.describe_group(self.context.graph.application))

    def resuming(self, topic: str, found: TopicIdentity | None, untouched: Sequence[int]) -> str:
        """Return where to resume in a source that was created again, and the command for it."""
        ends: dict[int, int] = {}
        if found is not None:
            partitions = partitions_of({topic: found.partitions})
            ends = {
                p.partition: end
                for p, end in self.context.admin.high_watermarks(partitions).items()
            }
        positions = self.positions()
        return resuming(topic, found, positions, ends, untouched=untouched, command=self.command)

    def recorded(self, topic: str) -> str | None:
        """Return the id that the control topic has for a source, a changelog or an output."""
        control = self.context.control_topic.refresh()
        source = control.topics.get(topic)
        return control.written.get(topic) if source is None else source.topic_id
