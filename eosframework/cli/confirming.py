"""Asks before something is done that cannot be undone."""

from __future__ import annotations

import sys

import typer

from eosframework.errors import ConfigurationError


def confirmed() -> bool:
    """Ask on stderr, so that stdout stays one JSON object where that was wanted.

    Raises:
        ConfigurationError: nobody answered.
    """
    typer.echo("Do this? [y/N] ", nl=False, err=True)
    # A process that was started with a closed stdin has none.
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if not answer:
        typer.echo(err=True)
        raise ConfigurationError(
            "nobody answered, so nothing was done; give --yes to do it unasked"
        )
    return answer.strip().casefold() in ("y", "yes")
