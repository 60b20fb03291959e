"""`eosframework positions`: show and set the next offsets of an application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import group
from eosframework.cli.cluster import open_application
from eosframework.cli.options import AppArgument, JsonOption, SettingsOptions, with_settings
from eosframework.cli.stdout import print_json
from eosframework.process.interrupts import note_remains

if TYPE_CHECKING:
    from eosframework.application.context import ApplicationContext
    from eosframework.records import Position

commands = group("positions", "Show and set the offsets at which an application resumes.")

TablesOption = Annotated[
    bool,
    typer.Option(
        "--tables", help="Positions of table sinks, in the database. Default: of transforms."
    ),
]


@commands.command()
@with_settings
def show(
    options: SettingsOptions,
    app_name: AppArgument,
    tables: TablesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print each partition's committed offset and the bounds of its log."""
    opened = open_application(app_name, options)
    rows = _of_tables(opened) if tables else _of_transforms(opened)
    if as_json:
        report = {"application": opened.graph.application, "positions": rows}
        print_json(report)
        return
    for row in rows:
        place = "never committed" if row["committed"] is None else f"at {row['committed']}"
        if row["committed"] is None and row["committed_before"]:
            place = "committed offset LOST"
        typer.echo(
            f"{row['topic']}[{row['partition']}]: {place}, log {row['first']} to {row['end']}"
        )


def _of_transforms(opened: ApplicationContext) -> list[dict[str, Any]]:
    from eosframework.application.start_checks import gather

    facts = gather(opened)
    before = {p: p.topic_partition in facts.control.committed for p in facts.committed}
    return _rows(opened, before)


def _of_tables(opened: ApplicationContext) -> list[dict[str, Any]]:
    from eosframework.runtime.table_writer import table_positions

    positions = table_positions(opened.graph, opened.settings)
    topics = opened.admin.describe_topics(p.topic for p in positions)
    there = [p for p in positions if p.partition < topics[p.topic].partitions]
    return _rows(opened, {p: p.offset is not None for p in there})


def _rows(opened: ApplicationContext, positions: dict[Position, bool]) -> list[dict[str, Any]]:
    """Return the rows to print of positions, each with True if it was ever committed."""
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


@commands.command(
    "set",
    epilog="Example: eosframework positions set topology.yaml 'orders[0]=4711' customers=earliest",
)
@with_settings
def set_(
    options: SettingsOptions,
    app_name: AppArgument,
    positions: Annotated[
        list[str],
        typer.Argument(
            metavar="POSITION...",
            help="TOPIC[PARTITION]=OFFSET, or TOPIC=earliest, latest or committed (keep the "
            "committed offsets and accept the topic as it is now).",
            show_default=False,
        ),
    ],
    tables: TablesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set the offsets at which a stopped application resumes.

    Also records its topics as they are now. Records that are read again are written again: with
    --tables to the tables, without it to the sink topics and the table sinks' topics.
    """
    from eosframework.application.position_changes import PositionRequest, set_positions

    wishes = [PositionRequest.parse(text) for text in positions]
    opened = open_application(app_name, options)
    note_remains(
        "positions may be set already; run the same command again, or see `positions show`"
    )
    if tables:
        from eosframework.runtime.table_writer import set_table_positions

        done = set_table_positions(opened.graph, wishes, opened.settings, opened.admin)
    else:
        done = set_positions(opened, wishes)
    if as_json:
        rows = [{"topic": p.topic, "partition": p.partition, "offset": p.offset} for p in done]
        report = {"application": opened.graph.application, "positions": rows}
        print_json(report)
    else:
        typer.echo("\n".join(f"{p.topic_partition} resumes at {p.offset}" for p in done))
