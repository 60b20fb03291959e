"""`eosframework reset`: return an application to its state before the first run."""

from __future__ import annotations

from typing import Annotated

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
    outputs: Annotated[
        bool,
        typer.Option(
            "--outputs",
            help="Also delete the records of output topics and dead letters, and the rows of "
            "tables. Topics that are only compacted are deleted.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the internal state of a stopped application.

    Shows it first and asks. Deletes committed offsets, changelogs, repartition topics, entries of
    the control topic, and stores on this machine; fences any producer that still uses its
    transactional ids. Sink topics and tables stay, so records that are processed again are written
    again, unless --outputs empties them. A reset that was interrupted can be run again.
    """
    from eosframework.application.composition.reset_plan import (
        OUTPUTS_STAY,
        execute_reset,
        outputs_of,
        plan_reset,
    )

    opened = open_application(app_name, options)
    planned = plan_reset(opened, to, outputs_of(opened) if outputs else OUTPUTS_STAY)
    for line in planned.lines():
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
