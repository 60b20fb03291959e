"""The context of an application: its topology, its settings and the clients of its cluster."""

from __future__ import annotations

from dataclasses import dataclass

from eosframework.application.control_topic import ControlTopic
from eosframework.application.matched_topics import with_matching_topics
from eosframework.config import Settings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.topology.graph.graph import Graph
from eosframework.topology.lint.lint_pass import with_proposed_names
from eosframework.topology.loader import load_app
from eosframework.topology.renaming import renamed
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.loaded import Finding, LoadedApp


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
    """Return the context of an application.

    Nothing is requested from the cluster, unless a source has a pattern: its topics are looked up.

    Raises:
        ClusterUnreachable: no broker answered in time.
        TopologyError: two sources, or an output and a source by pattern, have a topic in common.
    """
    admin = ClusterAdmin(settings.kafka)
    graph = with_matching_topics(graph, admin)
    factor = settings.topics.replication_factor
    topic = ControlTopic(graph.application, settings.kafka, admin, replication_factor=factor)
    return ApplicationContext(graph, settings, admin, topic)


def connect_to(app_name: str, settings: Settings, suffix: str | None = None) -> ApplicationContext:
    """Load a topology and return the context of its application, as `connect` does.

    Args:
        app_name: names the topology, as on the command line.
        settings: of its workers.
        suffix: appended to the names of topics and tables, as `backfill run --suffix` does.

    Raises:
        TopologyError: the topology cannot be loaded, or is inconsistent.
    """
    return connect(resolve(_loaded(app_name, suffix)), settings)


def connect_with_proposed_names(
    app_name: str, settings: Settings, suffix: str | None = None
) -> tuple[ApplicationContext, list[Finding]]:
    """Do as `connect_to` does, with the names that `lint` proposes where names are ambiguous.

    Returns:
        The context, and the findings about ambiguous names, for which no worker would start.

    Raises:
        TopologyError: the topology cannot be loaded, or has other errors.
    """
    named, findings = with_proposed_names(_loaded(app_name, suffix))
    return connect(resolve(named), settings), findings


def _loaded(app_name: str, suffix: str | None) -> LoadedApp:
    loaded = load_app(app_name)
    return loaded if suffix is None else renamed(loaded, suffix)
