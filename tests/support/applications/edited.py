"""A program of a user that is edited between its runs."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.support.applications.pipeline import read_committed
from tests.support.processes.commands import Cluster, Folder
from tests.support.processes.programs import Finished
from tests.support.processes.waiting import wait_until


class Program:
    """A program of a user, edited between its runs."""

    def __init__(self, kafka: Any, name: str, directory: Path) -> None:
        self.name = name
        self.cluster = Cluster(kafka.bootstrap_servers)
        self.cluster.create(f"{name}.in")
        self._folder = Folder(directory, kafka.bootstrap_servers)

    def write(self, text: str) -> None:
        self._folder.write("shop.py", text.replace("NAME", self.name))

    @property
    def text(self) -> str:
        return (self._folder.path / "shop.py").read_text().replace(self.name, "NAME")

    def do(self, *command: str) -> Finished:
        """Run a command in a process of its own: the file is imported anew."""
        return self._folder.run(*command, environment={"EOS_STATE__DIRECTORY": "stores"})

    def produce(self, *values: bytes) -> None:
        self.cluster.feed(f"{self.name}.in", *values)

    def delete(self, topic: str) -> None:
        admin = self.cluster.admin
        admin.delete_topics([topic])[topic].result(60)
        wait_until(lambda: topic not in admin.list_topics(timeout=60).topics, "the deletion")

    def run(self) -> Finished:
        return self.do("run-worker", "shop.py", "--until-caught-up")

    def sent(self, topic: str) -> dict[str, list[int]]:
        """Return the values that went out for each key."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        bootstrap_servers = self.cluster.bootstrap_servers
        for record in read_committed(bootstrap_servers, f"{self.name}.{topic}"):
            found[(record.key() or b"").decode()].append(json.loads(record.value() or b""))
        return dict(found)
