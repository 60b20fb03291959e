"""Workers with stores, and clients that ask any of them for keys over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from tests.support.applications.pipeline import WorkerProcess, number_in, wait_until
from tests.support.applications.totals import Totals

STORE = "totals.aggregate"
PARTITIONS = 4
KEYS = [str(number) for number in range(10)]


def start_answering(
    totals: Totals,
    instance: str,
    *settings: str,
    faults: Sequence[str] = (),
) -> WorkerProcess:
    """Start a worker with a directory of its own, as on a machine of its own."""
    chosen = [
        *totals.keeping,
        f"state.directory={totals.directory / instance}",
        "worker.http_address=127.0.0.1:0",
        *settings,
    ]
    return totals.start_worker(instance=instance, settings=chosen, faults=faults)


def address_of(worker: WorkerProcess) -> str:
    worker.wait_for_event("http_serving")
    return str(worker.events("http_serving")[-1]["address"])


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    content: Any
    headers: Mapping[str, str]

    @property
    def count(self) -> int:
        return self.content["found"][0]["value"]["count"]

    @property
    def worker(self) -> str:
        return self.headers["Eos-Instance"].rpartition(".")[2]


def ask(address: str, path: str, headers: Mapping[str, str] | None = None) -> Answered:
    connection = HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        response = connection.getresponse()
        content = json.loads(response.read())
        return Answered(response.status, content, dict(response.getheaders()))
    finally:
        connection.close()


def key(address: str, name: str, at: str = "owner") -> Answered:
    return ask(address, f"/state/{STORE}/{name}?at={at}")


def counts(totals: Totals) -> dict[str, int]:
    """The counts as they must be when all of the input is processed."""
    found = dict.fromkeys(KEYS, 0)
    for message in totals.read(totals.source):
        found[str(number_in(message) % 10)] += 1
    return found


def wait_for_all(totals: Totals, *addresses: str) -> None:
    """Wait until each worker answers for each key with the whole count."""
    whole = counts(totals)

    def complete() -> bool:
        answers = [(name, key(address, name)) for address in addresses for name in whole]
        assert all(answer.status in (200, 404, 503) for _, answer in answers)
        return all(a.status == 200 and a.count == whole[name] for name, a in answers)

    wait_until(complete, "the whole count of each key, from each worker")
