"""Settings of the console."""

from __future__ import annotations

from pydantic import Field, SecretStr

from eosframework.config.section import Section


class ConsoleSettings(Section):
    """The pages of `eosframework console`."""

    token: SecretStr | None = Field(default=None, min_length=16)
    """Token that a browser must show, at least 16 characters; it belongs in a file console.token in
    EOS_SECRETS_DIR. None: no token is asked for, so the console listens on this machine only and
    changes nothing."""

    hosts: tuple[str, ...] = ()
    """Host names with a dot under which browsers may open the console, for example
    console.shop.example.com; see worker.http_hosts."""

    refresh_seconds: float = Field(default=2.0, ge=0.5)
    """Seconds between two readings of the cluster and of the workers' HTTP addresses, however many
    browsers are open."""
