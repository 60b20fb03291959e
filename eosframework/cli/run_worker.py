"""`eosframework run-worker`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, ConfigOption, SetOption
from eosframework.process.signals import exit_on_signals

if TYPE_CHECKING:
    from eosframework.config import Settings


@app.command("run-worker")
def run_worker(
    application: AppArgument,
    config: ConfigOption = None,
    assignments: SetOption = None,
    processes: Annotated[
        int,
        typer.Option(
            min=1, help="Worker processes of each kind; a killed one is restarted at once."
        ),
    ] = 1,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Stop once every input is read to its end."),
    ] = False,
) -> None:
    """Run a topology: each record takes effect exactly once.

    What transforms and what fills tables of a database are workers of two kinds. Where a topology
    needs both, they are processes of their own, and a database that is away holds no transform up.

    SIGTERM and Ctrl-C commit what is complete, leave the group and exit with 0.
    """
    exit_on_signals()
    from eosframework.config import load_settings
    from eosframework.process.logs import configure_logs

    settings = load_settings(config, assignments)
    configure_logs(settings.log)
    if processes > 1 or not _ran_here(application, settings, until_caught_up):
        raise typer.Exit(_supervise(application, settings, processes, until_caught_up))


def _ran_here(application: str, settings: Settings, until_caught_up: bool) -> bool:
    """Run a worker in this process, unless two kinds have to run at the same time."""
    from eosframework.runtime.worker import kinds, load, run_kind

    graph = load(application)
    wanted = kinds(graph)
    if len(wanted) > 1 and not until_caught_up:
        return False
    for kind in wanted:
        if run_kind(graph, settings, kind, until_caught_up=until_caught_up):
            break
    return True


def _supervise(application: str, settings: Settings, processes: int, until_caught_up: bool) -> int:
    """Check in a child, then run the workers in children: see `forked` for why."""
    from eosframework.cli import exit_code_of
    from eosframework.process.fork import run_in_child
    from eosframework.process.instance import own_instance
    from eosframework.process.supervisor import Supervisor, instances_for
    from eosframework.runtime.worker import Kind

    code, answer = run_in_child(lambda: _checked(application, settings))
    if code != 0:
        return code
    name, *wanted = answer.split()
    deadline_seconds = settings.worker.stop_deadline_seconds + 10
    with own_instance(name, settings.worker.instance) as base:
        children = {
            instance: kind
            for kind in map(Kind, wanted)
            for instance in instances_for(base, processes, kind if kind is Kind.TABLES else "")
        }

        def run_child(instance: str) -> int:
            import structlog

            from eosframework.runtime.worker import load, run_kind

            # Workers under one supervisor write into one log.
            structlog.contextvars.bind_contextvars(instance=instance)
            own, kind = _settings_of_child(settings, instance, list(children)), children[instance]
            return exit_code_of(
                lambda: run_kind(load(application), own, kind, until_caught_up=until_caught_up)
            )

        stages = [[i for i, of in children.items() if of == kind] for kind in wanted]
        for stage in stages if until_caught_up else [list(children)]:
            supervisor = Supervisor(run_child, stage, deadline_seconds)
            code = supervisor.run()
            if code != 0 or supervisor.is_stopping:
                break
        return code


def _settings_of_child(settings: Settings, instance: str, all_instances: list[str]) -> Settings:
    address = settings.worker.http_address
    if address is not None:
        from eosframework.monitoring.http.http_server import address_of_child

        address = address_of_child(address, all_instances.index(instance))
    return settings.with_instance(instance, address)


def _checked(application: str, settings: Settings) -> tuple[int, str]:
    """Return an exit code, and the application's name with the kinds of its workers."""
    from eosframework.cli import exit_code_of
    from eosframework.runtime.worker import check_start, kinds, load

    answer: list[str] = []

    def check() -> None:
        graph = load(application)
        check_start(graph, settings)
        answer.extend([graph.application, *kinds(graph)])

    return exit_code_of(check), " ".join(answer)
