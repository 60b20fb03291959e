"""`eosframework run-worker`: run the workers of a topology, in one process or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, SettingsOptions, SparkOption, with_settings
from eosframework.errors import ConfigurationError
from eosframework.process.signals import exit_on_signals

if TYPE_CHECKING:
    from eosframework.config import Settings


@app.command(epilog="Example: eosframework run-worker topology.yaml --processes 4")
@with_settings
def run_worker(
    options: SettingsOptions,
    application: AppArgument,
    processes: Annotated[
        int,
        typer.Option(
            min=1, help="Worker processes of each kind; a process that is killed is restarted."
        ),
    ] = 1,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Stop once every input is processed to its end."),
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="URL",
            help="Run the workers on the executors of this Spark cluster (spark://host:7077), or "
            "`spark-submit` in a program that it has started.",
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(min=1, help="With --on: workers of each kind, each on its own executor."),
    ] = 1,
    spark: SparkOption = None,
) -> None:
    """Run a topology: each record takes effect exactly once.

    Transforms and table sinks run in workers of two kinds. If a topology has both, they run in
    separate processes, and transforms keep running while the database is unavailable.

    On SIGTERM or Ctrl-C a worker commits what is complete, leaves the group and exits with 0.
    """
    exit_on_signals()
    from eosframework.process.logs import configure_logs

    settings = options.load()
    configure_logs(settings.log)
    if on is not None:
        if processes > 1:
            raise ConfigurationError(
                "--processes starts workers on this machine, --on starts them on Spark; with --on "
                "give the number as --workers"
            )
        raise typer.Exit(_place(application, settings, on, workers, until_caught_up, spark or ()))
    if spark or workers > 1:
        raise ConfigurationError(
            "--workers and --spark are for workers on a Spark cluster; name it with --on URL, or "
            "start workers on this machine with --processes"
        )
    if processes > 1 or not _ran_here(application, settings, until_caught_up):
        raise typer.Exit(_supervise(application, settings, processes, until_caught_up))


def _ran_here(application: str, settings: Settings, until_caught_up: bool) -> bool:
    """Run a worker in this process; False if two kinds must run at the same time."""
    from eosframework.application.composition.worker import kinds, load
    from eosframework.application.composition.worker_start import run_kind

    graph = load(application)
    wanted = kinds(graph)
    if len(wanted) > 1 and not until_caught_up:
        return False
    for kind in wanted:
        if run_kind(graph, settings, kind, until_caught_up=until_caught_up):
            break
    return True


def _supervise(application: str, settings: Settings, processes: int, until_caught_up: bool) -> int:
    """Run the workers in child processes.

    The checks before the start also run in a child: they need a client of librdkafka, which does
    not survive a fork.
    """
    from eosframework.application.composition.worker import Kind
    from eosframework.cli import exit_code_of
    from eosframework.process.instance import own_instance
    from eosframework.process.supervisor import Supervisor, instances_for, run_in_child

    code, answer = run_in_child(lambda: _checked(application, settings))
    if code != 0:
        return code
    name, *wanted = answer.split()
    deadline_seconds = settings.worker.stop_deadline_seconds + 10
    with own_instance(name, settings.worker) as base:
        children = {
            instance: kind
            for kind in map(Kind, wanted)
            for instance in instances_for(base, processes, kind if kind is Kind.TABLES else "")
        }

        def run_child(instance: str) -> int:
            import structlog

            from eosframework.application.composition.worker import load
            from eosframework.application.composition.worker_start import (
                run_kind,
                settings_of_child,
            )

            # Workers under one supervisor write to one log.
            structlog.contextvars.bind_contextvars(instance=instance)
            own, kind = settings_of_child(settings, instance, list(children)), children[instance]
            return exit_code_of(
                lambda: run_kind(load(application), own, kind, until_caught_up=until_caught_up)
            )

        stages = [[i for i, of in children.items() if of == kind] for kind in wanted]
        for stage in stages if until_caught_up else [list(children)]:
            supervisor = Supervisor(run_child, stage, deadline_seconds)
            code = supervisor.run()
            if supervisor.failure is not None:
                typer.echo(f"error: {supervisor.failure}", err=True)
            if code != 0 or supervisor.is_stopping:
                break
        return code


def _place(
    application: str,
    settings: Settings,
    master: str,
    workers: int,
    until_caught_up: bool,
    spark: Sequence[str],
) -> int:
    """Run the workers on a Spark cluster; they are checked here first."""
    from eosframework.process.supervisor import run_in_child
    from eosframework.spark.backfill.api import spark_options

    properties = spark_options(spark)
    code, answer = run_in_child(lambda: _checked(application, settings))
    if code != 0:
        return code
    name, *wanted = answer.split()
    from eosframework.spark.workers.launch import run_on_spark

    end = run_on_spark(
        application,
        name,
        wanted,
        settings,
        master=master,
        options=properties,
        workers=workers,
        until_caught_up=until_caught_up,
    )
    if end.message:
        typer.echo(f"error: {f'worker on {end.host}: ' if end.host else ''}{end.message}", err=True)
    return end.exit_code


def _checked(application: str, settings: Settings) -> tuple[int, str]:
    """Return an exit code, and the application's name followed by the kinds of its workers."""
    from eosframework.application.composition.worker import kinds, load
    from eosframework.application.composition.worker_start import check_start
    from eosframework.cli import exit_code_of

    answer: list[str] = []

    def check() -> None:
        graph = load(application)
        check_start(graph, settings)
        answer.extend([graph.application, *kinds(graph)])

    return exit_code_of(check), " ".join(answer)
