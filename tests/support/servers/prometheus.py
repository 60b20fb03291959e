"""A real Prometheus that scrapes the processes of a test."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from eosframework.embedded.data_directory import free_ports
from tests.support.applications.pipeline import wait_until
from tests.support.servers.promtool import prometheus
from tests.support.verifiers.asked import get

STARTING = 503
"""What it answers while it reads its data."""


@dataclass(frozen=True)
class Prometheus:
    """Where it answers."""

    address: str

    def values(self, query: str) -> list[float]:
        """What the series that a query gives are now, those aside that are no number."""
        status, content = get(self.address, f"/api/v1/query?{urlencode({'query': query})}")
        if status in (0, STARTING):
            return []
        assert status == 200, f"{query}: {content}"
        answer: dict[str, Any] = json.loads(content)
        found = (float(s["value"][1]) for s in answer.get("data", {}).get("result", ()))
        return [value for value in found if not math.isnan(value)]


@contextmanager
def scraping(targets: Sequence[str], directory: Path) -> Iterator[Prometheus]:
    """Let a Prometheus look at processes every second; it has seen each of them once.

    Args:
        targets: host:port of each process.
        directory: for its data; does not exist yet.
    """
    directory.mkdir()
    job = {"job_name": "eosframework", "static_configs": [{"targets": list(targets)}]}
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [
        str(prometheus()),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    server = Prometheus(address)
    try:
        wait_until(
            lambda: server.values('sum(up{job="eosframework"})') == [len(targets)],
            f"a look at each of {targets}; see {directory / 'log'}",
        )
        yield server
    finally:
        process.kill()
        process.wait()
