"""A TCP proxy in front of a Kafka broker that can hold one request and deliver it late.

It understands no more of the protocol than a request's frame: a length of four bytes, then the
number of its kind (api key). Holding a request closes its connection, as a network would that
broke just then; the client repeats it over another connection, and the first frame is still
somewhere on its way until `HeldRequest.deliver`.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 0, 24, 25, 26, 28
"""Api keys of the requests that matter to a transaction."""


class HeldRequest:
    """A request that a proxy holds, or will hold as soon as it comes."""

    def __init__(self, api_key: int, broker: tuple[str, int]) -> None:
        self.api_key = api_key
        self._broker = broker
        self._frame = b""
        self._came = threading.Event()

    def take(self, frame: bytes) -> None:
        """Keep the frame."""
        self._frame = frame
        self._came.set()

    def wait(self, timeout_seconds: float = 10) -> None:
        """Wait until the request came; a test whose fault did not happen shows nothing."""
        assert self._came.wait(timeout_seconds), f"no request {self.api_key} came to be held"

    def deliver(self, timeout_seconds: float = 10) -> bytes:
        """Let the request arrive at the broker, and return the broker's response."""
        self.wait(0)
        with socket.create_connection(self._broker, timeout=timeout_seconds) as broker:
            broker.sendall(self._frame)
            (size,) = struct.unpack(">i", _read(broker, 4))
            return _read(broker, size)


class FrameProxy:
    """Forwards connections to a broker, whose advertised address is the proxy's.

    Args:
        broker_port: of the broker's listener, on 127.0.0.1.
        port: to listen on; None: a free one.
    """

    def __init__(self, broker_port: int, port: int | None = None) -> None:
        self._broker = ("127.0.0.1", broker_port)
        self._listener = socket.create_server(("127.0.0.1", port or 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._waiting: list[HeldRequest] = []
        self._connections: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def hold(self, api_key: int) -> HeldRequest:
        """Hold the next request of this kind and break its connection."""
        held = HeldRequest(api_key, self._broker)
        with self._lock:
            self._waiting.append(held)
        return held

    def break_connections(self) -> None:
        """Close every connection; new ones are accepted."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            _close(connection)

    def close(self) -> None:
        """Stop listening and close every connection."""
        _close(self._listener)
        self.break_connections()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection(self._broker)
                except OSError:
                    _close(client)
                    continue
                with self._lock:
                    self._connections |= {client, broker}
                for pump, source, target in (
                    (self._requests, client, broker),
                    (self._responses, broker, client),
                ):
                    threading.Thread(target=pump, args=(source, target), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError):
            while True:
                head = _read(client, 6)
                size, api_key = struct.unpack(">ih", head)
                frame = head + _read(client, size - 2)
                if self._holds(api_key, frame):
                    break
                broker.sendall(frame)
        self._end(client, broker)

    def _responses(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := broker.recv(65_536):
                client.sendall(data)
        self._end(client, broker)

    def _holds(self, api_key: int, frame: bytes) -> bool:
        with self._lock:
            held = next((held for held in self._waiting if held.api_key == api_key), None)
            if held is None:
                return False
            self._waiting.remove(held)
        held.take(frame)
        return True

    def _end(self, *connections: socket.socket) -> None:
        with self._lock:
            self._connections -= set(connections)
        for connection in connections:
            _close(connection)


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("the peer closed the connection")
        data += chunk
    return bytes(data)


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
