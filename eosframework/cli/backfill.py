"""`eosframework backfill`: run a topology over history, and hand over to live workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import group
from eosframework.cli.backfill_diff import diff
from eosframework.cli.cluster import open_application
from eosframework.cli.options import (
    AppArgument,
    JobOption,
    JsonOption,
    MasterOption,
    SettingsOptions,
    SparkOption,
    SuffixOption,
    suffix_option,
    with_settings,
)
from eosframework.cli.stdout import print_json, print_report
from eosframework.process.interrupts import cleaning_up, note_remains

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eosframework.application.context import ApplicationContext
    from eosframework.spark.backfill.cutover import CutoverResult
    from eosframework.spark.job.job_entry import JobState


def stage(
    kind: Annotated[
        str, typer.Argument(metavar="FORMAT", help="Data source of Spark, for example jdbc.")
    ],
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIRECTORY",
            help="For the files, on a file system that every executor can read.",
        ),
    ],
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Option of the data source. Repeatable; overrides the file."
        ),
    ] = None,
    options_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Properties file with options, for passwords.", show_default=False
        ),
    ] = None,
    master: MasterOption = None,
    spark: SparkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a source without a repeatable order, such as a table, to Parquet files.

    `backfill run --source TOPIC=parquet:DIRECTORY` reads them. A complete copy is not repeated.
    """
    from eosframework.spark.backfill.api import spark_options
    from eosframework.spark.backfill.file_lists import stage_source
    from eosframework.spark.session.spark_session import (
        check_packages,
        quiet_bridge,
        quiet_server,
        spark_session,
        stop_session,
    )

    options = _options(option or (), options_file)
    properties = spark_options(spark or ())
    check_packages()
    quiet_bridge()
    cleaning_up()
    session = spark_session(master, properties)
    quiet_server(session)
    try:
        note_remains(f"{directory} is incomplete; remove it before the next attempt")
        files = stage_source(session, kind, options, directory)
        rows = session.read.parquet(directory).count()
    finally:
        stop_session(session)
    size = sum(file.size_bytes for file in files)
    print_report(
        {"directory": directory, "files": len(files), "bytes": size, "rows": rows},
        f"{directory} has {rows:,} rows in {len(files)} files; to process them: eosframework "
        f"backfill run APP --source 'TOPIC=parquet:{directory};key=COLUMN'",
        as_json=as_json,
    )


def _options(given: Sequence[str], file: Path | None) -> dict[str, str]:
    from eosframework.config.properties_file import read_properties
    from eosframework.errors import ConfigurationError

    options: dict[str, str] = {}
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"--options-file {file} cannot be read ({error}); expected a properties file with "
                f"options of the data source, such as password=…"
            ) from None
        options |= {found.name: found.value for found in read_properties(text, file)}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigurationError(
                f"--option {text!r} is not NAME=VALUE, for example dbtable=orders"
            )
        options[name] = value
    return options


_LOOK_SECONDS = 1.0


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

    from eosframework.spark.job.job_entry import job_states
    from eosframework.spark.job.job_status import StatusTracker, headline

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

    from eosframework.process.progress import TerminalConsole
    from eosframework.spark.job.job_status import StatusTracker, drawn

    found = StatusTracker(opened.graph).look(_read(opened, job), time.time())
    if as_json:
        print_json({"application": opened.graph.application, **found.as_data()})
    else:
        TerminalConsole().print(drawn(found))


def _watch(opened: ApplicationContext, job: str) -> None:
    import time

    from eosframework.process.progress import TerminalConsole
    from eosframework.spark.job.job_status import ProgressDisplay, drawn, headline

    console = TerminalConsole()
    cleaning_up()  # The display hides the cursor.
    with ProgressDisplay(opened.graph, console) as shown:
        found = shown.update(_read(opened, job))
        if not console.is_terminal:
            console.print(headline(found), soft_wrap=True)
        while not found.complete:
            time.sleep(_LOOK_SECONDS)
            found = shown.update(_read(opened, job))
    if not console.is_terminal:
        console.print(drawn(found))


def _read(opened: ApplicationContext, job: str) -> JobState:
    from eosframework.application.journal import KafkaJournal
    from eosframework.errors import ConfigurationError
    from eosframework.spark.job.job_entry import decided_job

    journal = KafkaJournal(opened.graph.application, opened.settings.kafka, opened.admin)
    state = decided_job(journal, job)
    if state is None:
        raise ConfigurationError(
            f"application {opened.graph.application!r} has no backfill job {job!r}; omit --job "
            f"to list its jobs, and give --suffix if the job was started with one"
        )
    return state


commands = group("backfill", "Run a topology over history with Spark.")

FromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="Start of the range: beginning, a time, TOPIC=WHERE or TOPIC[N]=OFFSET. "
        "Repeatable; later values override earlier ones. Default: beginning.",
    ),
]

ToOption = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        metavar="WHERE",
        help="End of the range, in the same form. Default: the current end of each topic.",
    ),
]

SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="TOPIC=FORMAT:PATH",
        help="Read files in place of a topic: parquet, json (lines), csv, or a table as delta:PATH "
        "or iceberg:TABLE. Options follow after ';': key=COLUMN, record=module:function, "
        "partitioner=NAME, option.NAME=VALUE. Repeatable.",
    ),
]

LiveFromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--live-from",
        metavar="WHERE",
        help="Position where live workers start in topics that files replace.",
    ),
]

NewSuffixOption = Annotated[
    str | None,
    suffix_option("Write to topics and tables with _NAME appended to their names."),
]


@commands.command()
@with_settings
def run(
    options: SettingsOptions,
    app_name: AppArgument,
    job: JobOption,
    start: FromOption = None,
    end: ToOption = None,
    source: SourceOption = None,
    live_from: LiveFromOption = None,
    suffix: NewSuffixOption = None,
    master: MasterOption = None,
    spark: SparkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a topology over a range of history with Spark.

    Run it again to resume the job. State and outputs are the same as from live workers; `backfill
    cutover` hands over to them.
    """
    from eosframework.process.logs import configure_logs
    from eosframework.spark.backfill.api import Backfill, spark_options
    from eosframework.spark.job.job_status import ProgressDisplay
    from eosframework.spark.session.spark_session import (
        quiet_bridge,
        quiet_server,
        spark_session,
        stop_session,
    )

    settings = options.load()
    configure_logs(settings.log)
    quiet_bridge()
    backfill = Backfill(
        app_name,
        job=job,
        start=start or (),
        end=end or (),
        source=source or (),
        live_from=live_from or (),
        suffix=suffix,
        settings=settings,
    )
    properties = spark_options(spark or ())
    cleaning_up()
    session = spark_session(master, properties)
    quiet_server(session)
    try:
        note_remains("what its tasks have committed stays; run the same command again to resume")
        with ProgressDisplay(backfill.graph) as shown:
            state = backfill.run(session, shown.update, properties)
    finally:
        stop_session(session)
    _print_job(state, as_json=as_json)


def _print_job(state: JobState, *, as_json: bool) -> None:
    records = sum(progress.records for progress in state.tasks.values())
    if as_json:
        report = {
            "application": state.job.application,
            "job": state.job.name,
            "complete": True,
            "tasks": len(state.tasks),
            "records": records,
        }
        print_json(report)
        return
    typer.echo(
        f"job {state.job.name} of application {state.job.application} is complete: {records} "
        f"records by {len(state.tasks)} tasks"
    )


commands.command()(status)


@commands.command()
@with_settings
def cutover(
    options: SettingsOptions,
    app_name: AppArgument,
    job: JobOption,
    accept_lost: Annotated[
        bool,
        typer.Option(
            "--accept-lost",
            help="Continue although retention removed records after the job's range.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Hand over from a complete job to live workers.

    They resume with the job's state, at the next offsets. Workers must be stopped. The cutover is
    one transaction: after a crash, run it again.
    """
    from eosframework.process.logs import configure_logs
    from eosframework.spark.backfill.cutover import cut_over
    from eosframework.topology.graph.walk import without_retries

    opened = open_application(app_name, options)
    configure_logs(opened.settings.log)
    note_remains(
        "the cutover is complete or did not happen; run the same command again to find out"
    )
    done = cut_over(
        without_retries(opened.graph),
        opened.settings,
        job,
        opened.admin,
        opened.control_topic,
        accept_lost=accept_lost,
    )
    print_report(
        _cutover_data(opened.graph.application, job, done),
        "\n".join(_cutover_lines(opened.graph.application, job, done)),
        as_json=as_json,
    )


def _cutover_data(application: str, job: str, done: CutoverResult) -> dict[str, Any]:
    return {
        "application": application,
        "job": job,
        "at": done.at,
        "was_before": done.was_before,
        "positions": [
            {"topic": p.topic, "partition": p.partition, "offset": p.offset} for p in done.positions
        ],
        "lost": [
            {"topic": p.topic, "partition": p.partition, "from": first, "to": end}
            for p, (first, end) in sorted(done.lost.items())
        ],
    }


def _cutover_lines(application: str, job: str, done: CutoverResult) -> list[str]:
    from datetime import UTC, datetime

    if done.was_before:
        at = datetime.fromtimestamp(done.at / 1000, UTC)
        return [
            f"application {application} was cut over from job {job} on {at:%Y-%m-%d %H:%M:%S} UTC "
            f"already; nothing was changed"
        ]
    lines = [f"{p.topic_partition} resumes at {p.offset}" for p in done.positions]
    lines += [
        f"{partition}: records {first} to {end - 1} were removed by retention and left out"
        for partition, (first, end) in sorted(done.lost.items())
    ]
    return [*lines, f"application {application} resumes where job {job} ended: start its workers"]


commands.command()(diff)
commands.command()(stage)
