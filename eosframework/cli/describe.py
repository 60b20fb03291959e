"""`eosframework describe`: what a topology consists of."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, JsonOption


class Format(StrEnum):
    """How the description is written."""

    TEXT = "text"
    MERMAID = "mermaid"


@app.command()
def describe(
    app_name: AppArgument,
    as_json: JsonOption = False,
    format: Annotated[Format, typer.Option(help="text, or a mermaid flowchart.")] = Format.TEXT,
) -> None:
    """Print what a topology consists of.

    Sub-topologies, topics, operators and transactional ids. Asks no broker.
    """
    from eosframework.topology.describe import as_mermaid, as_text
    from eosframework.topology.describe import describe as as_data
    from eosframework.topology.loader import load_app
    from eosframework.topology.resolve import resolve

    graph = resolve(load_app(app_name))
    if as_json:
        import orjson

        typer.echo(orjson.dumps(as_data(graph), option=orjson.OPT_INDENT_2).decode())
    elif format is Format.MERMAID:
        typer.echo(as_mermaid(graph))
    else:
        typer.echo(as_text(graph))
