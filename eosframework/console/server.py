"""The console's process: its address, its sampling thread, and its HTTP server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from eosframework.config import Settings
from eosframework.console.access import Access
from eosframework.console.application import Application
from eosframework.console.backfills import Backfills
from eosframework.console.jobs import Jobs
from eosframework.console.pages.page import Console
from eosframework.console.site import make_site
from eosframework.errors import ConfigurationError
from eosframework.monitoring.http.http_server import listen, own_names
from eosframework.records import whole_number

HEAD_SECONDS = 5.0
"""From the connection to the end of the request's head."""

LARGEST_HEAD = 16_384

MOST_CONNECTIONS = 64


class TimedConnection(H11Protocol):
    """A connection whose request's head must arrive in time; uvicorn itself would wait forever."""

    def connection_made(self, transport: Any) -> None:
        """Note the connection's time."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_SECONDS, self._close_if_waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait for the head."""
        self._late.cancel()
        super().connection_lost(exc)

    def _close_if_waiting(self) -> None:
        has_no_request: bool = self.cycle is None  # pyright: ignore[reportUnnecessaryComparison]
        if has_no_request:
            self.transport.close()


def run_console(
    name: str,
    settings: Settings,
    address: str,
    *,
    processes: Sequence[str] = (),
    allow_changes: bool = False,
) -> None:
    """Serve the console until SIGTERM or Ctrl-C.

    The topology need not resolve yet, and the cluster may be unavailable: pages report it, and
    recover.

    Args:
        name: names the topology, as on the command line.
        settings: of the application's workers, with the console's own.
        address: `host:port` to listen on.
        processes: HTTP addresses of workers, table writers and relays to ask.
        allow_changes: offer changes in the cluster.

    Raises:
        ConfigurationError: the address cannot be used, or needs a token.
    """
    token = settings.console.token
    require_token_where_needed(address, has_token=token is not None, allow_changes=allow_changes)
    listener, taken = listen(address, "--address")
    app = Application(name, settings, processes)
    console = Console(app, Backfills(app), Jobs(), allow_changes)
    access = Access(
        None if token is None else token.get_secret_value(), allow_changes=allow_changes
    )
    # A browser sends a cookie to all ports of a host.
    cookie = f"eosframework_console_{taken.rpartition(':')[2]}"
    site = make_site(console, access, own_names(address, settings.console.hosts), cookie=cookie)
    stop = threading.Event()
    threading.Thread(
        target=app.sample_forever, args=(stop,), name="eos-console-sample", daemon=True
    ).start()
    structlog.get_logger("eosframework.console").info(
        "console_serving", address=taken, url=f"http://{taken}/", allows_changes=allow_changes
    )
    try:
        server = uvicorn.Server(_configuration(site))
        asyncio.run(server.serve(sockets=[listener]))
    finally:
        stop.set()
        listener.close()


def require_token_where_needed(address: str, *, has_token: bool, allow_changes: bool) -> None:
    """Refuse an address or changes that need a token (A1, A4).

    Raises:
        ConfigurationError: names the setting.
    """
    host, colon, port = address.rpartition(":")
    if not (host and colon and whole_number(port) is not None):
        raise ConfigurationError(
            f"--address {address!r} is not an address; expected HOST:PORT, for example "
            f"127.0.0.1:8088"
        )
    host = host.strip("[]")
    if has_token:
        return
    how = (
        "set console.token to at least 16 characters, for example in a file console.token in "
        "EOS_SECRETS_DIR"
    )
    if allow_changes:
        raise ConfigurationError(
            f"--allow-changes needs a token, so that no other page or user can make changes; {how}"
        )
    if not _is_loopback(host):
        raise ConfigurationError(
            f"--address {address!r} can be reached from other machines, and pages show data, so it "
            f"needs a token; {how}, or listen on 127.0.0.1"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _configuration(site: Any) -> uvicorn.Config:
    return uvicorn.Config(
        site,
        http=TimedConnection,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=LARGEST_HEAD,
        timeout_graceful_shutdown=2,
    )
