"""An application that reads topics by a pattern, and an independent verifier of its outputs.

The verifier knows what was fed, by topic: each record is once in the merged output, with the name
of its topic, and the counts of each key rise from 1 without a gap.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from eosframework import Record
from tests.support.applications.pipeline import KEEP, Pipeline
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

TOPOLOGY = """\
application: NAME
sources:
  numbers: {pattern: 'NAME\\.from\\..*', key: bytes, value: json}
streams:
  merged:
    from: numbers
    steps: [{map: "tests.support.applications.patterned:with_topic"}]
    to: [{topic: NAME.merged, value: json}]
  counted:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string, partitions: 3}
      - count: {store: counts}
    to: {topic: NAME.counted, value: json}
"""


def with_topic(record: Record[bytes, dict[str, Any]]) -> Record[bytes, dict[str, Any]]:
    """Add the name of the record's topic to its value."""
    return record.replace(value={**record.value, "topic": record.topic})


class Patterned(Pipeline):
    """The application, its workers, and what its outputs must say."""

    def __init__(self, bootstrap_servers: str, name: str, directory: Path, **options: Any) -> None:
        options = {"topology": TOPOLOGY, "outputs": {"merged": 1, "counted": 1}, **options}
        super().__init__(bootstrap_servers, name, directory, **options)
        self.sent: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def topic(self, ending: str) -> str:
        """A name that the pattern matches."""
        return f"{self.name}.from.{ending}"

    def create(self, ending: str, partitions: int) -> str:
        """Create a topic that the pattern matches, and return its name."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        topic = self.topic(ending)
        create_topics(admin, [NewTopic(topic, partitions, 1, config=KEEP)])
        self._counts[topic] = partitions
        return topic

    def delete(self, ending: str) -> None:
        """Delete a topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        topic = self.topic(ending)
        admin.delete_topics([topic])[topic].result(60)

    def send(self, ending: str, count: int) -> None:
        """Append the next numbers to a topic, in turn to its partitions."""
        topic = self.topic(ending)
        producer = self._producer = self._producer or self._new_producer()
        first = self.sent.get(topic, 0)
        for n in range(first, first + count):
            value = json.dumps({"n": n}).encode()
            producer.produce(topic, value, str(n).encode(), n % self._counts[topic])
        assert producer.flush(60) == 0
        self.sent[topic] = first + count

    def merged(self) -> Counter[tuple[str, int]]:
        """The merged records: topic and number."""
        values = [json.loads(m.value() or b"") for m in self.read(f"{self.name}.merged")]
        return Counter((value["topic"], value["n"]) for value in values)

    def wait_until_merged(self) -> None:
        """Wait until the output has at least as many records as were sent."""
        wanted = sum(self.sent.values())
        wait_until(lambda: self.merged().total() >= wanted, f"{wanted} merged records")

    def findings(self) -> list[str]:
        """What is wrong in the outputs."""
        expected = Counter((topic, n) for topic, count in self.sent.items() for n in range(count))
        merged = self.merged()
        found = [f"lost: {one}" for one in (expected - merged)]
        found += [f"too many: {one}" for one in (merged - expected)]
        counts: dict[str, list[int]] = defaultdict(list)
        for message in self.read(f"{self.name}.counted"):
            counts[(message.key() or b"").decode()].append(json.loads(message.value() or b""))
        keys = Counter(str(n % 10) for _, n in expected.elements())
        for key in {*keys, *counts}:
            if counts[key] != list(range(1, keys[key] + 1)):
                found.append(f"counts of {key}: {counts[key][-3:]}, {keys[key]} were sent")
        return found


def back_for_even(record: Record[bytes, dict[str, int]]) -> str:
    """Choose the record's own topic for an even number."""
    return (
        record.topic
        if record.value["n"] % 2 == 0
        else f"{record.topic.rpartition('.from.')[0]}.odd"
    )
