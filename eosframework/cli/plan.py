"""`eosframework plan` and `apply`: what an application needs on a cluster, shown or created."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli import app
from eosframework.cli.cluster import (
    acl_commands,
    open_application,
    plan_schemas_of,
    plan_tables_of,
    print_access,
)
from eosframework.cli.options import (
    AclsOption,
    AppArgument,
    JsonOption,
    PrincipalOption,
    SettingsOptions,
    SuffixOption,
    with_settings,
)
from eosframework.cli.stdout import print_json
from eosframework.errors import StartRefused
from eosframework.process.interrupts import note_remains

if TYPE_CHECKING:
    from eosframework.application.provision import Provision
    from eosframework.application.subjects import PlannedSubject
    from eosframework.postgres.database.tables.table_schema import TablesPlan
    from eosframework.topology.evolution import Change

AcceptOption = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="TOPIC",
        help="A changelog or an output that was deleted, or created again: create it if it is "
        "missing, and continue with it. The store of such a changelog starts empty. Also the "
        "changelog of a store that the topology lacks: its state is dropped.",
    ),
]


@app.command()
@with_settings
def apply(
    options: SettingsOptions,
    app_name: AppArgument,
    suffix: SuffixOption = None,
    accept: AcceptOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create the topics, tables and schemas that are missing.

    Creates sink topics, dead-letter topics, internal topics and the control topic; source topics
    must exist. A topic whose number of partitions follows from a missing source is not created.
    Tables get the columns of their models. If a schema is incompatible with its subject, nothing
    is created. Internal topics with too few partitions get more as long as the application has
    processed nothing. Nothing else is changed or dropped. Renamed functions of steps with a store
    are recorded, so that workers start with them. If a changelog or an output is not the
    one that the application wrote, nothing is created until it is accepted.
    """
    from eosframework.application.provision import apply as apply_to

    opened = open_application(app_name, options, suffix)
    tables, schemas = plan_tables_of(opened), plan_schemas_of(opened)
    if problems := [schema.problem for schema in schemas if schema.problem is not None]:
        raise StartRefused("\n".join(problems))
    note_remains("created topics and tables stay; run the same command again to create the rest")
    planned, created = apply_to(opened, accept or ())
    if tables is not None:
        from eosframework.application.composition.table_writer import apply_database

        created += apply_database(opened.graph, opened.settings)
    if schemas:
        from eosframework.application.subjects import apply_subjects

        created += apply_subjects(opened.graph.codecs, opened.settings.schema_registry, schemas)
    if not as_json:
        _print_applied(planned, created)
    for warning in planned.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if planned.missing_sources:
        raise StartRefused(_explain_missing_sources(planned))
    if tables is not None and tables.problems:
        raise StartRefused("\n".join(tables.problems))
    if as_json:
        report = {"application": planned.application, "created": created, "grown": planned.growing}
        report["warnings"] = list(planned.warnings)
        print_json(report)


def _print_applied(planned: Provision, created: Sequence[str]) -> None:
    """Print each thing that was created, got partitions or was recorded."""
    from eosframework.topology.evolution import Verdict

    grown = [
        f"{t.name} was empty and now has {t.partitions} partitions instead of {t.grows_from}"
        for t in planned.topics
        if t.grows_from is not None
    ]
    meant = [
        f"recorded for {change.subject}: {change.found}"
        for change in planned.changes
        if change.verdict is Verdict.CONFIRM
    ]
    changes = [*(f"created {name}" for name in created), *grown, *meant]
    if changes or not planned.missing_sources:
        typer.echo("\n".join(changes) or "nothing was missing")


def _explain_missing_sources(planned: Provision) -> str:
    problem = (
        f"source topic {', '.join(planned.missing_sources)} does not exist and was not "
        f"created: create it with the number of partitions it needs, or correct its name"
    )
    if not planned.waiting:
        return problem
    return (
        f"{problem}. Not created either, because their number of partitions follows from it: "
        f"{', '.join(planned.waiting)}; run `eosframework apply APP` again then"
    )


