"""`eosframework positions`: where a stopped application goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, ConfigOption, JsonOption, SetOption
from eosframework.process.interrupts import leaves

if TYPE_CHECKING:
    from eosframework.cli.cluster import OpenedApplication
    from eosframework.records import Position

commands = typer.Typer(
    help="Show and set where an application goes on reading.", no_args_is_help=True
)
app.add_typer(commands, name="positions")

TablesOption = Annotated[
    bool,
    typer.Option("--tables", help="Where tables go on, in the database; else where transforms do."),
]


@commands.command()
def show(
    app_name: AppArgument,
    config: ConfigOption = None,
    assignments: SetOption = None,
    tables: TablesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print each partition's position and the bounds of its log."""
    from eosframework.cli.cluster import open_application

    opened = open_application(app_name, config, assignments)
    rows = _of_tables(opened) if tables else _of_transforms(opened)
    if as_json:
        import orjson

        report = {"application": opened.graph.application, "positions": rows}
        typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
        return
    for row in rows:
        place = "never committed" if row["committed"] is None else f"at {row['committed']}"
        if row["committed"] is None and row["committed_before"]:
            place = "committed offset LOST"
        typer.echo(
            f"{row['topic']}[{row['partition']}]: {place}, log {row['first']} to {row['end']}"
        )


def _of_transforms(opened: OpenedApplication) -> list[dict[str, Any]]:
    from eosframework.application.start_checks import gather

    facts = gather(opened.graph, opened.admin, opened.registry)
    before = {p: p.topic_partition in facts.control.committed for p in facts.committed}
    return _rows(opened, before)


def _of_tables(opened: OpenedApplication) -> list[dict[str, Any]]:
    from eosframework.runtime.table_writer import table_positions

    positions = table_positions(opened.graph, opened.settings)
    topics = opened.admin.describe_topics(p.topic for p in positions)
    there = [p for p in positions if p.partition < topics[p.topic].partitions]
    return _rows(opened, {p: p.offset is not None for p in there})


def _rows(opened: OpenedApplication, positions: dict[Position, bool]) -> list[dict[str, Any]]:
    """Return what is printed of each position; with it, whether it was ever committed."""
    bounds = opened.admin.log_bounds([p.topic_partition for p in positions])
    return [
        {
            "topic": p.topic,
            "partition": p.partition,
            "committed": p.offset,
            "committed_before": before,
            "first": bounds[p.topic_partition][0],
            "end": bounds[p.topic_partition][1],
        }
        for p, before in positions.items()
    ]


@commands.command("set")
def set_(
    app_name: AppArgument,
    positions: Annotated[
        list[str],
        typer.Argument(
            metavar="POSITION...",
            help="TOPIC[PARTITION]=OFFSET, or TOPIC=earliest, latest or committed (keep the "
            "positions and accept the topic as it is now).",
            show_default=False,
        ),
    ],
    config: ConfigOption = None,
    assignments: SetOption = None,
    tables: TablesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set where a stopped application goes on.

    Also registers its topics as they are now. What is read again is written again: with --tables
    to the tables, and without to the outputs, rows of tables among them.
    """
    from eosframework.application.position_changes import PositionRequest, set_positions
    from eosframework.cli.cluster import open_application

    wishes = [PositionRequest.parse(text) for text in positions]
    opened = open_application(app_name, config, assignments)
    leaves("positions may be set already; run the same command again, or see `positions show`")
    if tables:
        from eosframework.runtime.table_writer import set_table_positions

        done = set_table_positions(opened.graph, wishes, opened.settings, opened.admin)
    else:
        done = set_positions(opened.graph, wishes, opened.settings, opened.admin, opened.registry)
    if as_json:
        import orjson

        rows = [{"topic": p.topic, "partition": p.partition, "offset": p.offset} for p in done]
        report = {"application": opened.graph.application, "positions": rows}
        typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
    else:
        typer.echo("\n".join(f"{p.topic_partition} goes on at {p.offset}" for p in done))
