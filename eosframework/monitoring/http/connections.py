"""The connections of the HTTP server: one thread for I/O and probes, a few threads for pages.

Clients can use only a bounded share of the process:

- At most `MOST_CONNECTIONS` are open. A new one replaces the connection whose client has kept the
  server waiting for the longest time, so a probe is answered even if there are many slow clients.
- A request must arrive within `RECEIVE_SECONDS`, and its response must be received within
  `REQUEST_SECONDS`, both in total: single bytes do not extend these times.
- The I/O thread answers probes, and at most `MOST_ANSWERING` other threads answer pages, so scans
  of large stores do not delay probes.
- If the process has no file descriptor left, the server closes one of its own.
"""

from __future__ import annotations

import errno
import os
import select
import selectors
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

import structlog

from eosframework.monitoring.http.exchange import Exchange, PageRequest, Site, answer_of, failed
from eosframework.monitoring.http.pages import Answer, NotServed

MOST_CONNECTIONS = 64
"""Number of file descriptors that clients can use."""

MOST_ANSWERING = 8
"""Number of pages, other than probes, that are answered concurrently."""

RECEIVE_SECONDS = 5.0
"""From the connection to the end of the request."""

REQUEST_SECONDS = 10.0
"""From the connection to the last byte of the answer."""

PROBES = frozenset({"livez", "readyz"})
"""Pages that never block, which the I/O thread answers."""

_PAUSE_SECONDS = 0.02
"""Pause after a turn that accepted `MOST_CONNECTIONS`, since this thread competes with the thread
that processes records."""

_CHUNK = 65_536
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


@dataclass(slots=True, eq=False)
class _Connection:
    """A client's connection.

    Args:
        began_at: monotonic clock time, in seconds.
        exchange: its request and response.
        is_answering: a thread is running the page.
        out: the unsent part of the response; None: there is no response yet.
    """

    socket: socket.socket
    began_at: float
    exchange: Exchange
    is_answering: bool = False
    out: memoryview | None = None

    @property
    def ends_at(self) -> float:
        """Clock time at which the connection is overdue."""
        has_asked = self.is_answering or self.out is not None
        return self.began_at + (REQUEST_SECONDS if has_asked else RECEIVE_SECONDS)


