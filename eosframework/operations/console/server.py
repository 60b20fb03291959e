"""The console's process: its address, its sampling thread, and its HTTP server."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from ipaddress import ip_address

import structlog

from eosframework.application.monitoring.http import exchange
from eosframework.application.monitoring.http.http_server import answering, listen, own_names
from eosframework.config import Settings
from eosframework.errors import ConfigurationError
from eosframework.operations.console.access import Access
from eosframework.operations.console.application import Application, Backfills
from eosframework.operations.console.jobs import Jobs
from eosframework.operations.console.pages import Console
from eosframework.operations.console.site import HEADERS, Site
from eosframework.process.memory import keep_little, returned_memory
from eosframework.process.signals import stop_requests
from eosframework.records import whole_number
from eosframework.serialization.bounds import CONSOLE_PAGES, CONSOLE_SECONDS

STOP_CHECK_SECONDS = 0.2


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
    keep_little()
    token = settings.console.token
    require_token_where_needed(address, has_token=token is not None, allow_changes=allow_changes)
    listener, taken = listen(address, "--address")
    app = Application(name, settings, processes)
    access = Access(
        None if token is None else token.get_secret_value(), allow_changes=allow_changes
    )
    served = site_of(app, access, address, taken)
    stop = threading.Event()
    threading.Thread(
        target=app.sample_forever, args=(stop,), name="eos-console-sample", daemon=True
    ).start()
    log = structlog.get_logger("eosframework.console")
    with stop_requests(log) as request, answering(listener, served), returned_memory():
        log.info(
            "console_serving", address=taken, url=f"http://{taken}/", allows_changes=allow_changes
        )
        # An Event would not do: its `set`, in a signal's handler, could wait for its own `wait`.
        while not request.received:
            time.sleep(STOP_CHECK_SECONDS)
    stop.set()


def site_of(app: Application, access: Access, address: str, taken: str) -> exchange.Site:
    """Return the site of a console.

    Args:
        app: that it shows.
        access: to it.
        address: that it was started with, as `host:port`.
        taken: the address that it listens on.
    """
    console = Console(app, Backfills(app), Jobs(), access.allow_changes)
    # A browser sends a cookie to all ports of a host.
    site = Site(console, access, f"eosframework_console_{taken.rpartition(':')[2]}")
    return exchange.Site(
        site.quick,
        site.page,
        own_names(address, app.settings.console.hosts),
        "console.hosts",
        CONSOLE_PAGES,
        CONSOLE_SECONDS,
        methods=("GET", "HEAD", "POST"),
        headers=HEADERS,
    )


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
