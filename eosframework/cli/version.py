"""`eosframework version`."""

from __future__ import annotations

from importlib.metadata import version as installed

import typer

from eosframework.cli import app


@app.command()
def version() -> None:
    """Print the version of eosframework."""
    typer.echo(installed("eosframework"))
