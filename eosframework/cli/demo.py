"""`eosframework demo`: programs that kill their own processes and then check the results."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import group
from eosframework.cli.options import JsonOption
from eosframework.process.interrupts import note_remains

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

commands = group(
    "demo",
    "Kill processes while they work, then check the results.",
    epilog="Each demo starts its own Kafka (and PostgreSQL) and stops it at the end. The last line "
    "of stdout is a JSON object. The exit code is 0 only if the check finds nothing wrong.",
)

SeedOption = Annotated[
    int | None, typer.Option(help="Repeat the random choices of an earlier run. Default: random.")
]
KeepOption = Annotated[
    bool, typer.Option("--keep", help="Leave the servers running for inspection.")
]

_DAY = ["%Y-%m-%d"]


@commands.command()
def flights(
    kills: Annotated[int, typer.Option(min=1, help="How many workers to kill.")] = 7,
    rate: Annotated[int, typer.Option(min=100, help="Records produced per second.")] = 6500,
    seed: SeedOption = None,
    keep: KeepOption = False,
    flights: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
    as_json: JsonOption = False,
) -> int:
    """Kill workers while they process flights, then audit.

    Succeeds only if no record was lost, duplicated, reordered or torn.
    """
    from eosframework.demo.feeds import require_packages

    require_packages()
    from eosframework.demo.flights_demo import FlightsPlan, run_demo

    plan = FlightsPlan(
        kills=kills, records_per_second=rate, flights=flights, seed=_seed(seed), keep=keep
    )
    return _run(lambda console: run_demo(plan, console), as_json)


@commands.command()
def transfer(
    seconds: Annotated[int, typer.Option(min=1, help="How long transfers are requested.")] = 60,
    rate: Annotated[int, typer.Option(min=1, help="Transfers requested per second.")] = 200,
    kills: Annotated[
        int, typer.Option(min=0, help="How many workers, relays and databases to kill.")
    ] = 12,
    together: Annotated[
        bool,
        typer.Option(
            help="Without outboxes: workers debit accounts and send transfers in one decision."
        ),
    ] = False,
    seed: SeedOption = None,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> int:
    """Transfer money while processes are killed, and count it.

    Two banks exchange money through Kafka. Succeeds only if every look at both banks found all of
    the money, and each transfer took effect once and in order.
    """
    from eosframework.demo.transfer_demo import TransferPlan, run_transfers

    plan = TransferPlan(
        transfers=seconds * rate,
        per_second=rate,
        kills=kills,
        seed=_seed(seed),
        keep=keep,
        together=together,
    )
    return _run(lambda console: run_transfers(plan, console), as_json)


@commands.command()
def backfill(
    since: Annotated[
        datetime, typer.Option(formats=_DAY, help="The first day of flights.")
    ] = datetime(2013, 1, 1),
    cutover: Annotated[
        datetime, typer.Option(formats=_DAY, help="The first day that live workers process.")
    ] = datetime(2013, 12, 1),
    until: Annotated[
        datetime, typer.Option(formats=_DAY, help="The day after the last one.")
    ] = datetime(2014, 1, 2),
    seed: SeedOption = None,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> int:
    """Backfill an archive of flights, continue live, compare.

    Two systems run: in one, Spark, which is killed at times, processes the files up to the cutover
    and live workers the rest;
    in the other, live workers process everything. Succeeds only if both have the same topics,
    windows and rows.
    """
    from eosframework.demo.feeds import require_packages
    from eosframework.spark.session.spark_session import check_packages

    require_packages()
    check_packages()
    from eosframework.demo.backfill_demo import BackfillPlan, Span, run_backfill_demo

    span = Span(*(moment.replace(tzinfo=UTC) for moment in (since, cutover, until)))
    plan = BackfillPlan(span=span, seed=_seed(seed), keep=keep)
    return _run(lambda console: run_backfill_demo(plan, console), as_json)


@commands.command()
def spark(
    seed: SeedOption = None,
    keep: KeepOption = False,
    flights: Annotated[
        int | None, typer.Option(min=1, help="How many flights, from the first. Default: all.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Kill Spark while a pipeline writes to a topic and a table.

    Structured Streaming counts flights by airport and hour; a Python worker, an executor and the
    driver are killed. Succeeds only if topic and table have what pandas computes, each change once.
    """
    from eosframework.demo.feeds import require_packages
    from eosframework.spark.session.spark_session import check_packages

    require_packages()
    check_packages()
    from eosframework.demo.sink_demo import SinkPlan, run_sink_demo

    plan = SinkPlan(flights=flights, seed=_seed(seed), keep=keep)
    return _run(lambda console: run_sink_demo(plan, console), as_json)


def _seed(given: int | None) -> int:
    return random.SystemRandom().randrange(10_000) if given is None else given


def _run(demo: Callable[[Console], Any], as_json: bool) -> int:
    """Run a demo, print its outcome as one line of JSON, and return the exit code."""
    import orjson

    from eosframework.process.progress import TerminalConsole

    note_remains("the demo's workers are stopped; its servers too, unless --keep was given")
    outcome = demo(TerminalConsole(stderr=as_json))
    typer.echo(orjson.dumps(outcome.as_data()).decode())
    return 0 if outcome.good else 1
