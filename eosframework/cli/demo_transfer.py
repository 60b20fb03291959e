"""`eosframework demo-transfer`: money between two banks while everything is killed, a verdict."""

from __future__ import annotations

import random
from typing import Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import JsonOption


@app.command("demo-transfer")
def demo_transfer(
    seconds: Annotated[int, typer.Option(min=1, help="How long transfers are asked for.")] = 60,
    rate: Annotated[int, typer.Option(min=1, help="Transfers asked for per second.")] = 200,
    kills: Annotated[
        int, typer.Option(min=0, help="How many workers, relays and databases to kill.")
    ] = 12,
    seed: Annotated[
        int | None, typer.Option(help="Repeats the choices of an earlier run. Default: random.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave broker and databases up, to look around.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Send money between two banks and kill what carries it; count it all the time.

    Starts a real Kafka and two real PostgreSQL of its own and stops them at the end. The last line
    of stdout is a JSON object. Exits with 0 only if all the money was there in every look at both
    banks, and each transfer took effect once and in order.
    """
    import orjson
    from rich.console import Console

    from eosframework.demo.banks.run import Plan, run_transfers

    seed = random.SystemRandom().randrange(10_000) if seed is None else seed
    plan = Plan(seconds * rate, rate, kills, seed, keep)
    outcome = run_transfers(plan, Console(stderr=as_json))
    typer.echo(orjson.dumps(outcome.as_data()).decode())
    return 0 if outcome.good else 1
