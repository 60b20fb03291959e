"""A worker that keeps copies takes a dead one's tasks over without reading their stores again."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from eosframework.engine.restoration.standby_assignment import Member, owners
from tests.conftest import KafkaService
from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until

KEYS, PARTITIONS = 5000, 4
TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: string, value: bytes}
streams:
  counted:
    from: numbers
    steps: [count: {}]
    to: {topic: NAME.counted}
"""


class Counted(Pipeline):
    """Counts per key, in workers that have a machine each, as far as their stores can tell."""

    def __init__(self, bootstrap_servers: str, name: str, directory: Path) -> None:
        super().__init__(
            bootstrap_servers,
            name,
            directory,
            topology=TOPOLOGY,
            partitions=PARTITIONS,
            outputs={"counted": 1},
        )
        self.apply()

    def feed_rounds(self, rounds: int) -> None:
        """Append each key so often."""
        producer = self._new_producer()
        for number in range(rounds * KEYS):
            key = number % KEYS
            producer.produce(self.source, b"x", b"%d" % key, key % PARTITIONS)
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def start(self, machine: str, copies: int, producers: str) -> WorkerProcess:
        settings = [
            f"state.directory={self.directory / machine}",
            f"state.standby_copies={copies}",
            f"worker.ids={producers}",
            "worker.session_timeout_seconds=6",
        ]
        return self.start_worker(instance=machine, settings=settings)

    def counts(self) -> dict[str, list[int]]:
        """The results that went out, by key."""
        found: dict[str, list[int]] = defaultdict(list)
        for message in self.read(f"{self.name}.counted"):
            key = (message.key() or b"").decode()
            found[key].append(int.from_bytes(message.value() or b"", "big"))
        return found


def tasks_of(worker: WorkerProcess, event: str) -> list[int]:
    return sorted({int(str(e["task"])[:-1].split("[")[1]) for e in worker.events(event)})


def restored(worker: WorkerProcess, partitions: list[int]) -> int:
    """How many records the worker read of these partitions' changelogs before it ran them."""
    return sum(
        int(str(event["records"]))
        for event in worker.events("state_restored")
        if int(str(event["changelog"])[:-1].split("[")[1]) in partitions
    )


@pytest.mark.parametrize(
    ("copies", "producers"),
    [
        pytest.param(1, "partition", marks=pytest.mark.exhaustive),
        pytest.param(0, "partition", marks=pytest.mark.exhaustive),
        (1, "worker"),
        pytest.param(0, "worker", marks=pytest.mark.exhaustive),
    ],
    ids=["standby", "none", "standby_shared", "none_shared"],
)
def test_a_takeover_reads_the_tail_of_what_was_kept_and_all_of_what_was_not(
    kafka: KafkaService,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    copies: int,
    producers: str,
) -> None:
    name = unique_name("standby")
    counted = Counted(kafka.bootstrap_servers, name, tmp_path / name)
    try:
        counted.feed_rounds(6)
        dying = counted.start("a.10", copies, producers)
        # Were the other one alone for a while, it would have stores of its own.
        dying.wait_for_event("task_assigned", PARTITIONS)
        living = counted.start("a.2", copies, producers)
        members = [Member(f"{name}.a.10", "here"), Member(f"{name}.a.2", "here")]
        owned = owners(members, PARTITIONS)
        first = [p for p, owner in enumerate(owned) if owner == members[0]]
        second = [p for p, owner in enumerate(owned) if owner == members[1]]
        assert first
        assert second
        wait_until(lambda: counted.committed() >= 6 * KEYS, "all of the first rounds")
        wait_until(
            lambda: {*second} <= {*tasks_of(living, "task_assigned")}, "what is the other one's"
        )
        if copies:
            wait_until(
                lambda: tasks_of(living, "standby_up_to_date") == first, "copies of the other's"
            )
        counted.feed_rounds(1)
        wait_until(lambda: counted.committed() > 6 * KEYS, "work in progress")
        dying.signal(signal.SIGKILL)
        dying.wait()
        counted.feed_rounds(1)
        wait_until(lambda: counted.committed() >= 8 * KEYS, "the rest, by the other one")
        living.signal(signal.SIGTERM)
        assert living.wait() == 0, living.log[-3000:]

        assert counted.counts() == {str(key): list(range(1, 9)) for key in range(KEYS)}
        keys = KEYS * len(first) // PARTITIONS
        if copies:
            assert tasks_of(living, "standby_taken_over") == first
            assert restored(living, first) < keys / 4
        else:
            assert restored(living, first) >= keys
    finally:
        counted.stop()
