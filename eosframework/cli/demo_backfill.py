"""`eosframework demo-backfill`: history by Spark, the rest live, and the verdict."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import JsonOption

_FORMATS = ["%Y-%m-%d"]


@app.command("demo-backfill")
def demo_backfill(
    since: Annotated[
        datetime, typer.Option(formats=_FORMATS, help="The first day of flights.")
    ] = datetime(2013, 1, 1),
    cutover: Annotated[
        datetime, typer.Option(formats=_FORMATS, help="The first day that is processed live.")
    ] = datetime(2013, 12, 1),
    until: Annotated[
        datetime, typer.Option(formats=_FORMATS, help="The day behind the last.")
    ] = datetime(2014, 1, 2),
    seed: Annotated[
        int | None, typer.Option(help="Repeats the choices of an earlier run. Default: random.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave brokers and databases up, to look around.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Backfill an archive of flights while Spark is killed, go on live, and compare.

    Starts two real Kafka and two real PostgreSQL of its own and stops them at the end: in one pair
    Spark processes files of January to November and live workers December, in the other live
    workers process everything. The last line of stdout is a JSON object. Exits with 0 only if both
    have the same topics, windows and rows.
    """
    from eosframework.backfill.spark.preflight import check_packages
    from eosframework.demo.nycflights import require_packages

    require_packages()
    check_packages()
    import orjson
    from rich.console import Console

    from eosframework.demo.history.archive import Span
    from eosframework.demo.history.run import Plan, run_backfill_demo

    seed = random.SystemRandom().randrange(10_000) if seed is None else seed
    span = Span(*(moment.replace(tzinfo=UTC) for moment in (since, cutover, until)))
    outcome = run_backfill_demo(Plan(span, seed, keep), Console(stderr=as_json))
    typer.echo(orjson.dumps(outcome.as_data()).decode())
    return 0 if outcome.good else 1
