"""`eosframework plan`: what an application needs on the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from eosframework.cli import app
from eosframework.cli.options import (
    AppArgument,
    ConfigOption,
    JsonOption,
    SetOption,
    SuffixOption,
)

if TYPE_CHECKING:
    from eosframework.database.tables import TablesPlan


@app.command()
def plan(
    app_name: AppArgument,
    suffix: SuffixOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what an application needs on the cluster and in the database.

    Topics to create, transactional ids, consumer group and ACLs; tables and their columns. Changes
    nothing.
    """
    from eosframework.cli.cluster import open_application, plan_tables_of
    from eosframework.kafka.provision import plan as plan_of
    from eosframework.leasing import id_source

    opened = open_application(app_name, config, assignments, suffix)
    source = id_source(opened.settings)
    planned = plan_of(opened.graph, opened.settings, opened.admin, opened.registry, source)
    tables = plan_tables_of(opened)
    if as_json:
        import orjson

        report = {**planned.as_data(), "database": None if tables is None else tables.as_data()}
        typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
        return
    typer.echo(f"application {planned.application} on cluster {planned.cluster_id}")
    for topic in planned.topics:
        state = "exists" if topic.exists else "to create" if topic.create else "MISSING"
        partitions = "unknown" if topic.partitions is None else topic.partitions
        replicas = topic.replication_factor or "the cluster's default"
        typer.echo(
            f"  topic {topic.name} ({topic.role}): {state}, partitions {partitions}, "
            f"replicas {replicas}"
        )
    ids = planned.transactional_ids
    typer.echo(f"  {len(ids)} producers{f': {ids[0]} to {ids[-1]}' if ids else ''}")
    typer.echo(f"  consumer group {planned.consumer_group}")
    typer.echo("  ACLs needed where the cluster has an authorizer:")
    for acl in planned.acls:
        typer.echo(f"    {acl}")
    if tables is not None:
        _print_tables(tables)
    for note in planned.notes:
        typer.echo(f"  note: {note}")
    if planned.refused:
        typer.echo(f"  a worker would not start: {planned.refused}")


def _print_tables(planned: TablesPlan) -> None:
    typer.echo(f"  database {planned.database}")
    for name in planned.revisions:
        typer.echo(f"    schema eosframework: revision {name} to create")
    for table in planned.tables:
        state = "exists" if table.exists else "to create" if table.create else "MISSING"
        lacks = f", columns to {'add' if table.exists else 'create'}: {table.described}"
        typer.echo(f"    table {table.name}: {state}{lacks if table.missing else ''}")
    for problem in planned.problems:
        typer.echo(f"  a worker would not start: {problem}")
