"""`eosframework apply`: create what an application needs and the servers lack."""

from __future__ import annotations

import typer

from eosframework.cli import app
from eosframework.cli.options import (
    AppArgument,
    ConfigOption,
    JsonOption,
    SetOption,
    SuffixOption,
)
from eosframework.errors import StartRefused
from eosframework.process.interrupts import leaves


@app.command()
def apply(
    app_name: AppArgument,
    suffix: SuffixOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create the topics, tables and schemas that are missing.

    These are outputs, dead letters and the registry; sources are somebody else's. Tables get the
    columns of their models. Where a schema does not fit those that its subject has, nothing is
    created. What takes its number of partitions from a source that does not exist is not created.
    Internal topics with too few partitions get more while nothing was ever processed. Nothing is
    dropped, narrowed or changed otherwise.
    """
    from eosframework.application.provision import apply as apply_to
    from eosframework.cli.cluster import open_application, plan_schemas_of, plan_tables_of

    opened = open_application(app_name, config, assignments, suffix)
    tables, schemas = plan_tables_of(opened), plan_schemas_of(opened)
    if problems := [schema.problem for schema in schemas if schema.problem is not None]:
        raise StartRefused("\n".join(problems))
    leaves("what was created stays; run the same command again, and it creates the rest")
    planned, created = apply_to(opened.graph, opened.settings, opened.admin, opened.registry)
    if tables is not None:
        from eosframework.runtime.table_writer import apply_database

        created += apply_database(opened.graph, opened.settings)
    if schemas:
        from eosframework.application.subjects import apply_subjects

        created += apply_subjects(opened.graph.codecs, opened.settings.schema_registry, schemas)
    grown = [
        f"{t.name} has {t.partitions} partitions, had {t.grows_from} and was empty"
        for t in planned.topics
        if t.grows_from is not None
    ]
    if not as_json:
        done = [*(f"created {name}" for name in created), *grown]
        if done or not planned.missing_sources:
            typer.echo("\n".join(done) or "nothing was missing")
    if planned.missing_sources:
        waiting = ", ".join(planned.waiting)
        raise StartRefused(
            f"source topic {', '.join(planned.missing_sources)} does not exist and was not "
            f"created: create it with the number of partitions it needs, or correct its name"
            + (
                f". Not created either, because their number of partitions follows from it: "
                f"{waiting}; run `eosframework apply APP` again then"
                if waiting
                else ""
            )
        )
    if tables is not None and tables.problems:
        raise StartRefused("\n".join(tables.problems))
    if as_json:
        import orjson

        report = {"application": planned.application, "created": created, "grown": planned.growing}
        typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
