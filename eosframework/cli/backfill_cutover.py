"""`eosframework backfill cutover`: live workers go on where a job ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli.options import AppArgument, ConfigOption, JobOption, JsonOption, SetOption
from eosframework.process.interrupts import leaves

if TYPE_CHECKING:
    from eosframework.backfill.cutover.cutover_steps import CutOver


def cutover(
    app_name: AppArgument,
    job: JobOption,
    accept_lost: Annotated[
        bool,
        typer.Option(
            "--accept-lost",
            help="Go on although retention has removed records behind the job's range.",
        ),
    ] = False,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let live workers go on where a complete job ends: with its state, at the next record.

    Refused while workers run. Everything is set in one step: after a crash run it again.
    """
    from eosframework.backfill.cutover.cutover_steps import cut_over
    from eosframework.cli.cluster import open_application
    from eosframework.process.logs import configure_logs
    from eosframework.topology.graph.retry_topics import without_retries

    opened = open_application(app_name, config, assignments)
    configure_logs(opened.settings.log)
    leaves("the cutover took place as a whole or not at all; run the same command again, it tells")
    done = cut_over(
        without_retries(opened.graph),
        opened.settings,
        job,
        opened.admin,
        opened.registry,
        accept_lost=accept_lost,
    )
    if as_json:
        import orjson

        report = _report(opened.graph.application, job, done)
        typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
    else:
        typer.echo("\n".join(_lines(opened.graph.application, job, done)))


def _report(application: str, job: str, done: CutOver) -> dict[str, Any]:
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


def _lines(application: str, job: str, done: CutOver) -> list[str]:
    from datetime import UTC, datetime

    if done.was_before:
        at = datetime.fromtimestamp(done.at / 1000, UTC)
        return [
            f"application {application} was cut over from job {job} on {at:%Y-%m-%d %H:%M:%S} UTC "
            f"already; nothing was changed"
        ]
    lines = [f"{p.topic_partition} goes on at {p.offset}" for p in done.positions]
    lines += [
        f"{partition}: records {first} to {end - 1} were removed by retention and left out"
        for partition, (first, end) in sorted(done.lost.items())
    ]
    return [*lines, f"application {application} goes on where job {job} ends: start its workers"]
