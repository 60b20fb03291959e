"""`eosframework schema`: JSON Schemas for editors."""

from __future__ import annotations

from typing import Annotated

import typer

from eosframework.cli import app


@app.command()
def schema(
    settings: Annotated[
        bool, typer.Option("--settings", help="That of the config file instead.")
    ] = False,
) -> None:
    """Print the JSON Schema of topology files, for editors."""
    import orjson

    from eosframework.topology.json_schema import settings_schema, topology_schema

    content = settings_schema() if settings else topology_schema()
    typer.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())