@app.command(epilog="Example: eosframework plan topology.yaml --principal User:orders")
@with_settings
def plan(
    options: SettingsOptions,
    app_name: AppArgument,
    suffix: SuffixOption = None,
    acls: AclsOption = False,
    principal: PrincipalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print the topics, ids and tables of an application, and with --acls its ACLs.

    Also prints the schemas of its topics, and the changes of the topology since the last start of a
    worker with the steps that they need. Changes nothing. Exits with 1 if a worker would not start.
    """
    from eosframework.application.composition.ids import id_source
    from eosframework.application.context import connect_with_proposed_names
    from eosframework.application.provision import plan as plan_of

    opened, unnamed = connect_with_proposed_names(app_name, options.load(), suffix)
    source = id_source(opened.settings)
    planned = plan_of(opened, source)
    tables, schemas = plan_tables_of(opened), plan_schemas_of(opened)
    problems = [
        *map(str, unnamed),
        *([planned.refused] if planned.refused else ()),
        *(tables.problems if tables is not None else ()),
        *(schema.problem for schema in schemas if schema.problem is not None),
    ]
    if as_json:
        report = {**planned.as_data(), "database": None if tables is None else tables.as_data()}
        report["ambiguous_names"] = [finding.as_dict() for finding in unnamed]
        report["schemas"] = [schema.as_data() for schema in schemas]
        if principal is not None:
            report["acl_commands"] = acl_commands(planned.access, opened.settings, principal)
        print_json(report)
        return 1 if problems else 0
    typer.echo(f"application {planned.application} on cluster {planned.cluster_id}")
    _print_topics(planned)
    ids = planned.transactional_ids
    if planned.is_one_each:
        typer.echo(f"  one producer for each worker: {ids[0]}")
    else:
        typer.echo(f"  {len(ids)} producers{f': {ids[0]} to {ids[-1]}' if ids else ''}")
    typer.echo(f"  consumer group {planned.consumer_group}")
    if acls or principal is not None:
        print_access(planned.access, opened.settings, principal)
        if planned.access_to_apply:
            typer.echo("  ACLs that `apply` needs in addition:")
        for access in planned.access_to_apply:
            typer.echo(f"    {access}")
    else:
        count = len(planned.access) + len(planned.access_to_apply)
        typer.echo(f"  {count} ACLs if the cluster has an authorizer; --acls prints them")
    if tables is not None:
        _print_tables(tables)
    _print_schemas(schemas)
    _print_changes(planned.changes)
    for job in planned.jobs:
        typer.echo(f"  backfill job {job.name}: {job}")
    for note in planned.notes:
        typer.echo(f"  note: {note}")
    for warning in planned.warnings:
        typer.echo(f"  warning: {warning}")
    for problem in problems:
        typer.echo(f"  a worker would not start: {problem}")
    return 1 if problems else 0


def _print_topics(planned: Provision) -> None:
    for topic in planned.topics:
        state = "exists" if topic.exists else "to create" if topic.create else "MISSING"
        if topic.name in planned.waiting:
            state = "to create once its source exists"
        if topic.grows_from is not None:
            state = f"exists and is empty, to grow from {topic.grows_from}"
        partitions = "unknown" if topic.partitions is None else topic.partitions
        replicas = topic.replication_factor or "the cluster's default"
        typer.echo(
            f"  topic {topic.name} ({topic.role}): {state}, partitions {partitions}, "
            f"replicas {replicas}"
            + "".join(f", {name}={value}" for name, value in (topic.settings or {}).items())
        )


def _print_tables(planned: TablesPlan) -> None:
    typer.echo(f"  database {planned.database}")
    for name in planned.revisions:
        typer.echo(f"    schema eosframework: revision {name} to create")
    for table in planned.tables:
        state = "exists" if table.exists else "to create" if table.create else "MISSING"
        lacks = f", columns to {'add' if table.exists else 'create'}: {table.described}"
        typer.echo(f"    table {table.name}: {state}{lacks if table.missing else ''}")


def _print_schemas(schemas: Sequence[PlannedSubject]) -> None:
    for schema in schemas:
        typer.echo(f"  schema of subject {schema.subject}: {schema.state}")


def _print_changes(changes: Sequence[Change]) -> None:
    if changes:
        typer.echo("  changes of the topology since the last start of a worker:")
    for change in changes:
        typer.echo(f"    {change.verdict}: {change.subject}: {change.found}")
        typer.echo(f"      {change.why}: {change.next}")
