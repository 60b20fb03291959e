"""The connections of a server: one thread that waits for all of them, and a few for the pages.

Clients can do nothing to the process but occupy what is set aside for them:

- At most `MOST_CONNECTIONS` are open. Another one takes the place of the one that has kept the
  server waiting for the longest time, so a probe is let in however many slow clients there are.
- A request has `ASK_SECONDS` to arrive and `REQUEST_SECONDS` until its answer is taken, in total:
  a byte now and then wins no time.
- Probes are answered by the thread that waits, other pages by at most `MOST_ANSWERING` threads, so
  scans of large stores keep no probe waiting.
- Where the process has no descriptor left, the server gives up one of its own.
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

from eosframework.monitoring.http.exchange import Asked, Exchange, Site, answer_of, failed
from eosframework.monitoring.http.pages import Answer, NotServed

MOST_CONNECTIONS = 64
"""Descriptors that clients can take."""

MOST_ANSWERING = 8
"""Pages, probes apart, that are made at a time."""

ASK_SECONDS = 5.0
"""From the connection to the end of the request."""

REQUEST_SECONDS = 10.0
"""From the connection to the last byte of the answer."""

PROBES = frozenset({"livez", "readyz"})
"""Pages that wait for nothing."""

_PAUSE_SECONDS = 0.02
"""After so many new connections in one turn that more must be waiting: the thread competes with
that which processes records."""

_CHUNK = 65_536
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


@dataclass(slots=True, eq=False)
class _Connection:
    """A client.

    Args:
        began_at: by the monotonic clock.
        exchange: what it asks.
        is_answering: a thread makes the page.
        out: what it has not taken yet of the answer; None: there is none yet.
    """

    socket: socket.socket
    began_at: float
    exchange: Exchange
    is_answering: bool = False
    out: memoryview | None = None

    @property
    def ends_at(self) -> float:
        """When it has had all its time."""
        has_asked = self.is_answering or self.out is not None
        return self.began_at + (REQUEST_SECONDS if has_asked else ASK_SECONDS)


class Connections:
    """Accepts, reads, answers and closes, on the thread that calls `serve`.

    Args:
        listener: listens already; not blocking. It is closed at the end.
        site: what is served.

    Raises:
        OSError: the process has no descriptor left for it.
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
        """Answer until `stop`; then close everything."""
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
        """Let `serve` return; any thread may call it."""
        self._is_stopped = True
        self._wake()

    def _turn(self) -> None:
        now = time.monotonic()
        ends = min((c.ends_at for c in self._open.values()), default=None)
        ready = self._selector.select(None if ends is None else max(ends - now, 0.0))
        accepts = False
        # Clients that have asked already come before those that would take their places.
        for key, _ in ready:
            connection = self._open.get(key.fd)
            if connection is not None:
                self._go_on(connection)
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
        """Let clients in, and return how many."""
        for count in range(MOST_CONNECTIONS):
            try:
                client, _ = self._listener.accept()
            except BlockingIOError:
                return count
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR:
                    continue  # the client is gone again
                # Linux takes a descriptor before it looks for a client: there may be none, and
                # giving up the client that is being answered would serve nobody.
                if not self._is_awaited():
                    return count
                if not self._give_a_descriptor_up():
                    time.sleep(_PAUSE_SECONDS)
                    return count
                continue
            if len(self._open) >= MOST_CONNECTIONS:
                self._close(self._slowest())
            client.setblocking(False)
            connection = _Connection(client, time.monotonic(), Exchange(self._site))
            self._open[client.fileno()] = connection
            self._selector.register(client, selectors.EVENT_READ)
            # Most have sent their request by now: they cannot be in anybody's way.
            self._go_on(connection)
        return MOST_CONNECTIONS

    def _is_awaited(self) -> bool:
        """Tell whether a client waits to be let in."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        return bool(poll.poll(0))

    def _slowest(self) -> _Connection:
        """Return the client that is waited for, not it for a page, for the longest time."""
        waited_for = [c for c in self._open.values() if not c.is_answering]
        return min(waited_for or self._open.values(), key=lambda c: c.began_at)

    def _give_a_descriptor_up(self) -> bool:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            return True
        if self._open:
            self._close(self._slowest())
            return True
        return False

    def _go_on(self, connection: _Connection) -> None:
        """Read or send what is possible now."""
        try:
            if connection.out is not None:
                self._send(connection)
            else:
                self._receive(connection)
        except BlockingIOError:
            pass
        except OSError:  # clients go away as they like
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
            self._selector.unregister(connection.socket)  # what else it says is of no interest
            threading.Thread(
                target=self._make, args=(connection, asked), name="eos-http-page", daemon=True
            ).start()

    def _make(self, connection: _Connection, asked: Asked) -> None:
        """Make a page, on a thread of its own."""
        self._made.append((connection, answer_of(asked)))
        self._wake()

    def _begin_to_send(self, connection: _Connection, answer: Answer) -> None:
        try:
            content = connection.exchange.answer(answer)
        except Exception as error:  # what a page gave is no JSON
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
            # To close with bytes unread would reset the connection, and the answer be lost.
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
        with suppress(KeyError):  # while a page is made nothing is waited for
            self._selector.unregister(connection.socket)
        connection.socket.close()
        if self._spare is None:
            with suppress(OSError):  # others took it; it is tried again with the next one
                self._spare = os.open(os.devnull, os.O_RDONLY)

    # --- threads ------------------------------------------------------------------------

    def _wake(self) -> None:
        with suppress(OSError):  # it wakes already, or was stopped
            self._waker.send(b"\0")

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while self._woken.recv(_CHUNK):
                pass


def _fd(connection: _Connection) -> int:
    return connection.socket.fileno()
