"""Workers that are asked for their stores all the time lose, double and disturb nothing."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.support.applications.pipeline import WorkerProcess, wait_until
from tests.support.applications.totals import Totals

RECORDS = 1500
STORE = "totals.aggregate"
ASKERS = 3


@pytest.fixture
def totals(kafka: Any, unique_name: Any, tmp_path: Path) -> Iterator[Totals]:
    name = unique_name("asked")
    totals = Totals(kafka.bootstrap_servers, name, tmp_path / name, partitions=4)
    yield totals
    totals.stop()


def start(totals: Totals, instance: str) -> WorkerProcess:
    """Start a worker with a directory of its own, as on a machine of its own."""
    settings = [
        *totals.keeping,
        f"state.directory={totals.directory / instance}",
        "worker.http_address=127.0.0.1:0",
    ]
    return totals.start_worker(instance=instance, settings=settings)


def scanned(worker: WorkerProcess) -> list[dict[str, Any]] | None:
    """What the worker's stores hold; None: it gives no answer now."""
    serving = worker.events("http_serving")
    if not serving:
        return None
    connection = HTTPConnection(str(serving[0]["address"]), timeout=60)
    try:
        connection.request("GET", f"/state/{STORE}?limit=1000")
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status in (200, 503), answer
        return answer["found"] if response.status == 200 else None
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


@contextmanager
def asked(workers: Sequence[WorkerProcess]) -> Iterator[Callable[[], int]]:
    """Ask workers without a pause; fail if a count of a key ever went back."""
    over, answers, wrong = threading.Event(), [0] * ASKERS, list[str]()

    def ask(number: int) -> None:
        seen: dict[str, int] = {}
        while not over.is_set():
            for worker in list(workers):
                for row in scanned(worker) or ():
                    key, count = row["key"], row["value"]["count"]
                    answers[number] += 1
                    if count < seen.get(key, 0):
                        wrong.append(f"{key}: {count} after {seen[key]}")
                    seen[key] = max(count, seen.get(key, 0))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(ASKERS)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: min(answers)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_partitions_move_and_workers_die_while_they_are_asked_for_their_stores(
    totals: Totals,
) -> None:
    totals.feed(RECORDS)
    workers = [start(totals, "one")]
    with asked(workers) as least:
        wait_until(lambda: least() > 0, "an answer for each that asks")
        workers.append(start(totals, "two"))
        totals.feed(RECORDS)
        wait_until(lambda: bool(scanned(workers[1])), "state of the second worker")
        workers[0].signal(signal.SIGKILL)
        workers[0].wait()
        totals.feed(RECORDS)
        count = least()

        def all_counted() -> bool:
            found = scanned(workers[1]) or []
            return sum(row["value"]["count"] for row in found) == totals.fed

        wait_until(all_counted, "all records in the second worker's stores")
        wait_until(lambda: least() > count, "answers after the first one's death")
    workers[1].signal(signal.SIGTERM)
    assert workers[1].wait() == 0
    assert totals.findings() == []
