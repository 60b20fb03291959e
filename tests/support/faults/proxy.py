"""A TCP proxy in front of a Kafka broker that can hold one request and deliver it late.

It understands no more of a request than its frame: a length of four bytes, then the number of its
kind (api key). Holding a request closes its connection, as a network would that broke just then;
the client repeats it over another connection, and the first frame is still somewhere on its way
until `HeldRequest.deliver`.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError

from eosframework.kafka.inspect.vendor import consumer_protocol, producer_protocol
from tests.support.processes.waiting import PATIENCE_SECONDS

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = (
    *(0, 22),
    *(24, 25, 26, 28),
)
"""Api keys of the requests that matter to a transaction."""

JOIN_GROUP = 11
"""Api key of the request by which a consumer becomes a member of its group."""

_RESPONSES: dict[int, Any] = {
    PRODUCE: producer_protocol.ProduceResponse,
    INIT_PRODUCER_ID: producer_protocol.InitProducerIdResponse,
    ADD_PARTITIONS: producer_protocol.AddPartitionsToTxnResponse,
    ADD_OFFSETS: producer_protocol.AddOffsetsToTxnResponse,
    END_TXN: producer_protocol.EndTxnResponse,
    TXN_OFFSET_COMMIT: producer_protocol.TxnOffsetCommitResponse,
    JOIN_GROUP: consumer_protocol.JoinGroupResponse,
}


Watcher = Callable[[int, bytes, bool], None]
"""Takes a request's api key and frame, and whether it was held or its connection broken."""


class HeldRequest:
    """A request that a proxy holds, or will hold as soon as it comes.

    Args:
        api_key: its kind.
        containing: bytes of its frame, such as a transactional.id or a record's value.
        repeated: break the connections of its repetitions as well, until `let_repetitions_pass`.
        where: what else its frame must be, such as an EndTxn that commits.
    """

    def __init__(
        self,
        api_key: int,
        containing: bytes = b"",
        *,
        repeated: bool = False,
        where: Callable[[bytes], bool] = lambda _: True,
    ) -> None:
        self.api_key = api_key
        self._containing = containing
        self._where = where
        self._frame = b""
        self._broker = ("", 0)
        self._came = threading.Event()
        self._passes = threading.Event()
        if not repeated:
            self._passes.set()

    @property
    def came(self) -> bool:
        """Whether the request came and is held."""
        return self._came.is_set()

    def wait(self, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the request came; a test whose fault did not happen shows nothing."""
        assert self._came.wait(timeout_seconds), f"no request {self.api_key} came to be held"

    def let_repetitions_pass(self) -> None:
        """Let the client succeed with its next attempt."""
        self._passes.set()

    def deliver(self, timeout_seconds: float = PATIENCE_SECONDS) -> frozenset[str]:
        """Let the request arrive at the broker, and return the errors in the broker's response."""
        self.wait(0)
        with socket.create_connection(self._broker, timeout=timeout_seconds) as broker:
            broker.sendall(self._frame)
            (size,) = struct.unpack(">i", _read(broker, 4))
            response = _read(broker, size)
        return _errors(self.api_key, self._frame, response)

    def takes(self, api_key: int, frame: bytes, broker: tuple[str, int]) -> bool:
        """Keep the frame if it is the one to hold, and tell whether its connection must break."""
        if api_key != self.api_key or self._containing not in frame or not self._where(frame):
            return False
        if self._came.is_set():
            return not self._passes.is_set()
        self._frame, self._broker = frame, broker
        self._came.set()
        return True


class Holds:
    """What the proxies of a cluster hold; the first of them that a request comes to takes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[HeldRequest] = []
        self._watcher: Watcher | None = None

    def watch(self, watcher: Watcher | None) -> None:
        """Show `watcher` each request from now on; None: nothing watches."""
        with self._lock:
            self._watcher = watcher

    def add(self, held: HeldRequest) -> HeldRequest:
        """Hold that request when it comes."""
        with self._lock:
            self._held.append(held)
        return held

    def clear(self) -> None:
        """Hold nothing any more."""
        with self._lock:
            self._held.clear()

    def take(self, api_key: int, frame: bytes, broker: tuple[str, int]) -> bool:
        """Tell whether the connection that a frame came over must break."""
        with self._lock:
            taken = any(held.takes(api_key, frame, broker) for held in self._held)
            if self._watcher is not None:
                self._watcher(api_key, frame, taken)
            return taken


class FrameProxy:
    """Forwards connections to a broker, whose advertised address is the proxy's.

    Args:
        broker_port: of the broker's listener, on 127.0.0.1.
        port: to listen on; None: a free one.
        holds: shared with the proxies of other brokers; None: its own.
    """

    def __init__(
        self, broker_port: int, port: int | None = None, holds: Holds | None = None
    ) -> None:
        self._broker = ("127.0.0.1", broker_port)
        self._listener = socket.create_server(("127.0.0.1", port or 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._all_holds = holds or Holds()
        self._own_holds = Holds()
        self._connections: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def hold(self, api_key: int, containing: bytes = b"", *, repeated: bool = False) -> HeldRequest:
        """Hold the next such request to this broker and break its connection."""
        return self._own_holds.add(HeldRequest(api_key, containing, repeated=repeated))

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
                try:
                    for connection in (client, broker):
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                except OSError:  # the client is gone already
                    self._end(client, broker)
                    continue
                if self._listener.fileno() < 0:  # closed meanwhile
                    self._end(client, broker)
                    break
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
                if any(
                    holds.take(api_key, frame, self._broker)
                    for holds in (self._own_holds, self._all_holds)
                ):
                    break
                broker.sendall(frame)
        self._end(client, broker)

    def _responses(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := broker.recv(65_536):
                client.sendall(data)
        self._end(client, broker)

    def _end(self, *connections: socket.socket) -> None:
        with self._lock:
            self._connections -= set(connections)
        for connection in connections:
            _close(connection)


def _errors(api_key: int, frame: bytes, response: bytes) -> frozenset[str]:
    (version,) = struct.unpack(">h", frame[6:8])
    if (api_key, version) == (TXN_OFFSET_COMMIT, 6):
        codes = _codes_by_topic_id(response)
    else:
        decoded = _RESPONSES[api_key].decode(response, version=version, header=True)
        codes = _error_codes(decoded.to_dict())
    return frozenset(KafkaError(code).name() for code in codes if code)


def _codes_by_topic_id(response: bytes) -> Iterator[int]:
    """Yield the codes of a TxnOffsetCommit that has ids for names (KIP-1319), of few topics."""
    at = 4 + 1 + 4  # the request's number, no tagged fields, the time of throttling
    topics, at = response[at] - 1, at + 1
    for _ in range(topics):
        partitions, at = response[at + 16] - 1, at + 17
        for _ in range(partitions):
            (code,) = struct.unpack_from(">h", response, at + 4)
            yield code
            at += 7  # with its number and no tagged fields
        at += 1


def _error_codes(part: Any) -> Iterator[int]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name.endswith("error_code"):  # AddPartitionsToTxn has partition_error_code
                yield value
            else:
                yield from _error_codes(value)
    elif isinstance(part, list):
        for entry in part:
            yield from _error_codes(entry)


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
