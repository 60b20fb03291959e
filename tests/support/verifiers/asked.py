"""Asks a running process over HTTP, as Prometheus and probes do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.applications.pipeline import WorkerProcess, wait_until

ANY_PORT = "127.0.0.1:0"
PREFIX = "eosframework_"


def addresses_of(process: WorkerProcess, count: int = 1) -> list[str]:
    """Where a process, or each of its children, listens."""
    process.wait_for_event("http_serving", count)
    return [str(event["address"]) for event in process.events("http_serving")]


def get(address: str, path: str) -> tuple[int, bytes]:
    """Ask once; 0 is the status of one that does not answer."""
    connection = HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, HTTPException):
        return 0, b""
    finally:
        connection.close()


def get_json(address: str, path: str) -> tuple[int, Any]:
    status, content = get(address, path)
    return status, json.loads(content) if content else None


def not_ready(address: str) -> list[str]:
    """The codes of the reasons why a process is not ready."""
    status, content = get_json(address, "/readyz")
    assert content is None or content["ok"] is (status == 200)
    return ["silent"] if content is None else [reason["code"] for reason in content["reasons"]]


def wait_until_ready(address: str) -> None:
    wait_until(lambda: not not_ready(address), f"{address} ready")


class Scraped:
    """The metrics of processes at one moment, added up as `sum` of Prometheus does."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._samples: list[tuple[str, dict[str, str], float]] = []
        for address in addresses:
            status, content = get(address, "/metrics")
            for family in text_string_to_metric_families(content.decode()) if status == 200 else ():
                self._samples += [(s.name, s.labels, s.value) for s in family.samples]

    def sum(self, name: str, **labels: str) -> float:
        """The sum over all samples of this name with these labels; 0 where there is none."""
        return sum(
            value
            for found, having, value in self._samples
            if found == PREFIX + name and labels.items() <= having.items()
        )

    def labels(self, name: str) -> list[dict[str, str]]:
        return [having for found, having, _ in self._samples if found == PREFIX + name]
