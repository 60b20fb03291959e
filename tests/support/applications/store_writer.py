"""A process that writes stores until it is killed, and what must be in them after each step.

`python -m tests.support.applications.store_writer DIRECTORY CACHE` forks a writer for each line it
reads, so that a restart takes no imports. A writer prints its process id, where it goes on, and
each step that was written.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from eosframework.config import StateSettings
from eosframework.state.rocksdb_backend import RocksState, RocksTaskStores
from tests.support.applications.stores import COUNTS, NAMES, TASK, content
from tests.support.processes.waiting import PATIENCE_SECONDS

CACHE_BYTES = 8 * 2**20
"""So little that each second of writing makes several files."""

LARGE_CACHE_BYTES = 128 * 2**20
"""So much that a second of writing makes no file."""

PIPE_BYTES = 2**12
"""A writer waits when so much of what it says was not read."""

APPLICATION = "flights"

KEYS = 3000
CHANGES_PER_STEP = 150

Changes = list[tuple[bytes, bytes | None]]


def backend(directory: Path, slot: str = "host.0", *, cache_bytes: int = CACHE_BYTES) -> RocksState:
    """Return the stores of a machine as one process has them."""
    settings = StateSettings(directory=directory, cache_bytes=cache_bytes)
    return RocksState(settings, APPLICATION, slot)


def open_task(state: RocksState) -> RocksTaskStores:
    return state.open(TASK, 4, [COUNTS, NAMES])


def changes(step: int) -> dict[str, Changes]:
    """Return what a step writes: puts and deletes all over both stores."""
    counts: Changes = []
    names: Changes = []
    for n in range(step * CHANGES_PER_STEP, (step + 1) * CHANGES_PER_STEP):
        key = b"%06d" % (n * 2654435761 % KEYS)
        counts.append((key, b"%d" % n * 8))
        names.append((key, None if n % 3 == 0 else b"%d" % step))
    return {"counts": counts, "names": names}


def write_step(stores: RocksTaskStores, step: int) -> None:
    stores.write(changes(step), {"counts": step + 1, "names": step + 1})


@dataclass
class Expected:
    """What the stores hold after `steps`; only grows."""

    steps: int = 0
    held: dict[str, dict[bytes, bytes]] = field(default_factory=lambda: {"counts": {}, "names": {}})

    def advance(self, steps: int) -> None:
        for step in range(self.steps, steps):
            for name, entries in changes(step).items():
                for key, value in entries:
                    if value is None:
                        self.held[name].pop(key, None)
                    else:
                        self.held[name][key] = value
        self.steps = max(self.steps, steps)

    def matches(self, stores: RocksTaskStores) -> bool:
        """Tell whether both stores are at these steps, with exactly their content."""
        return all(
            (stores.position(name) or 0) == self.steps and content(stores.store(name)) == held
            for name, held in self.held.items()
        )


@dataclass
class WriterHost:
    """Starts writers one after the other, and kills them."""

    process: subprocess.Popen[str]
    running: int | None = None

    def start(self) -> tuple[int, int]:
        """Start a writer; return its process id and the step at which it goes on."""
        self._input.write("go\n")
        self._input.flush()
        pid, begins_at = self._output.readline().split()
        self.running = int(pid)
        return self.running, int(begins_at)

    def wait_for(self, steps: int) -> int:
        """Wait until a writer has written some steps; return how many it said it had."""
        written = 0
        for _ in range(steps):
            written = int(self._output.readline())
        return written

    def wait_past(self, steps: int) -> int:
        """Wait until more than so many steps are written in all; return how many it said."""
        written = 0
        while written <= steps:
            written = int(self._output.readline())
        return written

    def kill_after(self, pid: int, steps: int) -> int:
        """Kill a writer when it has written some steps; return how many it said it had."""
        written = self.wait_for(steps)
        os.kill(pid, signal.SIGKILL)
        self.running = None
        for line in self._output:
            if line == "ended\n":
                break
            if line.endswith("\n"):
                written = int(line)
        return written

    @property
    def _input(self) -> IO[str]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def _output(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout


@contextmanager
def writers(directory: Path, cache_bytes: int = CACHE_BYTES) -> Iterator[WriterHost]:
    """Run a host of writers."""
    command = [
        sys.executable,
        "-m",
        "tests.support.applications.store_writer",
        str(directory),
        str(cache_bytes),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pipesize=PIPE_BYTES
    ) as process:
        host = WriterHost(process)
        try:
            yield host
        finally:
            if host.running is not None:
                os.kill(host.running, signal.SIGKILL)
            # A pipe that is full would keep the host from its end.
            process.communicate(timeout=PATIENCE_SECONDS)


def _write_until_killed(directory: Path, cache_bytes: int) -> None:
    stores = open_task(backend(directory, cache_bytes=cache_bytes))
    step = stores.position("counts") or 0
    os.write(1, b"%d %d\n" % (os.getpid(), step))
    while True:
        write_step(stores, step)
        step += 1
        os.write(1, b"%d\n" % step)


def main() -> None:
    directory, cache_bytes = Path(sys.argv[1]), int(sys.argv[2])
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _write_until_killed(directory, cache_bytes)
        os.waitpid(pid, 0)
        with suppress(BrokenPipeError):
            os.write(1, b"ended\n")


if __name__ == "__main__":
    main()
