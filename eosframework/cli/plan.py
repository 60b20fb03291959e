"""`eosframework plan`: what an application needs on the cluster."""

from __future__ import annotations

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, ConfigOption, JsonOption, SetOption


@app.command()
def plan(
    app_name: AppArgument,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what an application needs on the cluster.

    Topics to create, transactional ids, consumer group and ACLs. Changes nothing.
    """
    from eosframework.cli.cluster import open_application
    from eosframework.kafka.provision import plan as plan_of

    opened = open_application(app_name, config, assignments)
    planned = plan_of(opened.graph, opened.settings, opened.admin, opened.registry)
    if as_json:
        import orjson

        typer.echo(orjson.dumps(planned.as_data(), option=orjson.OPT_INDENT_2).decode())
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
    for note in planned.notes:
        typer.echo(f"  note: {note}")
    if planned.refused:
        typer.echo(f"  a worker would not start: {planned.refused}")
