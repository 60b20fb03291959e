"""An application whose workers are replaced by those of a newer topology.

Every update of a key's count goes out with the topology that made it, so the outputs of one key
have to count up from 1 without a gap and without a repetition, whoever made them. What the new
topology alone writes has to be exactly what it alone has counted.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import Pipeline, WorkerProcess, number_in
from tests.support.processes.commands import Folder, here

OLD = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  counted:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - count: {}
      - map_values: "tests.support.applications.upgraded:by_the_old"
    to: {topic: NAME.counted, value: json}
"""

NEW = (
    OLD.replace("by_the_old", "by_the_new")
    + """\
  copied:
    from: counted
    steps: [{filter: "tests.support.applications.upgraded:is_anything"}]
    to: {topic: NAME.copied, value: json}
"""
)


def by_the_old(count: int) -> dict[str, int | str]:
    return {"count": count, "by": "old"}


def by_the_new(count: int) -> dict[str, int | str]:
    return {"count": count, "by": "new"}


def is_anything(_value: dict[str, int | str]) -> bool:
    return True


class Upgraded(Pipeline):
    """The application, with a file for each of its topologies."""

    def __init__(self, bootstrap_servers: str, name: str, directory: Path) -> None:
        super().__init__(bootstrap_servers, name, directory, topology=OLD, outputs={"counted": 1})
        self.old_file = self.topology_file
        self.new_file = directory / "newer.yaml"
        self.new_file.write_text(NEW.replace("NAME", name))
        self.folder = Folder(directory, bootstrap_servers)
        applied = here("apply", str(self.old_file), *self.server)
        assert applied.exit_code == 0, applied.err

    @property
    def server(self) -> tuple[str, str]:
        """The setting that reaches the broker."""
        return "--set", f"kafka.bootstrap_servers={self.bootstrap_servers}"

    def work(self, place: str, *, is_new: bool) -> WorkerProcess:
        """Start a worker of one of the topologies."""
        self.topology_file = self.new_file if is_new else self.old_file
        settings = [
            f"state.directory={self.directory / 'state'}",
            "worker.session_timeout_seconds=6",
            "worker.commit_interval_seconds=0.1",
        ]
        return self.start_worker(instance=place, settings=settings)

    def counted_by(self, topology: str) -> int:
        """How many counts a topology has made so far."""
        return sum(
            json.loads(message.value() or b"")["by"] == topology
            for message in self.read(f"{self.name}.counted")
        )

    def is_complete(self) -> bool:
        """Whether every number of the input is counted."""
        return len(self.read(f"{self.name}.counted")) >= self.fed

    def sent_aside(self, topic: str) -> None:
        """Put a record into a topic of the application's own that it has not read yet."""
        producer = feeder(self.bootstrap_servers)
        producer.produce(topic, b'{"n": 1}', b"1", 0)
        assert producer.flush(60) == 0

    def findings(self) -> list[str]:
        """What is wrong in the outputs."""
        fed = Counter(str(number_in(message) % 10) for message in self.read(self.source))
        counts: dict[str, list[int]] = defaultdict(list)
        by_new: Counter[tuple[str, int]] = Counter()
        for message in self.read(f"{self.name}.counted"):
            key, value = (message.key() or b"").decode(), json.loads(message.value() or b"")
            counts[key].append(value["count"])
            if value["by"] == "new":
                by_new[key, value["count"]] += 1
        found = [
            f"counts of {key} are not 1 to {number}: {counts[key][-20:]}"
            for key, number in fed.items()
            if counts[key] != list(range(1, number + 1))
        ]
        copied = Counter(
            ((m.key() or b"").decode(), json.loads(m.value() or b"")["count"])
            for m in self.read(f"{self.name}.copied")
        )
        if copied != by_new:
            found.append(
                f"copied too often: {[*(copied - by_new)][:5]}, missing: {[*(by_new - copied)][:5]}"
            )
        return found
