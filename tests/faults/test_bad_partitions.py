"""A partition whose records are refused, or take long, stalls no other partition."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.applications.feeding import Feeder, feeder
from tests.support.applications.pipeline import Pipeline, number_in
from tests.support.processes.waiting import PATIENCE_SECONDS

PARTITIONS = 16
BAD = 3
"""The partition with bad records, once there are some."""

RECORDS_A_SECOND = 160
ROUND_SECONDS = 6
SLOW_SECONDS = 3.3
"""The time of a slow record; see `functions.sleep_if_bad`."""

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:FUNCTION"}]
    on_error: {dead_letter: NAME.dead}
    to: [{topic: NAME.doubled, value: json}]
"""


@dataclass
class Watched:
    """The delays of records of good partitions, from their sending to their reading.

    Args:
        every: each so many-th record of the bad partition is bad.
        number: of the next record.
        sent: monotonic time by number.
    """

    pipeline: Pipeline
    every: int
    number: int = 0
    sent: dict[int, float] = field(default_factory=dict)
    delays: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        servers = self.pipeline.bootstrap_servers
        self._producer: Feeder = feeder(servers, **{"linger.ms": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"{self.pipeline.name}.watch",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 5,
            }
        )
        output = f"{self.pipeline.name}.doubled"
        self._consumer.assign([TopicPartition(output, p, 0) for p in range(PARTITIONS)])

    def round(self, seconds: float, *, has_bad: bool) -> list[float]:
        """Send records for some seconds; return the delays of those of good partitions, sorted."""
        first, began = self.number, time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            while self.number - first < (now - began) * RECORDS_A_SECOND:
                self._send(has_bad=has_bad)
            self._look(0.005)
        wanted = {n for n in range(first, self.number) if n in self.sent}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not wanted <= self.delays.keys() and time.monotonic() < deadline:
            self._look(0.1)
        assert wanted <= self.delays.keys(), "records of good partitions are missing"
        return sorted(self.delays[n] for n in wanted)

    def close(self) -> None:
        self._consumer.close()

    def _send(self, *, has_bad: bool) -> None:
        n, partition = self.number, self.number % PARTITIONS
        is_bad = has_bad and partition == BAD and n // PARTITIONS % self.every == 0
        value = json.dumps({"n": n, "bad": is_bad}).encode()
        if partition != BAD:
            self.sent[n] = time.monotonic()
        self._producer.produce(self.pipeline.source, value, str(n).encode(), partition)
        self._producer.poll(0)
        self.number += 1

    def _look(self, seconds: float) -> None:
        for message in self._consumer.consume(500, seconds):
            if (n := number_in(message)) in self.sent:
                self.delays.setdefault(n, time.monotonic() - self.sent[n])


def p99(delays: list[float]) -> float:
    return delays[len(delays) * 99 // 100]


@pytest.fixture
def watched(make_pipeline: Callable[..., Pipeline]) -> Iterator[Callable[[str, int], Watched]]:
    made: list[Watched] = []

    def make(function: str, every: int) -> Watched:
        topology = TOPOLOGY.replace("FUNCTION", function)
        pipeline = make_pipeline(topology=topology, partitions=PARTITIONS, small_outputs=True)
        made.append(Watched(pipeline, every))
        return made[-1]

    yield make
    for watch in made:
        watch.close()


@pytest.mark.exhaustive
def test_a_partition_with_refused_records_delays_no_other(
    watched: Callable[[str, int], Watched],
) -> None:
    """A comparison of delays needs a machine of its own, which parallel tests have not."""
    watch = watched("inflate_bad", 2)
    worker = watch.pipeline.start_worker()
    watch.round(2, has_bad=False)
    good = p99(watch.round(ROUND_SECONDS, has_bad=False))
    watch.round(2, has_bad=True)
    bad = p99(watch.round(ROUND_SECONDS, has_bad=True))
    worker.end()
    assert len(worker.events("output_rejected")) > 3, worker.log[-3000:]
    assert bad <= 3 * good, f"p99 {good:.3f} s without refusals, {bad:.3f} s with"


@pytest.mark.exhaustive
def test_a_partition_with_slow_records_delays_others_by_their_time_alone(
    watched: Callable[[str, int], Watched],
) -> None:
    """A slow record fits into a transaction that is young when it begins.

    In one that has records of others it does not, and these are run again: once at most.
    """
    watch = watched("sleep_if_bad", 40)
    settings = ["worker.transaction_timeout_seconds=4", "worker.commit_interval_seconds=1"]
    worker = watch.pipeline.start_worker(settings=settings)
    watch.round(2, has_bad=False)
    delays = watch.round(5 * SLOW_SECONDS, has_bad=True)
    worker.end()
    assert delays[-1] > SLOW_SECONDS / 2, "no record was slow"
    assert delays[-1] < 2 * SLOW_SECONDS + 2
    assert len(worker.events("transaction_too_long")) <= 1, worker.log[-3000:]
