"""`eosframework reset`: take an application back to where it was before it ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import app
from eosframework.cli.confirming import confirmed
from eosframework.cli.options import (
    AppArgument,
    ConfigOption,
    DryRunOption,
    JsonOption,
    SetOption,
    YesOption,
)
from eosframework.process.interrupts import leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eosframework.runtime.reset_plan import Reset


@app.command()
def reset(
    app_name: AppArgument,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="Where sources go on: beginning, end, or a time (2026-01-31T06:00:00Z). Default: "
            "as if the application had never run, where worker.start says.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete what a stopped application keeps for itself: shows all of it and asks.

    Positions, changelogs, repartition topics, what the registry remembers, and stores on this
    machine; whoever still writes under its ids is fenced. Outputs and tables stay as they are, so
    what is processed again is written again. Interrupted, it can be done again.
    """
    from eosframework.cli.cluster import open_application
    from eosframework.runtime.reset_plan import execute_reset, plan_reset

    opened = open_application(app_name, config, assignments)
    planned = plan_reset(opened.graph, opened.settings, opened.admin, opened.registry, to)
    for line in _lines(planned, app_name):
        typer.echo(line, err=as_json)
    done = not dry_run and (yes or confirmed())
    if done:
        leaves("the reset may be begun, and then no worker starts; run the same command again")
        execute_reset(planned, opened.graph, opened.settings, opened.admin, opened.registry)
    if as_json:
        _print_json({**planned.as_data(), "done": done})
    elif done:
        typer.echo(f"done; create its topics again: eosframework apply {app_name}")
    else:
        typer.echo("nothing was done", err=True)


def _lines(planned: Reset, app_name: str) -> Iterator[str]:
    kafka = planned.kafka
    yield f"application {kafka.application}"
    yield from (f"  delete group {group} with its positions" for group in kafka.groups)
    yield from (f"  delete topic {topic}" for topic in kafka.topics)
    if kafka.ids:
        between = f"{kafka.ids[0]} to {kafka.ids[-1]}"
        yield f"  fence {len(kafka.ids)} transactional ids, {between}"
    yield f"  take {len(kafka.entries)} entries out of its registry"
    yield from (f"  delete stores in {path}" for path in planned.stores)
    yield from (f"  forget where tables are in topic {topic}" for topic in planned.rows)
    for position in kafka.positions:
        whole = " (a table)" if position.topic in planned.read_whole else ""
        yield f"  go on with {position.topic_partition} at {position.offset}{whole}"
    if not kafka.positions:
        yield "  go on where worker.start says, as if it had never run"
    yield "  outputs, dead letters and tables stay; stores on other machines are no longer used"


def _print_json(report: dict[str, Any]) -> None:
    import orjson

    typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
