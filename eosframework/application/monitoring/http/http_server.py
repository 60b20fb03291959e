"""The HTTP server: its address, listening socket and thread.

waitress, with deadlines of whole requests and with room for a new client.
waitress has one thread for input and output, and others for pages. It limits the time between two
bytes of a client but not that of a request, and accepts no client beyond its limit of connections.
Here clients can use only a bounded share of the process, and a probe is answered whatever they do:

- At most `CONNECTIONS` are open. A new one replaces the one whose client has kept the server
  waiting for the longest time.
- A request must arrive within `RECEIVE_SECONDS`, and its answer must be received within the site's
  time, both in total: single bytes do not extend these times.
- More threads than pages that are answered at once: what is left answers probes and errors.
- If the process has no file descriptor left, the server gives up one of its own.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import structlog
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from eosframework.application.monitoring.http.exchange import (
    Answer,
    Exchange,
    NotServed,
    Page,
    Pages,
    Request,
    Site,
)
from eosframework.errors import ConfigurationError
from eosframework.serialization import bounds
from eosframework.serialization.bounds import PAGE_SECONDS, PAGES

# The stubs lack the types of some attributes, and have narrower ones of others.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportIndexIssue=false


SPARE_THREADS = 2
"""Threads in addition to those of pages, for probes and for requests that are refused."""

GRACE_SECONDS = 1.0
"""Longest wait of `stop` for answers that are being made or sent."""

_TURN_SECONDS = 0.5
"""Longest time between two looks at the deadlines, while there are connections."""

_PAUSE_SECONDS = 0.02

_RECEIVED = 16_384


class _Parser(HTTPRequestParser):
    """The parser of a connection's only request."""

    path = ""
    """Of a request that cannot be parsed."""

    def received(self, data: bytes) -> int:
        """Take all data: what follows the request is not read."""
        consumed = super().received(data)
        return len(data) if self.completed else consumed

    def parse_header(self, header_plus: bytes) -> None:
        """Parse the line and the headers of the request."""
        try:
            super().parse_header(header_plus)
        except ValueError as error:  # of urlsplit
            raise ParsingError(f"the request line is not valid: {error}") from error
        if not self.command or self.path.startswith("//"):
            raise ParsingError("the request line is not valid")
        # The deadline of a connection is that of its request.
        self.headers["CONNECTION"] = "close"


class _Channel(HTTPChannel):
    """A connection."""

    parser_class = _Parser

    @property
    def has_asked(self) -> bool:
        """True from the end of the request."""
        return bool(self.requests or self.close_when_flushed or self.total_outbufs_len)

    def handle_close(self) -> None:
        """Close the connection."""
        if self.socket is not None:
            with suppress(OSError):
                # Closing with unread input would reset the connection and lose the answer.
                self.socket.shutdown(socket.SHUT_WR)
                self.socket.recv(_RECEIVED)
        super().handle_close()


class BoundedServer(TcpWSGIServer):
    """Answers connections on the thread that calls `serve`.

    Args:
        listener: a listening socket, which `serve` closes.
        site: the server's pages and names.

    Raises:
        OSError: the process has no file descriptor left.
    """

    channel_class = _Channel

    def __init__(self, listener: socket.socket, site: Site) -> None:
        self._seconds = site.seconds
        self._is_stopped = False
        self._trigger_lock = threading.Lock()
        self._is_closed = False
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)
        threads = ThreadedTaskDispatcher()
        threads.set_thread_count(site.at_once.value + SPARE_THREADS)
        adjustments = Adjustments(
            sockets=[listener],
            ident=None,
            # waitress refuses from these values on.
            max_request_header_size=bounds.HEAD_BYTES.value + 1,
            max_request_body_size=bounds.BODY_BYTES.value + 1,
            outbuf_high_watermark=bounds.UNSENT_BYTES.value,
            outbuf_overflow=2**31,  # to no file
            recv_bytes=_RECEIVED,
            log_socket_errors=False,
            clear_untrusted_proxy_headers=False,
        )
        sockinfo = (listener.family, listener.type, listener.proto, listener.getsockname())
        super().__init__(
            Exchange(site), {}, True, listener, threads, adjustments, sockinfo, bind_socket=False
        )
        # Its warnings say that there are more requests than threads.
        logging.getLogger("waitress").setLevel(logging.ERROR)

    def serve(self) -> None:
        """Answer requests until `stop`, then close all connections and the listener."""
        while not self._is_stopped:
            self._turn()
        self.accepting = False
        ends_at = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < ends_at and any(c.has_asked for c in self._channels()):
            self._turn()
        for channel in self._channels():
            channel.handle_close()
        self.task_dispatcher.shutdown(timeout=1)
        with self._trigger_lock:
            self._is_closed = True
            if not self.task_dispatcher.threads:
                # A thread that still runs a page may write to the descriptor of the trigger.
                self.trigger.close()
        wasyncore.dispatcher.close(self)
        if self._spare is not None:
            os.close(self._spare)

    def stop(self) -> None:
        """Make `serve` return; may be called from any thread."""
        # 1. This thread notes the stop. 2. Another event ends the turn of `serve`, which returns
        # and closes the trigger. 3. This thread would write to a descriptor that is closed, or
        # another file's by now.
        with self._trigger_lock:
            self._is_stopped = True
            if not self._is_closed:
                self.pull_trigger()

    def readable(self) -> bool:
        """Accept connections however many there are; `handle_accept` makes room."""
        return self.accepting

    def handle_accept(self) -> None:
        """Accept a client, in place of the slowest one if there are too many."""
        try:
            accepted = self.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._release_descriptor()
            return
        if accepted is None:
            return
        # Only now: the new client must not get the descriptor of one that has events in this turn.
        if len(self._channels()) >= bounds.CONNECTIONS.value:
            self._slowest().handle_close()
        client, address = accepted
        with suppress(OSError):  # the client has disconnected
            self.set_socket_options(client)
        self.channel_class(self, client, address, self.adj, map=self._map)

    def _turn(self) -> None:
        try:
            wasyncore.loop(_TURN_SECONDS if self._channels() else None, True, self._map, 1)
            now = time.time()
            for channel in self._channels():
                bound = self._seconds if channel.has_asked else bounds.RECEIVE_SECONDS
                if now - channel.creation_time > bound.value:
                    channel.handle_close()
        except Exception:
            structlog.get_logger("eosframework.http").exception("http_turn_failed")
            time.sleep(_PAUSE_SECONDS)
        if self._spare is None:
            with suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY)

    def _channels(self) -> list[Any]:
        return list(self.active_channels.values())

    def _slowest(self) -> Any:
        """Return the oldest connection that waits for its client rather than for a page."""
        channels = self._channels()
        waited_for = [channel for channel in channels if not channel.requests]
        return min(waited_for or channels, key=lambda channel: channel.creation_time)

    def _release_descriptor(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            self.handle_accept()
        elif self._channels():
            self._slowest().handle_close()
        else:
            time.sleep(_PAUSE_SECONDS)


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
