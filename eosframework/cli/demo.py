"""`eosframework demo`: real flights through killed workers, and the verdict."""

from __future__ import annotations

import random
from typing import Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import JsonOption


@app.command()
def demo(
    kills: Annotated[int, typer.Option(min=1, help="How many workers to kill.")] = 7,
    rate: Annotated[int, typer.Option(min=100, help="Records fed per second.")] = 6500,
    seed: Annotated[
        int | None, typer.Option(help="Repeats the choices of an earlier run. Default: random.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the broker up, to look around.")
    ] = False,
    flights: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
    as_json: JsonOption = False,
) -> int:
    """Kill workers while they process real flights; then audit.

    Starts a real Kafka of its own and stops it at the end. The last line of stdout is a JSON
    object. Exits with 0 only if nothing was lost, duplicated, reordered or torn.
    """
    from eosframework.demo.nycflights import require_packages

    require_packages()
    import orjson
    from rich.console import Console

    from eosframework.demo.run import Plan, run_demo

    seed = random.SystemRandom().randrange(10_000) if seed is None else seed
    plan = Plan(kills, rate, seed, flights, keep)
    outcome = run_demo(plan, Console(stderr=as_json))
    typer.echo(orjson.dumps(outcome.as_data()).decode())
    return 0 if outcome.good else 1
