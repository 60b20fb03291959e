"""Ports on 127.0.0.1: free ones, the processes that use others, and the readiness of brokers."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Collection
from typing import BinaryIO

import psutil

from eosframework.errors import ConfigurationError

HOST = "127.0.0.1"

_BELOW_EPHEMERAL = range(15_000, 32_000)
"""A broker keeps its port while it is down. Ports from 32768 on are used for outgoing connections,
and such a connection would prevent the broker's restart."""

_CHANCE = random.SystemRandom()
"""Independent of `random`: a program may seed that to the same value in each of its processes."""


def free_ports(count: int, besides: Collection[int] = ()) -> list[int]:
    """Return ports that nothing listens on, outside the range of outgoing connections.

    Args:
        count: number of ports; they differ from each other.
        besides: ports that are reserved for a server that does not listen yet.
    """
    ports: list[int] = []
    for port in _CHANCE.sample(_BELOW_EPHEMERAL, k=len(_BELOW_EPHEMERAL)):
        if port not in besides and is_free(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise ConfigurationError(f"{count} free ports on {HOST} were not found; free some")


def is_free(port: int) -> bool:
    """Return True if a server could listen on `port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As in Java: a port whose last connections are in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def require_free(port: int) -> None:
    """Raise if a broker cannot listen on `port`.

    Raises:
        ConfigurationError: the port is taken; names it and, if known, the process.
    """
    if not is_free(port):
        raise ConfigurationError(
            f"port {port} on {HOST} is taken{_by_whom(port)}; "
            f"stop what uses it, or choose another port"
        )


def live_brokers(port: int, timeout_seconds: float = 2.0) -> frozenset[int]:
    """Return the ids of the live brokers that the broker on `port` knows; empty without an answer.

    A broker is included only once the controller has unfenced it, so this shows readiness and not
    only an open port.
    """
    # One Metadata request (api key 3, version 1, correlation id 1, no client id) for no topics.
    request = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    try:
        with socket.create_connection((HOST, port), timeout=timeout_seconds) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.makefile("rb")
            _size, _correlation, count = struct.unpack(">iii", answer.read(12))
            return frozenset(_read_broker_id(answer) for _ in range(count))
    except (OSError, struct.error):
        return frozenset()


def _read_broker_id(answer: BinaryIO) -> int:
    """Read one broker (node_id, host, port, rack) of a Metadata answer."""
    node_id, host_length = struct.unpack(">ih", answer.read(6))
    answer.read(host_length + 4)
    (rack_length,) = struct.unpack(">h", answer.read(2))
    answer.read(max(rack_length, 0))
    return node_id


def _by_whom(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            taken = connection.laddr and connection.laddr.port == port
            if taken and connection.status == psutil.CONN_LISTEN and connection.pid:
                name = psutil.Process(connection.pid).name()
                return f" by {name} (pid {connection.pid})"
    except psutil.Error:
        pass
    return ""
