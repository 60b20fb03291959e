"""The context of an application: its topology, its settings and the clients of its cluster."""

from __future__ import annotations

from dataclasses import dataclass

from eosframework.application.control_topic import ControlTopic
from eosframework.config import Settings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import load_app
from eosframework.topology.renaming import renamed
from eosframework.topology.resolve.resolve import resolve


@dataclass(frozen=True, slots=True)
class ApplicationContext:
    """An application on a cluster.

    Args:
        graph: its topology.
        settings: of its workers.
        admin: admin client of the cluster.
        control_topic: of the application.
    """

    graph: Graph
    settings: Settings
    admin: ClusterAdmin
    control_topic: ControlTopic


def connect(graph: Graph, settings: Settings) -> ApplicationContext:
    """Return the context of an application; nothing is requested from the cluster yet."""
    admin = ClusterAdmin(settings.kafka)
    factor = settings.topics.replication_factor
    topic = ControlTopic(graph.application, settings.kafka, admin, replication_factor=factor)
    return ApplicationContext(graph, settings, admin, topic)


def connect_to(app_name: str, settings: Settings, suffix: str | None = None) -> ApplicationContext:
    """Load a topology and return the context of its application; nothing is requested yet.

    Args:
        app_name: names the topology, as on the command line.
        settings: of its workers.
        suffix: appended to the names of topics and tables, as `backfill run --suffix` does.

    Raises:
        TopologyError: the topology cannot be loaded, or is inconsistent.
    """
    loaded = load_app(app_name)
    return connect(resolve(loaded if suffix is None else renamed(loaded, suffix)), settings)
