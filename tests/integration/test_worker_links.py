"""The connection between a driver on Spark and a task that runs a worker."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import wait

import pytest

from eosframework.spark.workers import slot as links
from eosframework.spark.workers.slot import Link, LinkClosed, accepted, connect

KEY = b"k" * 32


@contextmanager
def pair(theirs: bytes = KEY) -> Generator[tuple[Link | None, Link | None]]:
    """Both sides of a connection: the driver's, whose key is `KEY`, and the task's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sides: list[Link | None] = [None, None]

        def task() -> None:
            try:
                sides[1] = connect(server.getsockname()[:2], theirs)
            except LinkClosed:
                sides[1] = None

        thread = threading.Thread(target=task)
        thread.start()
        taken, _ = server.accept()
        try:
            sides[0] = accepted(taken, KEY)
        except LinkClosed:
            sides[0] = None
        thread.join()
        yield sides[0], sides[1]
        for side in sides:
            if side is not None:
                side.close()


def test_messages_arrive_through_descriptors_above_1023() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        with ExitStack() as pairs:
            driver, task = pairs.enter_context(pair())
            # Threads of clients of earlier tests still close sockets: a pair keeps what they free.
            while driver is None or task is None or min(driver.fileno(), task.fileno()) <= 1023:
                driver, task = pairs.enter_context(pair())
            assert task.send({"instance": "a"})
            assert driver.first() == {"instance": "a"}
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_messages_arrive_and_nobody_waits_for_one() -> None:
    with pair() as (driver, task):
        assert driver is not None
        assert task is not None
        assert task.send({"instance": "a"})
        assert driver.first() == {"instance": "a"}
        assert driver.received() is None
        assert driver.send({"stop": True})
        wait([task.fileno()], 10)
        assert task.received() == {"stop": True}


def test_only_who_has_the_key_of_the_run_is_let_in() -> None:
    with pair(b"o" * 32) as (driver, task):
        assert driver is None
        assert task is None


def test_a_silent_stranger_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "HANDSHAKE_SECONDS", 1)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
    ):
        taken, _ = server.accept()
        with pytest.raises(LinkClosed):
            accepted(taken, KEY)


def test_a_driver_that_does_not_read_stops_nobody() -> None:
    with pair() as (driver, task):
        assert driver is not None
        assert task is not None
        while task.send({"counts": "x" * 10_000}):
            pass
        assert not task.send({"counts": "one more"})


def test_the_end_of_either_side_is_told() -> None:
    with pair() as (driver, task):
        assert driver is not None
        assert task is not None
        driver.close()
        wait([task.fileno()], 10)
        with pytest.raises(LinkClosed):
            task.received()
