"""`eosframework backfill`: the group of commands that run a topology over history."""

from __future__ import annotations

import typer

from eosframework.cli import app
from eosframework.cli.backfill_cutover import cutover
from eosframework.cli.backfill_diff import diff
from eosframework.cli.backfill_run import run
from eosframework.cli.backfill_status import status

commands = typer.Typer(
    help="Run a topology over history with Spark.",
    no_args_is_help=True,
)
app.add_typer(commands, name="backfill")

for command in (run, status, cutover, diff):
    commands.command()(command)
