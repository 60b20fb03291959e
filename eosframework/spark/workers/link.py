"""The connection between the driver and a task that runs a worker.

Both sides prove that they have the run's key (HMAC, `multiprocessing.connection`); messages are
JSON. Neither side ever waits for the other: a driver that is suspended does not stop the workers.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

import orjson

MOST_BYTES = 65_536
CONNECT_SECONDS = 20.0
HANDSHAKE_SECONDS = 10
SILENT_SECONDS = 10
"""Time after which the kernel asks a silent peer for a sign of life; it ends the connection after
three times without an answer."""


class LinkClosed(Exception):
    """The other side has ended, or the connection is broken."""


class Link:
    """One side of a connection that is already proven."""

    def __init__(self, connection: Connection[bytes, bytes]) -> None:
        self._connection = connection
        self._room = select.poll()
        self._room.register(connection, select.POLLOUT)

    def fileno(self) -> int:
        """Return the file descriptor, for a selector."""
        return self._connection.fileno()

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send a message; return False without sending it if the other side does not read.

        Raises:
            LinkClosed: the other side has ended.
        """
        if not self._room.poll(0):
            return False
        try:
            self._connection.send_bytes(orjson.dumps(message))
        except OSError as error:
            raise LinkClosed from error
        return True

    def first(self) -> dict[str, Any]:
        """Wait for the first message of a task.

        Raises:
            LinkClosed: it does not come in time.
        """
        try:
            return orjson.loads(self._connection.recv_bytes(MOST_BYTES))
        except (EOFError, OSError, ValueError) as error:
            self.close()
            raise LinkClosed from error

    def received(self) -> dict[str, Any] | None:
        """Return the next message; None: there is none yet.

        Raises:
            LinkClosed: the other side has ended.
        """
        try:
            if not self._connection.poll():
                return None
            return orjson.loads(self._connection.recv_bytes(MOST_BYTES))
        except (EOFError, OSError, ValueError) as error:
            raise LinkClosed from error

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self._connection.close()


def connect(address: tuple[str, int], key: bytes) -> Link:
    """Connect to the driver.

    Raises:
        LinkClosed: it cannot be reached, or has another key.
    """
    try:
        taken = socket.create_connection(address, CONNECT_SECONDS)
    except OSError as error:
        raise LinkClosed(f"the driver cannot be reached at {address[0]}:{address[1]}") from error
    other = f"the driver at {address[0]}:{address[1]} is that of another run"
    return _proven(taken, (answer_challenge, deliver_challenge), key, other)


def accepted(taken: socket.socket, key: bytes) -> Link:
    """Return the driver's side of a connection that a task has made.

    Raises:
        LinkClosed: the other side does not prove in time that it has the key.
    """
    # Without a limit, a program that connects and stays silent would hold a thread for ever.
    limit = HANDSHAKE_SECONDS.to_bytes(8, "little") + bytes(8)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    stranger = "the other side did not prove that it has the key of this run"
    return _proven(taken, (deliver_challenge, answer_challenge), key, stranger)


def _proven(
    taken: socket.socket,
    steps: Sequence[Callable[[Connection[bytes, bytes], bytes], None]],
    key: bytes,
    refusal: str,
) -> Link:
    """Return one side of a connection once both have proven that they have the key.

    Raises:
        LinkClosed: `refusal`, if a step fails.
    """
    connection = _connection_of(taken)
    try:
        for step in steps:
            step(connection, key)
    except Exception as error:
        connection.close()
        raise LinkClosed(refusal) from error
    return Link(connection)


def _connection_of(taken: socket.socket) -> Connection[bytes, bytes]:
    taken.settimeout(None)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_SECONDS)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENT_SECONDS)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    return Connection(taken.detach())
