"""How commands show what a principal has to be allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from eosframework.application.needed_access import Access
    from eosframework.config import Settings


def print_access(needed: Sequence[Access], settings: Settings, principal: str | None) -> None:
    """Print what is needed, or the commands that grant it to a principal."""
    typer.echo("  ACLs needed where the cluster has an authorizer:")
    lines = map(str, needed) if principal is None else commands(needed, settings, principal)
    for line in lines:
        typer.echo(f"    {line}")


def commands(needed: Sequence[Access], settings: Settings, principal: str) -> list[str]:
    """Return the commands of Kafka's tools that grant what is needed.

    Raises:
        ConfigurationError: the principal is not one.
    """
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        from eosframework.errors import ConfigurationError

        raise ConfigurationError(
            f"--principal {principal!r} is no principal; expected User:NAME, as brokers write it"
        )
    servers = settings.kafka.bootstrap_servers
    return [access.command(servers, principal) for access in needed]
