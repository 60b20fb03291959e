"""`eosframework run-worker`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, ConfigOption, SetOption


@app.command("run-worker")
def run_worker(
    application: AppArgument,
    config: ConfigOption = None,
    assignments: SetOption = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Worker processes; a killed one is restarted at once.")
    ] = 1,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Stop once every input is read to its end."),
    ] = False,
) -> None:
    """Run a topology: each record takes effect exactly once.

    SIGTERM and Ctrl-C commit what is complete, leave the group and exit with 0.
    """
    from eosframework.config import load_settings
    from eosframework.logs import configure_logs

    settings = load_settings(config, assignments)
    configure_logs(settings.log)
    if processes == 1:
        import structlog

        from eosframework.runtime import run_in_process

        if settings.worker.instance is not None:
            # Workers under one supervisor write into one log.
            structlog.contextvars.bind_contextvars(instance=settings.worker.instance)
        run_in_process(application, settings, until_caught_up=until_caught_up)
    else:
        command = _child_command(application, config, assignments or [], until_caught_up)
        raise typer.Exit(_supervise(application, settings, command, processes))


def _supervise(application: str, settings: object, command: list[str], processes: int) -> int:
    from eosframework.config import Settings
    from eosframework.instance import own_instance
    from eosframework.runtime import prepare
    from eosframework.supervisor import Supervisor, instances_for

    assert isinstance(settings, Settings)
    graph = prepare(application, settings)
    deadline_seconds = settings.worker.stop_deadline_seconds + 10
    with own_instance(graph.application, settings.worker.instance) as base:
        return Supervisor(command, instances_for(base, processes), deadline_seconds).run()


def _child_command(
    application: str, config: Path | None, assignments: list[str], until_caught_up: bool
) -> list[str]:
    command = [sys.executable, "-m", "eosframework", "run-worker", application]
    if config is not None:
        command += ["--config", str(config)]
    for assignment in assignments:
        command += ["--set", assignment]
    if until_caught_up:
        command.append("--until-caught-up")
    return command
