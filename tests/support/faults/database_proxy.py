"""A TCP proxy in front of PostgreSQL that cuts a connection in the middle of COPY or of COMMIT.

It reads the client's messages (PostgreSQL's protocol 3.0: a type, a length, the rest), so a cut
happens exactly there, and it tells that it happened.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from typing import Self

from psycopg.conninfo import conninfo_to_dict

from tests.support.servers.databases import dsn_with


class Cut(StrEnum):
    """Where a connection is cut."""

    IN_COPY = "half of a message of COPY reached the server"
    BEFORE_COMMIT = "COMMIT did not reach the server"
    AFTER_COMMIT = "the server did COMMIT and its answer did not reach the client"
    LATE_COMMIT = "COMMIT is under way, and the client is told that the connection is gone"


class DatabaseProxy:
    """Forwards connections to a server, for the length of a `with` block."""

    def __init__(self, dsn: str) -> None:
        known = conninfo_to_dict(dsn)
        self._server = (str(known["host"]), int(str(known["port"])))
        self._dsn = dsn
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._wanted: Cut | None = None
        self._late: tuple[socket.socket, bytes] | None = None
        self.happened: list[Cut] = []

    @property
    def dsn(self) -> str:
        """The database by way of the proxy, without TLS."""
        through = dsn_with(self._dsn, host="127.0.0.1", port=self._port)
        return f"{through}?sslmode=disable&gssencmode=disable"

    def cut(self, where: Cut) -> None:
        """Cut the next connection that gets there with rows."""
        self._wanted = where

    def deliver(self) -> None:
        """Let the COMMIT that is under way arrive."""
        assert self._late is not None
        server, message = self._late
        server.sendall(message)

    def refuse(self) -> None:
        """End all connections and refuse new ones, as while no server runs."""
        _close(self._listener, *self._sockets)

    def accept(self) -> None:
        """Accept connections again."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._start()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._listener, *self._sockets)

    def _start(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                answered = threading.Event()
                for forward in (self._requests, self._answers):
                    threading.Thread(
                        target=forward, args=(client, server, answered), daemon=True
                    ).start()

    def _requests(
        self, client: socket.socket, server: socket.socket, hold_answers: threading.Event
    ) -> None:
        has_rows = False
        with suppress(OSError):
            for message in _messages(client):
                if message[:1] == b"d":
                    has_rows = True
                    if self._takes(Cut.IN_COPY):
                        server.sendall(message[: len(message) // 2])
                        self._happened(Cut.IN_COPY, client, server)
                        return
                if has_rows and message[:1] == b"Q" and message[5:].startswith(b"COMMIT"):
                    has_rows = False
                    if self._takes(Cut.BEFORE_COMMIT):
                        self._happened(Cut.BEFORE_COMMIT, client, server)
                        return
                    if self._takes(Cut.LATE_COMMIT):
                        self._late = server, message
                        self._happened(Cut.LATE_COMMIT, client)
                        return
                    if self._takes(Cut.AFTER_COMMIT):
                        hold_answers.set()
                server.sendall(message)
        if self._late is None or self._late[0] is not server:
            _close(server)

    def _answers(self, client: socket.socket, server: socket.socket, held: threading.Event) -> None:
        with suppress(OSError):
            while content := server.recv(65536):
                if held.is_set() and b"COMMIT\0" in content:
                    self._happened(Cut.AFTER_COMMIT, client, server)
                    return
                client.sendall(content)
        _close(client)

    def _takes(self, where: Cut) -> bool:
        with self._lock:
            if self._wanted is not where:
                return False
            self._wanted = None
            return True

    def _happened(self, where: Cut, *ends: socket.socket) -> None:
        _close(*ends)
        self.happened.append(where)


def _messages(client: socket.socket) -> Iterator[bytes]:
    """Give the client's messages; the first has no type."""
    with client.makefile("rb") as stream:
        kind = b""
        while len(size := stream.read(4)) == 4:
            yield kind + size + stream.read(int.from_bytes(size, "big") - 4)
            kind = stream.read(1)


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
