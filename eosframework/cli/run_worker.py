"""`eosframework run-worker`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, ConfigOption, SetOption

if TYPE_CHECKING:
    from eosframework.config import Settings


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
        from eosframework.runtime import run_in_process

        run_in_process(application, settings, until_caught_up=until_caught_up)
    else:
        raise typer.Exit(_supervise(application, settings, processes, until_caught_up))


def _supervise(application: str, settings: Settings, processes: int, until_caught_up: bool) -> int:
    """Check in a child, then run the workers in children: see `forked` for why."""
    from eosframework.cli import exit_code_of
    from eosframework.forked import answer_of
    from eosframework.instance import own_instance
    from eosframework.runtime import prepare, run_in_process
    from eosframework.supervisor import Supervisor, instances_for

    def check() -> tuple[int, str]:
        names: list[str] = []
        code = exit_code_of(lambda: names.append(prepare(application, settings).application))
        return code, "".join(names)

    def run_child(instance: str) -> int:
        import structlog

        # Workers under one supervisor write into one log.
        structlog.contextvars.bind_contextvars(instance=instance)
        own = settings.with_instance(instance)
        return exit_code_of(
            lambda: run_in_process(application, own, until_caught_up=until_caught_up)
        )

    code, name = answer_of(check)
    if code != 0:
        return code
    deadline_seconds = settings.worker.stop_deadline_seconds + 10
    with own_instance(name, settings.worker.instance) as base:
        return Supervisor(run_child, instances_for(base, processes), deadline_seconds).run()
