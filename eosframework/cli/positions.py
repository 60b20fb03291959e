"""`eosframework positions`: where a stopped application goes on."""

from __future__ import annotations

from typing import Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, ConfigOption, JsonOption, SetOption

commands = typer.Typer(
    help="Show and set where an application goes on reading.", no_args_is_help=True
)
app.add_typer(commands, name="positions")


@commands.command()
def show(
    app_name: AppArgument,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print each partition's position and the bounds of its log."""
    from eosframework.cli.cluster import open_application
    from eosframework.kafka.guards import gather

    opened = open_application(app_name, config, assignments)
    facts = gather(opened.graph, opened.admin, opened.registry)
    bounds = opened.admin.log_bounds([p.topic_partition for p in facts.committed])
    rows = [
        {
            "topic": p.topic,
            "partition": p.partition,
            "committed": p.offset,
            "committed_before": p.topic_partition in facts.registered.committed,
            "first": bounds[p.topic_partition][0],
            "end": bounds[p.topic_partition][1],
        }
        for p in facts.committed
    ]
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
    as_json: JsonOption = False,
) -> None:
    """Set where a stopped application goes on.

    Also registers its topics as they are now.
    """
    from eosframework.cli.cluster import open_application
    from eosframework.kafka.reposition import Wish, set_positions

    wishes = [Wish.parse(text) for text in positions]
    opened = open_application(app_name, config, assignments)
    done = set_positions(opened.graph, wishes, opened.admin, opened.registry)
    if as_json:
        import orjson

        rows = [{"topic": p.topic, "partition": p.partition, "offset": p.offset} for p in done]
        report = {"application": opened.graph.application, "positions": rows}
        typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
    else:
        typer.echo("\n".join(f"{p.topic_partition} goes on at {p.offset}" for p in done))
