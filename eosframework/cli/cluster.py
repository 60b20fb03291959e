"""Helpers of the commands that ask the servers about one application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from eosframework.application.context import ApplicationContext
    from eosframework.application.needed_access import Access
    from eosframework.application.subjects import PlannedSubject
    from eosframework.cli.options import SettingsOptions
    from eosframework.config import Settings
    from eosframework.postgres.database.tables.table_schema import TablesPlan


def open_application(
    app_name: str, options: SettingsOptions, suffix: str | None = None
) -> ApplicationContext:
    """Load a topology and its settings, and create the clients of its cluster.

    Args:
        app_name: names the topology, as on the command line.
        options: the sources of settings.
        suffix: appended to the names of topics and tables, as `backfill run --suffix` does.

    Raises:
        UserError: the topology or a setting cannot be used.
    """
    from eosframework.application.context import connect_to

    return connect_to(app_name, options.load(), suffix)


def application_named(app_name: str) -> str:
    """Return an application's name, given its topology or the name itself.

    Raises:
        UserError: the topology cannot be used.
    """
    if ":" not in app_name and not app_name.endswith((".py", ".yaml", ".yml")):
        return app_name
    from eosframework.application.composition.worker import load

    return load(app_name).application


def plan_tables_of(opened: ApplicationContext) -> TablesPlan | None:
    """Plan the application's tables; None if its topology has no table sink.

    Raises:
        UserError: the database cannot be used.
    """
    if not opened.graph.all_tables:
        return None
    from eosframework.application.composition.table_writer import plan_database

    return plan_database(opened.graph, opened.settings)


def plan_schemas_of(opened: ApplicationContext) -> list[PlannedSubject]:
    """Plan the subjects of the schemas that the application writes with.

    Raises:
        UserError: the schema registry cannot be used.
    """
    if not opened.graph.codecs:
        return []
    from eosframework.application.subjects import plan_subjects

    return plan_subjects(opened.graph.codecs, opened.settings.schema_registry)


def print_access(needed: Sequence[Access], settings: Settings, principal: str | None) -> None:
    """Print the ACLs, or the commands that grant them to a principal."""
    typer.echo("  ACLs needed if the cluster has an authorizer:")
    lines = map(str, needed) if principal is None else acl_commands(needed, settings, principal)
    for line in lines:
        typer.echo(f"    {line}")


def acl_commands(needed: Sequence[Access], settings: Settings, principal: str) -> list[str]:
    """Return the kafka-acls commands that grant the ACLs to a principal.

    Raises:
        ConfigurationError: the principal is not of the form TYPE:NAME.
    """
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        from eosframework.errors import ConfigurationError

        raise ConfigurationError(
            f"--principal {principal!r} is not a principal; expected User:NAME, as in Kafka's ACLs"
        )
    servers = settings.kafka.bootstrap_servers
    return [access.command(servers, principal) for access in needed]
