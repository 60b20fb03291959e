"""`eosframework backfill run`: a topology over a closed range of history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli.options import (
    AppArgument,
    ConfigOption,
    JobOption,
    JsonOption,
    MasterOption,
    SetOption,
    SparkOption,
)
from eosframework.process.interrupts import cleaning_up, leaves

if TYPE_CHECKING:
    from eosframework.backfill.job.job_entry import JobState


FromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="Where ranges begin: beginning, a time, TOPIC=WHERE or TOPIC[N]=OFFSET. "
        "Repeatable; later ones overrule earlier ones. Default: the beginning.",
    ),
]

ToOption = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        metavar="WHERE",
        help="Where they end, likewise. Default: the end of each topic as it is now.",
    ),
]

SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="TOPIC=FORMAT:PATH",
        help="Files that stand for a topic: parquet, json (lines) or csv. Behind ';' more can "
        "be said: key=COLUMN, record=module:function, partitioner=NAME, option.NAME=VALUE. "
        "Repeatable.",
    ),
]

LiveFromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--live-from",
        metavar="WHERE",
        help="Where live workers are to begin in topics for which files stand.",
    ),
]

SuffixOption = Annotated[
    str | None,
    typer.Option(
        "--suffix",
        metavar="NAME",
        help="Write beside what is there: topics and tables with _NAME behind theirs.",
    ),
]


def run(
    app_name: AppArgument,
    job: JobOption,
    start: FromOption = None,
    end: ToOption = None,
    source: SourceOption = None,
    live_from: LiveFromOption = None,
    suffix: SuffixOption = None,
    master: MasterOption = None,
    spark: SparkOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a topology over history with Spark; start it again, and it goes on where it was.

    Its state and outputs are those of live workers. `backfill cutover` lets these go on from there.
    """
    cleaning_up()
    from eosframework.backfill.api import Backfill, spark_options
    from eosframework.backfill.job.progress_display import ProgressDisplay
    from eosframework.backfill.spark.jvm import quiet_bridge, quiet_server, stop_session
    from eosframework.backfill.spark.spark_session import spark_session
    from eosframework.config import load_settings
    from eosframework.process.logs import configure_logs

    settings = load_settings(config, assignments)
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
    options = spark_options(spark or ())
    session = spark_session(master, options)
    quiet_server(session)
    try:
        leaves("what its tasks have committed stays; run the same command again, and it resumes")
        with ProgressDisplay(backfill.graph) as on_progress:
            state = backfill.run(session, on_progress.update, options)
    finally:
        stop_session(session)
    _tell(state, as_json=as_json)


def _tell(state: JobState, *, as_json: bool) -> None:
    records = sum(progress.records for progress in state.tasks.values())
    if as_json:
        import orjson

        report = {
            "application": state.job.application,
            "job": state.job.name,
            "complete": True,
            "tasks": len(state.tasks),
            "records": records,
        }
        typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
        return
    typer.echo(
        f"job {state.job.name} of application {state.job.application} is complete: {records} "
        f"records by {len(state.tasks)} tasks"
    )
