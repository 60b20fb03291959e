"""`eosframework backfill cutover`: hand over from a complete job to live workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli.options import (
    AppArgument,
    JobOption,
    JsonOption,
    SettingsOptions,
    with_settings,
)
from eosframework.cli.stdout import print_json
from eosframework.process.interrupts import leaves

if TYPE_CHECKING:
    from eosframework.backfill.cutover.cutover_steps import CutOver


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
    """Hand over from a complete job to live workers: its state, and the next offsets.

    Workers must be stopped. The cutover is one transaction: after a crash, run it again.
    """
    from eosframework.backfill.cutover.cutover_steps import cut_over
    from eosframework.cli.cluster import open_application
    from eosframework.process.logs import configure_logs
    from eosframework.topology.graph.retry_topics import without_again

    opened = open_application(app_name, options)
    configure_logs(opened.settings.log)
    leaves("the cutover is complete or did not happen; run the same command again to find out")
    done = cut_over(
        without_again(opened.graph),
        opened.settings,
        job,
        opened.admin,
        opened.registry,
        accept_lost=accept_lost,
    )
    if as_json:
        report = _report(opened.graph.application, job, done)
        print_json(report)
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
    lines = [f"{p.topic_partition} resumes at {p.offset}" for p in done.positions]
    lines += [
        f"{partition}: records {first} to {end - 1} were removed by retention and left out"
        for partition, (first, end) in sorted(done.lost.items())
    ]
    return [*lines, f"application {application} resumes where job {job} ended: start its workers"]
