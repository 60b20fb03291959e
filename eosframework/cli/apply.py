"""`eosframework apply`: create the topics, tables and schemas that an application needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli import app
from eosframework.cli.cluster import open_application, plan_schemas_of, plan_tables_of
from eosframework.cli.options import (
    AppArgument,
    JsonOption,
    SettingsOptions,
    SuffixOption,
    with_settings,
)
from eosframework.cli.stdout import print_json
from eosframework.errors import StartRefused
from eosframework.process.interrupts import note_remains

if TYPE_CHECKING:
    from eosframework.application.provision import Provision

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
        from eosframework.runtime.table_writer import apply_database

        created += apply_database(opened.graph, opened.settings)
    if schemas:
        from eosframework.application.subjects import apply_subjects

        created += apply_subjects(opened.graph.codecs, opened.settings.schema_registry, schemas)
    if not as_json:
        _print_changes(planned, created)
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


def _print_changes(planned: Provision, created: Sequence[str]) -> None:
    """Print each thing that was created or got partitions."""
    grown = [
        f"{t.name} was empty and now has {t.partitions} partitions instead of {t.grows_from}"
        for t in planned.topics
        if t.grows_from is not None
    ]
    changes = [*(f"created {name}" for name in created), *grown]
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
