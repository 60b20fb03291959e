"""`eosframework reset`: return an application to its state before the first run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli import app
from eosframework.cli.cluster import open_application
from eosframework.cli.options import (
    AppArgument,
    DryRunOption,
    JsonOption,
    SettingsOptions,
    YesOption,
    confirmed,
    with_settings,
)
from eosframework.cli.stdout import print_json
from eosframework.process.interrupts import note_remains

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eosframework.runtime.reset_plan import Reset


@app.command(epilog="Example: eosframework reset topology.yaml --to beginning --dry-run")
@with_settings
def reset(
    options: SettingsOptions,
    app_name: AppArgument,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="Position of sources: beginning, end, or a time (2026-01-31T06:00:00Z). Default: "
            "worker.start, as if the application had never run.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the internal state of a stopped application.

    Shows it first and asks. Deletes committed offsets, changelogs, repartition topics, entries of
    the control topic, and stores on this machine; fences any producer that still uses its
    transactional ids. Sink topics and tables stay, so records that are processed again are written
    again. A reset that was interrupted can be run again.
    """
    from eosframework.runtime.reset_plan import execute_reset, plan_reset

    opened = open_application(app_name, options)
    planned = plan_reset(opened, to)
    for line in _lines(planned, app_name):
        typer.echo(line, err=as_json)
    done = not dry_run and (yes or confirmed())
    if done:
        note_remains("the reset may have begun, then no worker starts; run the same command again")
        execute_reset(planned, opened)
    if as_json:
        print_json({**planned.as_data(), "done": done})
    elif done:
        typer.echo(f"done; create its topics again: eosframework apply {app_name}")
    else:
        typer.echo("nothing was done", err=True)


def _lines(planned: Reset, app_name: str) -> Iterator[str]:
    kafka = planned.kafka
    yield f"application {kafka.application}"
    yield from (f"  delete group {group} with its committed offsets" for group in kafka.groups)
    yield from (f"  delete topic {topic}" for topic in kafka.topics)
    if kafka.ids:
        between = f"{kafka.ids[0]} to {kafka.ids[-1]}"
        yield f"  fence {len(kafka.ids)} transactional ids, {between}"
    yield f"  delete {len(kafka.entries)} entries of its control topic"
    yield from (f"  delete stores in {path}" for path in planned.stores)
    yield from (f"  delete the positions of table sinks in topic {topic}" for topic in planned.rows)
    for position in kafka.positions:
        whole = " (a table)" if position.topic in planned.read_whole else ""
        yield f"  resume {position.topic_partition} at {position.offset}{whole}"
    if not kafka.positions:
        yield "  start where worker.start says, as if it had never run"
    yield "  sink topics, dead letters and tables stay; stores on other machines are not used again"
