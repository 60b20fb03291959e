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
    from eosframework.kafka.inspect.large_batches import LargeBatch

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
    from dataclasses import asdict

    from eosframework.application.composition.shown_positions import (
        positions_of_tables,
        positions_of_transforms,
    )

    opened = open_application(app_name, options)
    rows = positions_of_tables(opened) if tables else positions_of_transforms(opened)
    if as_json:
        report = {"application": opened.graph.application, "positions": list(map(asdict, rows))}
        print_json(report)
        return
    for row in rows:
        typer.echo(f"{row.topic}[{row.partition}]: {row.place}, log {row.first} to {row.end}")


@commands.command(epilog="Example: eosframework positions check topology.yaml")
@with_settings
def check(
    options: SettingsOptions,
    app_name: AppArgument,
    above_megabytes: Annotated[
        int, typer.Option(min=1, help="Name batches that unpack to more.")
    ] = 100,
    as_json: JsonOption = False,
) -> None:
    """Find compressed batches at the next offsets that unpack to much.

    For a worker that the kernel kills at every start because of its memory. The batches are
    not unpacked into memory. Exits with 1 if there are any.
    """
    from eosframework.application.composition.batch_check import next_batches, next_ranges

    opened = open_application(app_name, options)
    found = next_batches(opened, above_megabytes * 1_000_000)
    if as_json:
        rows = list(map(_batch_row, found))
        print_json({"application": opened.graph.application, "batches": rows})
    elif not found:
        partitions = len(next_ranges(opened))
        typer.echo(
            f"no batch at the next offsets of {partitions} partitions unpacks to more than "
            f"{above_megabytes} MB"
        )
    else:
        typer.echo("\n".join(_batch_line(app_name, each) for each in found))
    if found:
        raise typer.Exit(1)


def _batch_row(batch: LargeBatch) -> dict[str, Any]:
    from dataclasses import asdict

    place = batch.partition
    return {**asdict(batch), "topic": place.topic, "partition": place.partition}


def _batch_line(app_name: str, batch: LargeBatch) -> str:
    return (
        f"{batch}. To continue after it, stop all workers and run: "
        f"eosframework positions set {app_name} '{batch.partition}={batch.next_offset}'"
    )


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
        from eosframework.application.composition.table_writer import set_table_positions

        done = set_table_positions(opened.graph, wishes, opened.settings, opened.admin)
    else:
        done = set_positions(opened, wishes)
    if as_json:
        rows = [{"topic": p.topic, "partition": p.partition, "offset": p.offset} for p in done]
        report = {"application": opened.graph.application, "positions": rows}
        print_json(report)
    else:
        typer.echo("\n".join(f"{p.topic_partition} resumes at {p.offset}" for p in done))
