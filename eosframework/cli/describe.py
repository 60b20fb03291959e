"""`eosframework describe`: what a topology consists of."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, ConfigOption, JsonOption, SetOption


class Format(StrEnum):
    """How the description is written."""

    TEXT = "text"
    MERMAID = "mermaid"


@app.command()
def describe(
    app_name: AppArgument,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
    format: Annotated[Format, typer.Option(help="text, or a mermaid flowchart.")] = Format.TEXT,
) -> None:
    """Print what a topology consists of.

    Sub-topologies, topics, operators and transactional ids. Asks no broker, and the database only
    where ids are leased.
    """
    from eosframework.config import load_settings
    from eosframework.runtime.ids import leases_of
    from eosframework.topology.graph.description import as_mermaid, as_text
    from eosframework.topology.graph.description import describe as as_data
    from eosframework.topology.loader import load_app
    from eosframework.topology.resolve.resolve import resolve

    graph = resolve(load_app(app_name))
    settings = load_settings(config, assignments)
    leases = leases_of(graph.application, settings)
    together = settings.worker.partitions_per_producer
    if as_json:
        import orjson

        data = as_data(graph, leases=leases, partitions_per_producer=together)
        typer.echo(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode())
    elif format is Format.MERMAID:
        typer.echo(as_mermaid(graph))
    else:
        typer.echo(as_text(graph, leases=leases, partitions_per_producer=together))
