"""`eosframework changes`: what each change of a topology asks for."""

from __future__ import annotations

from dataclasses import asdict

import typer

from eosframework.cli import app
from eosframework.cli.options import JsonOption


@app.command()
def changes(as_json: JsonOption = False) -> None:
    """Print what each change of a topology with live state asks for, and why.

    `eosframework plan APP` says which of them there are.
    """
    from eosframework.topology.evolution import rules

    if as_json:
        import orjson

        report = {"changes": [asdict(rule) for rule in rules().values()]}
        typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
        return
    for rule in rules().values():
        typer.echo(f"{rule.verdict}: {rule.change}")
        typer.echo(f"  {rule.why}: {rule.next}")
        if rule.seen is not None:
            typer.echo(f"  {rule.seen}")
