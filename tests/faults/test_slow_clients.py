"""Clients that occupy a worker's HTTP server change nothing for its work and its probes."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.applications.pipeline import Pipeline, WorkerProcess
from tests.support.faults.slow_clients import SlowClients, allow_descriptors
from tests.support.processes.waiting import wait_until, within
from tests.support.verifiers.asked import ANY_PORT, Scraped, addresses_of, get

DESCRIPTORS = 200
"""What the worker may open: fewer than there are clients."""

PROBES = 10


def may_open_few(worker: WorkerProcess) -> None:
    resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def descriptors_of(worker: WorkerProcess) -> int:
    return len(list(Path(f"/proc/{worker.process.pid}/fd").iterdir()))


def probes_are_answered(addresses: list[str]) -> None:
    for _ in range(PROBES):
        for address in addresses:
            for path in ("/livez", "/readyz"):
                status, _ = within(1.5, lambda a=address, p=path: get(a, p))
                assert status == 200 or (path == "/readyz" and status == 503), path


def running(address: str) -> float:
    return Scraped([address]).sum("tasks", state="running")


@pytest.mark.parametrize("clients", [600, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_slow_clients_keep_no_probe_no_commit_and_no_rebalance_waiting(
    clients: int, make_pipeline: Callable[..., Pipeline]
) -> None:
    count = allow_descriptors(clients)
    pipeline = make_pipeline(partitions=2)
    listening = [f"worker.http_address={ANY_PORT}"]
    worker = pipeline.start_worker(settings=listening)
    [address] = addresses_of(worker)
    may_open_few(worker)
    with SlowClients(address, count) as slow:
        wait_until(
            lambda: (
                (slow.made >= count and slow.sent_away > 0)
                or descriptors_of(worker) > DESCRIPTORS - 5
            ),
            "each client connected, or all descriptors taken",
        )
        probes_are_answered([address])
        pipeline.feed(200)
        wait_until(lambda: pipeline.committed() == pipeline.fed, "commits beside slow clients")
        second = pipeline.start_worker(settings=listening)
        addresses = [address, *addresses_of(second)]
        wait_until(lambda: running(addresses[1]) == 1, "a task taken over beside slow clients")
        pipeline.feed(200)
        wait_until(lambda: pipeline.committed() == pipeline.fed, "commits after a rebalance")
        probes_are_answered(addresses)
    for each in (worker, second):
        each.signal(signal.SIGTERM)
        assert each.wait() == 0, each.log[-3000:]
    assert pipeline.verify().clean, pipeline.verify()
