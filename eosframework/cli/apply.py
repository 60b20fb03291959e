"""`eosframework apply`: create what an application needs and the cluster lacks."""

from __future__ import annotations

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, ConfigOption, JsonOption, SetOption
from eosframework.errors import StartRefused


@app.command()
def apply(
    app_name: AppArgument,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create the topics that are missing.

    These are outputs, dead letters and the registry; sources are somebody else's. What exists is
    not changed.
    """
    from eosframework.cli.cluster import open_application
    from eosframework.kafka.provision import apply as apply_to

    opened = open_application(app_name, config, assignments)
    planned, created = apply_to(opened.graph, opened.settings, opened.admin, opened.registry)
    if not as_json:
        typer.echo("\n".join(f"created {name}" for name in created) or "nothing was missing")
    if planned.missing_sources:
        raise StartRefused(
            f"source topic {', '.join(planned.missing_sources)} does not exist and was not "
            f"created: create it with the number of partitions it needs, or correct its name"
        )
    if as_json:
        import orjson

        report = {"application": planned.application, "created": created}
        typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
