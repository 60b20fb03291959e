"""`eosframework backfill`: run a topology over history, and hand over to live workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import group
from eosframework.cli.backfill_diff import diff
from eosframework.cli.backfill_stage import stage
from eosframework.cli.backfill_status import status
from eosframework.cli.cluster import open_application
from eosframework.cli.options import (
    AppArgument,
    JobOption,
    JsonOption,
    MasterOption,
    SettingsOptions,
    SparkOption,
    suffix_option,
    with_settings,
)
from eosframework.cli.stdout import print_json, print_report
from eosframework.process.interrupts import cleaning_up, note_remains

if TYPE_CHECKING:
    from eosframework.backfill.cutover import CutoverResult
    from eosframework.backfill.job.job_entry import JobState

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
        help="Read files in place of a topic: parquet, json (lines) or csv. Options follow after "
        "';': key=COLUMN, record=module:function, partitioner=NAME, option.NAME=VALUE. "
        "Repeatable.",
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
    from eosframework.backfill.api import Backfill, spark_options
    from eosframework.backfill.job.job_status import ProgressDisplay
    from eosframework.backfill.spark.spark_session import (
        quiet_bridge,
        quiet_server,
        spark_session,
        stop_session,
    )
    from eosframework.process.logs import configure_logs

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
    from eosframework.backfill.cutover import cut_over
    from eosframework.process.logs import configure_logs
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
