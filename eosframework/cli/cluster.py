"""What the commands that ask the servers about one application have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eosframework.application.control_topic import Registry
    from eosframework.application.subjects import PlannedSubject
    from eosframework.config import Settings
    from eosframework.kafka.admin.cluster_admin import ClusterAdmin
    from eosframework.postgres.tables.table_schema import TablesPlan
    from eosframework.topology.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class OpenedApplication:
    """A checked topology with its settings and its cluster."""

    graph: Graph
    settings: Settings
    admin: ClusterAdmin
    registry: Registry


def open_application(
    app_name: str,
    config: Path | None,
    assignments: list[str] | None,
    suffix: str | None = None,
) -> OpenedApplication:
    """Load a topology and reach for its cluster.

    Args:
        app_name: what names the topology.
        config: a file with settings.
        assignments: single settings.
        suffix: of the topology beside it; None: itself.

    Raises:
        UserError: the topology or a setting cannot be used.
    """
    from eosframework.application.control_topic import Registry
    from eosframework.config import load_settings
    from eosframework.kafka.admin.cluster_admin import ClusterAdmin
    from eosframework.topology.loader import load_app
    from eosframework.topology.renaming import renamed
    from eosframework.topology.resolve.resolve import resolve

    settings = load_settings(config, assignments)
    loaded = load_app(app_name)
    graph = resolve(loaded if suffix is None else renamed(loaded, suffix))
    admin = ClusterAdmin(settings.kafka)
    registry = Registry(
        graph.application,
        settings.kafka,
        admin,
        replication_factor=settings.topics.replication_factor,
    )
    return OpenedApplication(graph, settings, admin, registry)


def plan_tables_of(opened: OpenedApplication) -> TablesPlan | None:
    """Return what the application's tables need; None: it fills none.

    Raises:
        UserError: the database cannot be used.
    """
    if not opened.graph.persisters:
        return None
    from eosframework.runtime.table_writer import plan_database

    return plan_database(opened.graph, opened.settings)


def plan_schemas_of(opened: OpenedApplication) -> list[PlannedSubject]:
    """Return the schemas that the application writes with, and what the registry has of them.

    Raises:
        UserError: the registry cannot be used.
    """
    if not opened.graph.codecs:
        return []
    from eosframework.application.subjects import plan_subjects

    return plan_subjects(opened.graph.codecs, opened.settings.schema_registry)
