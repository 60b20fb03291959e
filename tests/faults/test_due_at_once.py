"""What one record makes due is closed in several transactions, and a kill between them shows not.

The verifier knows only what was fed: a window for each key, all of one hour, in the order of keys.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import KafkaService
from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until
from tests.support.processes.programs import megabytes

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: string, value: json}
streams:
  closed:
    from: numbers
    steps:
      - count: {window: {tumbling: 1h, grace: 0s}, emit: close, store: hours}
    to: {topic: NAME.closed}
"""

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS
CACHE_MB, ALLOWED_MB = 32, 100


class DueAtOnce(Pipeline):
    """The application, with a window for each number."""

    def __init__(self, bootstrap_servers: str, name: str, directory: Path) -> None:
        super().__init__(
            bootstrap_servers,
            name,
            directory,
            topology=TOPOLOGY,
            outputs={"closed": 1},
            partitions=1,
        )
        self.settings = [
            f"state.directory={directory / 'state'}",
            f"state.cache_bytes={CACHE_MB * 2**20}",
        ]
        self.apply()

    def feed_at(self, keys: range, hour: int) -> None:
        """Append a record of each key in an hour."""
        producer = self._new_producer()
        for key in keys:
            time = START_MS + hour * HOUR_MS
            producer.produce(self.source, b"{}", f"{key:07}".encode(), 0, timestamp=time)
            if key % 1000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def finish_within(self, seconds: float, bound: dict[str, str]) -> int:
        """Let a worker read the input to its end; return the most memory it had, in megabytes."""
        worker = self.start_worker(settings=self.settings, until_caught_up=True, environment=bound)
        most = 0

        def ended() -> bool:
            nonlocal most
            with suppress(OSError, ValueError):
                most = max(most, megabytes(worker.process.pid, "VmHWM"))
            return worker.process.poll() is not None

        wait_until(ended, "the end of the input", seconds)
        assert worker.wait(seconds) == 0, worker.log[-4000:]
        return most

    def closed(self) -> list[tuple[str, int, int]]:
        """Return key, start and count of the windows that went out, in their order."""
        results = [
            (m.key(), json.loads(m.value() or b"")) for m in self.read(f"{self.name}.closed")
        ]
        return [((key or b"").decode(), r["start"], r["value"]) for key, r in results]


@pytest.fixture
def due(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[DueAtOnce]:
    name = unique_name("due")
    made = DueAtOnce(kafka.bootstrap_servers, name, tmp_path / name)
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("windows", "bound", "seconds"),
    [
        pytest.param(20_000, {"EOS_TEST_CLOSED": "1000"}, 120, id="small"),
        pytest.param(600_000, {}, 900, id="large", marks=pytest.mark.exhaustive),
    ],
)
def test_windows_that_are_due_at_once_close_once_and_in_order_and_in_bounded_memory(
    due: DueAtOnce, windows: int, bound: dict[str, str], seconds: float
) -> None:
    due.feed_at(range(windows), hour=0)
    due.finish_within(seconds, bound)
    assert due.closed() == []
    due.feed_at(range(1), hour=2)
    victim: WorkerProcess = due.start_worker(
        settings=due.settings, faults=["transaction.after_commit=kill@5"], environment=bound
    )
    victim.wait_for_fault("transaction.after_commit", seconds)
    assert victim.wait() == -signal.SIGKILL
    assert 0 < len(due.closed()) < windows / 2
    # No further record comes: what is left follows from the stores and stream time.
    most = due.finish_within(seconds, bound)
    assert due.closed() == [(f"{key:07}", START_MS, 1) for key in range(windows)]
    idle = due.finish_within(seconds, bound)
    assert most <= idle + CACHE_MB + ALLOWED_MB, f"{most} MB, and {idle} MB with nothing due"
