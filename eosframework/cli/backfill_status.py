"""`eosframework backfill status`: the jobs of an application and their progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli.cluster import open_application
from eosframework.cli.options import (
    AppArgument,
    JsonOption,
    SettingsOptions,
    SuffixOption,
    with_settings,
)
from eosframework.cli.stdout import print_json
from eosframework.process.interrupts import cleaning_up

if TYPE_CHECKING:
    from eosframework.application.context import ApplicationContext
    from eosframework.backfill.job.job_entry import JobState

LOOK_SECONDS = 1.0


@with_settings
def status(
    options: SettingsOptions,
    app_name: AppArgument,
    job: Annotated[
        str | None, typer.Option("--job", metavar="NAME", help="Show one job. Default: list all.")
    ] = None,
    suffix: SuffixOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep showing the progress until the job is complete.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a job's stages and tasks, rate, and time left."""
    from dataclasses import replace

    from eosframework.errors import ConfigurationError
    from eosframework.topology.graph.walk import without_retries

    if watch and (job is None or as_json):
        raise ConfigurationError(
            "--watch shows the progress of one job as text; give --job, and not --json"
        )
    opened = open_application(app_name, options, suffix)
    opened = replace(opened, graph=without_retries(opened.graph))
    if job is None:
        _list(opened, as_json)
    elif watch:
        _watch(opened, job)
    else:
        _show(opened, job, as_json)


def _list(opened: ApplicationContext, as_json: bool) -> None:
    import time

    from eosframework.backfill.job.job_entry import job_states
    from eosframework.backfill.job.job_status import StatusTracker, headline

    now = time.time()
    states = job_states(opened.graph.application, opened.settings.kafka, opened.admin)
    found = [StatusTracker(opened.graph).look(state, now) for state in states]
    if as_json:
        report = {
            "application": opened.graph.application,
            "jobs": [one.as_data(with_tasks=False) for one in found],
        }
        print_json(report)
    elif found:
        typer.echo("\n".join(map(headline, found)))
    else:
        typer.echo(
            f"application {opened.graph.application} has no backfill job; give --suffix to list "
            f"jobs that were started with it"
        )


def _show(opened: ApplicationContext, job: str, as_json: bool) -> None:
    import time

    from eosframework.backfill.job.job_status import StatusTracker, drawn
    from eosframework.process.terminal_console import TerminalConsole

    found = StatusTracker(opened.graph).look(_read(opened, job), time.time())
    if as_json:
        print_json({"application": opened.graph.application, **found.as_data()})
    else:
        TerminalConsole().print(drawn(found))


def _watch(opened: ApplicationContext, job: str) -> None:
    import time

    from eosframework.backfill.job.job_status import ProgressDisplay, drawn, headline
    from eosframework.process.terminal_console import TerminalConsole

    console = TerminalConsole()
    cleaning_up()  # The display hides the cursor.
    with ProgressDisplay(opened.graph, console) as shown:
        found = shown.update(_read(opened, job))
        if not console.is_terminal:
            console.print(headline(found), soft_wrap=True)
        while not found.complete:
            time.sleep(LOOK_SECONDS)
            found = shown.update(_read(opened, job))
    if not console.is_terminal:
        console.print(drawn(found))


def _read(opened: ApplicationContext, job: str) -> JobState:
    from eosframework.backfill.job.job_entry import JobLog
    from eosframework.errors import ConfigurationError

    log = JobLog(job, opened.graph.application, opened.settings.kafka, opened.admin)
    state = log.watch()
    if state is None:
        raise ConfigurationError(
            f"application {opened.graph.application!r} has no backfill job {job!r}; omit --job "
            f"to list its jobs, and give --suffix if the job was started with one"
        )
    return state