class Connections:
    """Accepts and answers connections on the thread that calls `serve`.

    Args:
        listener: a listening, non-blocking socket, which `serve` closes.
        site: the server's pages and names.

    Raises:
        OSError: the process has no file descriptor left.
    """

    def __init__(self, listener: socket.socket, site: Site) -> None:
        self._listener = listener
        self._site = site
        self._open: dict[int, _Connection] = {}
        self._made: deque[tuple[_Connection, Answer]] = deque()
        self._answering = 0
        self._is_stopped = False
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def serve(self) -> None:
        """Answer requests until `stop`, then close all connections and the listener."""
        while not self._is_stopped:
            try:
                self._turn()
            except Exception:
                structlog.get_logger("eosframework.http").exception("http_turn_failed")
                time.sleep(_PAUSE_SECONDS)
        for connection in list(self._open.values()):
            self._close(connection)
        if self._spare is not None:
            os.close(self._spare)
        for each in (self._woken, self._waker, self._listener):
            each.close()
        self._selector.close()

    def stop(self) -> None:
        """Make `serve` return; may be called from any thread."""
        self._is_stopped = True
        self._wake()

    def _turn(self) -> None:
        now = time.monotonic()
        ends = min((c.ends_at for c in self._open.values()), default=None)
        ready = self._selector.select(None if ends is None else max(ends - now, 0.0))
        accepts = False
        # Serve existing connections before accepting new ones, which may replace them.
        for key, _ in ready:
            connection = self._open.get(key.fd)
            if connection is not None:
                self._advance(connection)
            elif key.fileobj is self._woken:
                self._drain()
            else:
                accepts = True
        while self._made:
            connection, answer = self._made.popleft()
            self._answering -= 1
            connection.is_answering = False
            if self._open.get(_fd(connection)) is connection:
                self._begin_to_send(connection, answer)
        self._end_overdue(time.monotonic())
        if accepts and self._accept() == MOST_CONNECTIONS:
            time.sleep(_PAUSE_SECONDS)

    # --- clients ------------------------------------------------------------------------

    def _accept(self) -> int:
        """Accept waiting clients and return their number."""
        for count in range(MOST_CONNECTIONS):
            try:
                client, _ = self._listener.accept()
            except BlockingIOError:
                return count
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR:
                    continue  # the client has disconnected
                # Linux allocates a descriptor before it looks for a client. If no client waits,
                # closing an existing connection would help no other one.
                if not self._has_waiting_client():
                    return count
                if not self._release_descriptor():
                    time.sleep(_PAUSE_SECONDS)
                    return count
                continue
            if len(self._open) >= MOST_CONNECTIONS:
                self._close(self._slowest())
            client.setblocking(False)
            connection = _Connection(client, time.monotonic(), Exchange(self._site))
            self._open[client.fileno()] = connection
            self._selector.register(client, selectors.EVENT_READ)
            # Most clients have sent their request by now and are done after this call.
            self._advance(connection)
        return MOST_CONNECTIONS

    def _has_waiting_client(self) -> bool:
        """Return whether a client waits to be accepted."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        return bool(poll.poll(0))

    def _slowest(self) -> _Connection:
        """Return the oldest connection that waits for its client rather than for a page."""
        waited_for = [c for c in self._open.values() if not c.is_answering]
        return min(waited_for or self._open.values(), key=lambda c: c.began_at)

    def _release_descriptor(self) -> bool:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            return True
        if self._open:
            self._close(self._slowest())
            return True
        return False

    def _advance(self, connection: _Connection) -> None:
        """Receive or send without blocking."""
        try:
            if connection.out is not None:
                self._send(connection)
            else:
                self._receive(connection)
        except BlockingIOError:
            pass
        except OSError:  # the client has disconnected
            self._close(connection)

    def _receive(self, connection: _Connection) -> None:
        data = connection.socket.recv(_CHUNK)
        if not data:
            self._close(connection)
            return
        try:
            asked = connection.exchange.receive(data)
        except NotServed as error:
            self._begin_to_send(connection, error.answer)
            return
        if asked is None:
            return
        if asked.name in PROBES:
            self._begin_to_send(connection, answer_of(asked))
        elif self._answering >= MOST_ANSWERING:
            busy = f"{MOST_ANSWERING} requests are being answered; ask again"
            self._begin_to_send(connection, NotServed(HTTPStatus.SERVICE_UNAVAILABLE, busy).answer)
        else:
            self._answering += 1
            connection.is_answering = True
            self._selector.unregister(connection.socket)  # further input is ignored
            threading.Thread(
                target=self._make, args=(connection, asked), name="eos-http-page", daemon=True
            ).start()

    def _make(self, connection: _Connection, asked: PageRequest) -> None:
        """Answer a page, on a thread of its own."""
        self._made.append((connection, answer_of(asked)))
        self._wake()

    def _begin_to_send(self, connection: _Connection, answer: Answer) -> None:
        try:
            content = connection.exchange.answer(answer)
        except Exception as error:  # the page's content cannot be encoded as JSON
            content = connection.exchange.answer(failed("", error))
        connection.out = memoryview(content)
        try:
            self._send(connection)
        except BlockingIOError:
            self._wait_for(connection, selectors.EVENT_WRITE)
        except OSError:
            self._close(connection)

    def _wait_for(self, connection: _Connection, event: int) -> None:
        with suppress(KeyError):
            self._selector.unregister(connection.socket)
        self._selector.register(connection.socket, event)

    def _send(self, connection: _Connection) -> None:
        assert connection.out is not None, "there is an answer"
        while connection.out:
            connection.out = connection.out[connection.socket.send(connection.out) :]
        with suppress(OSError):
            # Closing with unread input would reset the connection and lose the response.
            connection.socket.shutdown(socket.SHUT_WR)
            connection.socket.recv(_CHUNK)
        self._close(connection)

    def _end_overdue(self, now: float) -> None:
        for connection in list(self._open.values()):
            if connection.ends_at > now:
                continue
            if connection.is_answering:
                late = f"the page took longer than {REQUEST_SECONDS:g} s; ask for less, or later"
                self._begin_to_send(
                    connection, NotServed(HTTPStatus.SERVICE_UNAVAILABLE, late).answer
                )
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        descriptor = _fd(connection)
        if self._open.get(descriptor) is not connection:
            return
        del self._open[descriptor]
        with suppress(KeyError):  # not registered while a page is answered
            self._selector.unregister(connection.socket)
        connection.socket.close()
        if self._spare is None:
            with suppress(OSError):  # used elsewhere already; retried at the next close
                self._spare = os.open(os.devnull, os.O_RDONLY)

    # --- threads ------------------------------------------------------------------------

    def _wake(self) -> None:
        with suppress(OSError):  # the buffer is full, or the server has stopped
            self._waker.send(b"\0")

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while self._woken.recv(_CHUNK):
                pass


def _fd(connection: _Connection) -> int:
    return connection.socket.fileno()
