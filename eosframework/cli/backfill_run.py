"""`eosframework backfill run`: run a topology over a bounded range of history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli.options import (
    AppArgument,
    JobOption,
    JsonOption,
    MasterOption,
    SettingsOptions,
    SparkOption,
    with_settings,
)
from eosframework.cli.stdout import print_json
from eosframework.process.interrupts import cleaning_up, leaves

if TYPE_CHECKING:
    from eosframework.backfill.job.job_state import JobState


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

SuffixOption = Annotated[
    str | None,
    typer.Option(
        "--suffix",
        metavar="NAME",
        help="Write to topics and tables with _NAME appended to their names.",
    ),
]


@with_settings
def run(
    options: SettingsOptions,
    app_name: AppArgument,
    job: JobOption,
    start: FromOption = None,
    end: ToOption = None,
    source: SourceOption = None,
    live_from: LiveFromOption = None,
    suffix: SuffixOption = None,
    master: MasterOption = None,
    spark: SparkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a topology over history with Spark; run it again to resume the job.

    State and outputs are the same as from live workers. `backfill cutover` hands over to them.
    """
    cleaning_up()
    from eosframework.backfill.api import Backfill, spark_options
    from eosframework.backfill.job.progress_display import Shown
    from eosframework.backfill.spark.jvm import quiet_bridge, quiet_server, stop_session
    from eosframework.backfill.spark.spark_session import spark_session
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
    session = spark_session(master, properties)
    quiet_server(session)
    try:
        leaves("what its tasks have committed stays; run the same command again to resume")
        with Shown(backfill.graph) as shown:
            state = backfill.run(session, shown.update, properties)
    finally:
        stop_session(session)
    _report(state, as_json=as_json)


def _report(state: JobState, *, as_json: bool) -> None:
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
