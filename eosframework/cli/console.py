"""`eosframework console`: pages in a browser about one application."""

from __future__ import annotations

from typing import Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, SettingsOptions, with_settings
from eosframework.errors import ConfigurationError
from eosframework.process.signals import exit_on_signals


@app.command(epilog="Example: eosframework console topology.yaml --ask 127.0.0.1:9400")
@with_settings
def console(
    options: SettingsOptions,
    application: AppArgument,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0: any free port.")
    ] = "127.0.0.1:8088",
    processes: Annotated[
        list[str] | None,
        typer.Option(
            "--ask",
            metavar="HOST:PORT",
            help="HTTP address of a worker, table writer or relay, whose state the pages show. "
            "Repeatable.",
        ),
    ] = None,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Offer to abort transactions, replay dead letters and reset the application. "
            "Needs console.token.",
        ),
    ] = False,
) -> None:
    """Show an application in a browser: topology, tasks, transactions, state.

    The pages read the cluster and the HTTP addresses that --ask names, and change nothing without
    --allow-changes. On SIGTERM or Ctrl-C the console exits with 0; workers do not depend on it.
    """
    exit_on_signals()
    from eosframework.process.logs import configure_logs

    settings = options.load()
    configure_logs(settings.log)
    try:
        from eosframework.operations.console.server import run_console
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("jinja2",):
            raise
        raise ConfigurationError(
            f"the console needs package {error.name!r}, which is not installed; run: pip install "
            f"'eosframework[web]'"
        ) from error
    run_console(
        application,
        settings,
        address,
        processes=processes or (),
        allow_changes=allow_changes,
    )
