"""Clients of a server that never finish a request, and come back when they are sent away."""

from __future__ import annotations

import resource
import socket
import threading
import time
from dataclasses import dataclass
from typing import Self

BEGINNING = b"GET /state HTTP/1.1\r\nHost: localhost\r\nX-More: "
ROUND_SECONDS = 1.0
APART_SECONDS = 0.002
"""Connections that come all at once wait in the kernel, which sets some of them back for long."""


def allow_descriptors(count: int) -> int:
    """Let this process open so many more, and return how many it may open then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = soft if soft == resource.RLIM_INFINITY else max(soft, count + 500)
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return count if wanted == resource.RLIM_INFINITY else min(count, wanted - 500)


@dataclass
class Client:
    """One of them; `is_made`: the server, or its backlog, has taken the connection."""

    socket: socket.socket | None
    is_made: bool = False


class SlowClients:
    """For the length of a `with` block, `count` connections that send a byte each second.

    Attributes:
        made: connections that were established so far.
        sent_away: those of them that the server ended.
    """

    def __init__(self, address: str, count: int) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._clients = [Client(None)] * count
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slow-clients")
        self.made = 0
        self.sent_away = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.is_set():
            began = time.monotonic()
            self._clients = [self._go_on(client) for client in self._clients]
            self._ends.wait(max(0.0, began + ROUND_SECONDS - time.monotonic()))
        for client in self._clients:
            if client.socket is not None:
                client.socket.close()

    def _go_on(self, client: Client) -> Client:
        if client.socket is None:
            return self._connect()
        try:
            client.socket.send(b"x" if client.is_made else BEGINNING)
        except BlockingIOError:  # it waits in the server's backlog
            return client
        except OSError:
            client.socket.close()
            self.sent_away += client.is_made
            return self._connect()
        self.made += not client.is_made
        client.is_made = True
        return client

    def _connect(self) -> Client:
        self._ends.wait(APART_SECONDS)
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(self._address)
        return Client(client)
