"""The HTTP server: its address, listening socket and thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus

import structlog

from eosframework.bounds import PAGE_SECONDS, PAGES
from eosframework.errors import ConfigurationError
from eosframework.monitoring.http.bounded_server import BoundedServer
from eosframework.monitoring.http.exchange import Site
from eosframework.monitoring.http.pages import Answer, NotServed, Page, Pages, Request

STOP_SECONDS = 5.0

PROBES = ("livez", "readyz")
"""Pages that never block."""

_BACKLOG = 1024
"""Number of connections that the kernel queues before they are accepted."""


@contextmanager
def serving(
    address: str,
    pages: Pages,
    *,
    hosts: Collection[str] = (),
    setting: str = "worker.http_address",
) -> Generator[str]:
    """Answer requests during the block; yield the address with the actual port.

    Args:
        address: `host:port`; port 0 takes any free port.
        pages: by the first part of their paths.
        hosts: accepted host names in addition to the machine's own and to addresses.
        setting: the setting that the address comes from, for messages.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    listener, taken = listen(address, setting)
    hosts_setting = setting.replace("http_address", "http_hosts")
    page = _page_of(pages)
    site = Site(
        lambda request: page(request) if request.path[0] in PROBES else None,
        page,
        own_names(address, hosts),
        hosts_setting,
        PAGES,
        PAGE_SECONDS,
    )
    with answering(listener, site):
        structlog.get_logger("eosframework.http").info("http_serving", address=taken)
        yield taken


@contextmanager
def answering(listener: socket.socket, site: Site) -> Generator[None]:
    """Answer the requests of a listening socket during the block, and close it.

    Args:
        listener: of `listen`.
        site: the pages.
    """
    server = BoundedServer(listener, site)
    thread = threading.Thread(target=server.serve, name="eos-http", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join(STOP_SECONDS)


def listen(address: str, setting: str) -> tuple[socket.socket, str]:
    """Return a listening socket, and its address with the actual port.

    Args:
        address: `host:port`; port 0 takes any free port.
        setting: the setting or option that the address comes from, for messages.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    host, port = host_and_port(address)
    try:
        listener = _listener(host, port)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"{setting}={address!r} cannot be listened on: "
            f"{getattr(error, 'strerror', None) or error}; give this process another port or an "
            f"address of this machine"
        ) from error
    return listener, f"{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def own_names(address: str, hosts: Collection[str]) -> frozenset[str]:
    """Return the host names of a server, in lower case: those given, its address and machine."""
    return frozenset(
        name.lower() for name in (*hosts, host_and_port(address)[0], socket.gethostname())
    )


def _page_of(pages: Pages) -> Page:
    """Return a page that answers with the one that the path's first part names."""

    def answer(request: Request) -> Answer:
        name, *rest = request.path
        page = pages.get(name)
        if page is None:
            known = ", ".join(f"/{name}" for name in sorted(pages))
            missing = f"there is no {'/' + name!r:.300}; there are {known}"
            raise NotServed(HTTPStatus.NOT_FOUND, missing)
        return page(replace(request, path=rest))

    return answer


def _listener(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def host_and_port(address: str) -> tuple[str, int]:
    """Return the host and port of an address that `config` has checked."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def address_of_child(address: str, number: int) -> str:
    """Return the address of one of a supervisor's children, which have consecutive ports.

    Args:
        address: of the first child; with port 0 each child takes any free port.
        number: of the child, from 0.
    """
    host, _, port = address.rpartition(":")
    return address if int(port) == 0 else f"{host}:{int(port) + number}"
