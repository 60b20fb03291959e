"""`eosframework` that writes a line for each of its commit rounds, and breaks its own connections.

BENCH_ROUNDS is the file for the lines. With BENCH_BREAK_SECONDS its connections to BENCH_BROKER
(a port) are broken about that often: one of them and all of them, in turn.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO

import orjson

from eosframework.cli import main
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.transactions.ports import Commit, Committed


def watch_rounds(file: BinaryIO, started: threading.Event) -> None:
    """Write when each round began, what it took, and how many producers it replaced.

    Args:
        file: takes a line for each.
        started: is set after the first.
    """
    commit = ProducerPool.commit

    def timed(
        self: ProducerPool, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> list[Committed]:
        began = time.monotonic()
        found = commit(self, commits, within_seconds)
        line = {
            "at": began,
            "seconds": time.monotonic() - began,
            "producers": len(found),
            "recycled": sum(result.recycled for result in found),
        }
        file.write(orjson.dumps(line) + b"\n")
        file.flush()
        started.set()
        return found

    ProducerPool.commit = timed


def break_connections(port: int, seconds: float, started: threading.Event) -> None:
    """Break one connection, then all, then one …, at irregular moments, once it has started."""
    started.wait()
    only_one = True
    while True:
        time.sleep(random.uniform(0.75, 1.25) * seconds)
        found = connections_to(port)
        for connection in random.sample(found, 1) if only_one and found else found:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for connection in found:
            connection.close()
        only_one = not only_one


def connections_to(port: int) -> list[socket.socket]:
    """Return duplicates of this process's sockets that are connected to `port`."""
    found: list[socket.socket] = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            connection = socket.socket(fileno=os.dup(int(name)))
            if connection.family == socket.AF_INET and connection.getpeername()[1] == port:
                found.append(connection)
            else:
                connection.close()
    return found


if __name__ == "__main__":
    with open(os.environ["BENCH_ROUNDS"], "wb") as rounds_file:
        first_round = threading.Event()
        watch_rounds(rounds_file, first_round)
        if pause := os.environ.get("BENCH_BREAK_SECONDS"):
            threading.Thread(
                target=break_connections,
                args=(int(os.environ["BENCH_BROKER"]), float(pause), first_round),
                daemon=True,
            ).start()
        main()
