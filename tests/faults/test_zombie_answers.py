"""A worker that lost a partition answers for it no more, and a dead or stopped one delays nothing.

Q1 to Q3 are the steps of application/monitoring/owners.py.
"""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eosframework.serialization.bounds import FORWARDED
from tests.support.applications.answering import (
    KEYS,
    STORE,
    Answered,
    address_of,
    ask,
    counts,
    key,
    start_answering,
    wait_for_all,
)
from tests.support.applications.pipeline import WorkerProcess, wait_until
from tests.support.applications.totals import Totals

AT_ONCE = 6
"""Requests that wait in a stopped worker's socket, fewer than it answers at the same time."""


@pytest.fixture
def totals(kafka: Any, unique_name: Any, tmp_path: Path) -> Iterator[Totals]:
    name = unique_name("zombies")
    totals = Totals(kafka.bootstrap_servers, name, tmp_path / name, partitions=4)
    yield totals
    totals.stop()


def started(totals: Totals) -> tuple[dict[str, WorkerProcess], dict[str, str]]:
    """Two workers that have the whole counts; and their addresses."""
    totals.feed(300)
    workers = {name: start_answering(totals, name) for name in ("one", "two")}
    addresses = {name: address_of(worker) for name, worker in workers.items()}
    wait_until(
        lambda: (
            {a.worker for n in KEYS if (a := key(addresses["one"], n)).status == 200}
            == {"one", "two"}
        ),
        "two owners",
    )
    wait_for_all(totals, *addresses.values())
    return workers, addresses


def keys_of(addresses: dict[str, str], owner: str) -> list[str]:
    return [name for name in KEYS if key(addresses["one"], name).worker == owner]


def sent(address: str, path: str) -> socket.socket:
    """Send a request without waiting for the answer."""
    host, _, port = address.partition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return connection


def received(connection: socket.socket) -> bytes:
    with connection:
        answer = b""
        while part := connection.recv(65_536):
            answer += part
        return answer


def answered(connections: list[socket.socket]) -> int:
    """How many of the requests have an answer."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        return len(selector.select(0))


def timed(call: Callable[[], Answered]) -> tuple[Answered, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began


def test_a_worker_that_was_stopped_past_its_session_answers_nothing_that_it_lost(
    totals: Totals,
) -> None:
    workers, addresses = started(totals)
    lost = keys_of(addresses, "two")
    before, assigned = counts(totals), workers["two"].events("task_assigned")
    workers["two"].signal(signal.SIGSTOP)
    try:
        totals.feed(300)
        wait_for_all(totals, addresses["one"])  # the group has given its partitions away
        waiting = [
            sent(addresses["two"], f"/state/{STORE}/{lost[n % len(lost)]}?at={at}")
            for n, at in enumerate(["here", "owner"] * (AT_ONCE // 2))
        ]
        ranges = [sent(addresses["two"], f"/state/{STORE}?limit=1000") for _ in range(2)]
    finally:
        workers["two"].signal(signal.SIGCONT)
    # They are read while its main thread has not heard of the rebalance: Q3 refuses what Q2 found.
    for answer in map(received, waiting):
        status, _, body = answer.partition(b"\r\n")
        assert status.split()[1] in (b"200", b"421", b"503"), answer
        if b" 200 " in status:  # the owner's, through it
            assert f"Eos-Instance: {totals.name}.one".encode() in answer
            assert not any(b'"count":%d,' % before[name] in body for name in lost)
    for answer in map(received, ranges):
        assert b" 503 " in answer.partition(b"\r\n")[0], answer
    wait_for_all(totals, *addresses.values())
    # It requested what it would have read next, which the other one has purged; and joins again.
    workers["two"].wait_for_event("task_assigned", len(assigned) + 1)
    wait_for_all(totals, *addresses.values())
    assert totals.findings() == []


def test_a_stopped_owner_delays_its_own_keys_alone_until_its_session_ends(totals: Totals) -> None:
    workers, addresses = started(totals)
    own, others = keys_of(addresses, "one"), keys_of(addresses, "two")
    workers["two"].signal(signal.SIGSTOP)
    try:
        stopped, seconds = timed(lambda: key(addresses["one"], others[0]))
        assert stopped.status == 503
        assert f"worker '{totals.name}.two' does not answer" in stopped.content["error"]
        assert stopped.headers["Retry-After"] == "1"
        assert seconds < 9
        waiting = [sent(addresses["one"], f"/state/{STORE}/{others[0]}") for _ in range(10)]
        # It forwards few of them, and refuses the others at once.
        wait_until(
            lambda: answered(waiting) >= 10 - FORWARDED.value,
            "the refusal of the others",
        )
        assert key(addresses["one"], own[0]).status == 200
        for connection in waiting:
            assert received(connection).split()[1] == b"503"
        wait_for_all(totals, addresses["one"])
    finally:
        workers["two"].signal(signal.SIGCONT)


@pytest.mark.exhaustive
def test_a_dead_owner_s_keys_are_asked_for_again_until_another_worker_has_them(
    totals: Totals,
) -> None:
    workers, addresses = started(totals)
    others = keys_of(addresses, "two")
    workers["two"].signal(signal.SIGKILL)
    workers["two"].wait()
    dead, seconds = timed(lambda: key(addresses["one"], others[0]))
    assert (dead.status, dead.headers["Retry-After"]) == (503, "1")
    assert "does not answer at" in dead.content["error"]
    assert seconds < 6
    # Started again, it has the same partitions and another port.
    again = start_answering(totals, "two")
    address = address_of(again)
    assert address != addresses["two"]
    wait_for_all(totals, addresses["one"], address)
    assert {key(addresses["one"], name).worker for name in others} == {"two"}
    again.signal(signal.SIGKILL)
    again.wait()
    wait_for_all(totals, addresses["one"])
    assert ask(addresses["one"], f"/state/{STORE}/{others[0]}").status == 200
