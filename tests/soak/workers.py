"""The workers of a soak: started again whenever they end, as a service manager would."""

from __future__ import annotations

import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from eosframework.embedded.node import suspend_process
from tests.soak.schedule import SPARED, SUPERVISOR
from tests.soak.stores import damage_a_store, remove_as_told
from tests.support.applications.pipeline import COMPRESSED, Pipeline, WorkerProcess, wait_until

RESTART_SECONDS = 1.0
SETTINGS = (
    "worker.session_timeout_seconds=6",
    "worker.transaction_timeout_seconds=8",
    "kafka.request_timeout_seconds=5",
    "log.format=json",
    # The smallest there is: buffers go to files often, and the memory that grows is full soon.
    "state.cache_bytes=8388608",
)
LASTING = ("worker.transaction_timeout_seconds=30",)
"""What lets the spared worker outlast each transaction that hangs in a changelog."""

SUPERVISED_CHILDREN = 2


@dataclass
class Ended:
    """A worker process that ended."""

    worker: int
    exit_code: int
    process: WorkerProcess

    def __str__(self) -> str:
        said = [line for line in self.process.log.splitlines() if line.startswith("error: ")]
        return f"worker {self.worker} ended with {self.exit_code} {''.join(said[-1:])}".rstrip()


@dataclass
class _Slot:
    process: WorkerProcess | None = None
    start_at: float = 0.0
    stopped: bool = False
    others: list[WorkerProcess] = field(default_factory=list)
    """A predecessor of the same name that may still run."""
    family: list[psutil.Process] = field(default_factory=list)
    """Processes that were stopped, or that lost their supervisor."""


class Workers:
    """Workers by number; SUPERVISOR and SPARED of the schedule are two of these.

    Args:
        producers: the setting of their producers.
        unprotected: switch the straggler protection off.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        bootstrap_servers: str,
        count: int,
        *,
        producers: str,
        unprotected: bool = False,
    ) -> None:
        self.ended: list[Ended] = []
        self.removed: list[Path] = []
        """Directories of damaged stores, removed as their message says."""
        self.heaps = pipeline.directory / "heaps"
        """Reports of the spared worker's heap."""
        self._pipeline = pipeline
        self._settings = [
            # What brokers refuse of compressed batches is known only when they do.
            COMPRESSED,
            "kafka.properties.message.max.bytes=5000000",
            *SETTINGS,
            f"kafka.bootstrap_servers={bootstrap_servers}",
            producers,
        ]
        self._environment = {"XDG_STATE_HOME": str(pipeline.directory / "host")}
        if unprotected:
            self._environment["EOS_TEST_UNPROTECTED"] = "1"
        self._slots = [_Slot() for _ in range(count)]
        self._offline = False

    def __len__(self) -> int:
        return len(self._slots)

    def look_after(self) -> list[Ended]:
        """Start whoever is due, and return who ended since the last look."""
        ended: list[Ended] = []
        for number, slot in enumerate(self._slots):
            process = slot.process
            if process is not None and (code := process.process.poll()) is not None:
                ended.append(Ended(number, code, process))
                slot.process, slot.stopped = None, False
                slot.start_at = max(slot.start_at, time.monotonic() + RESTART_SECONDS)
            for other in [*slot.others]:
                if (code := other.process.poll()) is not None:
                    slot.others.remove(other)
                    ended.append(Ended(number, code, other))
            if slot.process is None and slot.others:
                slot.process = slot.others.pop()
            if slot.process is None and time.monotonic() >= slot.start_at and not self._offline:
                slot.process = self._start(number)
        self.ended += ended
        for one in ended:
            if (removed := remove_as_told(one.process.log)) is not None:
                self.removed.append(removed)
        return ended

    def kill(self, number: int, away_seconds: float) -> bool:
        """SIGKILL a worker, and let it come back after a while."""
        slot = self._slots[number]
        if slot.process is None or self._offline:
            return False
        slot.family += _family(slot.process)
        slot.process.process.kill()
        slot.process.wait()
        slot.start_at = time.monotonic() + away_seconds - RESTART_SECONDS
        return True

    def damage(self, number: int, away_seconds: float, rng: random.Random) -> str | None:
        """SIGKILL a worker, and damage a file of what it leaves behind; return the damage."""
        if not self.kill(number, away_seconds):
            return None
        return damage_a_store(sorted(self._pipeline.directory.glob("host*")), rng)

    def kill_child(self, index: int) -> bool:
        """SIGKILL a child of the supervisor, which starts it again."""
        slot = self._slots[SUPERVISOR]
        process = slot.process
        if process is None or slot.stopped or self._offline:
            return False
        with suppress(psutil.NoSuchProcess):  # it may end at any moment, and so may they
            children = psutil.Process(process.process.pid).children()
            if index < len(children):
                children[index].kill()
                return True
        return False

    def stop(self, number: int) -> bool:
        """SIGSTOP a worker, children included."""
        slot = self._slots[number]
        if slot.process is None or slot.stopped or self._offline:
            return False
        return self._stop(slot)

    def _stop(self, slot: _Slot) -> bool:
        assert slot.process is not None
        slot.stopped = True
        slot.family += _family(slot.process)
        return _signal(slot.family, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """SIGCONT a worker that was stopped, unless all are to be away."""
        if self._offline:
            return
        slot = self._slots[number]
        _signal(slot.family, signal.SIGCONT)
        slot.stopped = False

    def leave(self, number: int, away_seconds: float) -> bool:
        """SIGTERM a worker, and let it come back after a while."""
        slot = self._slots[number]
        if slot.process is None or slot.stopped or self._offline:
            return False
        slot.process.signal(signal.SIGTERM)
        slot.start_at = time.monotonic() + away_seconds
        return True

    def twin(self, number: int) -> bool:
        """Start a second worker of the same name, as on another host; the first is to give way."""
        slot = self._slots[number]
        if slot.process is None or slot.others or self._offline:
            return False
        slot.others.append(slot.process)
        elsewhere = str(self._pipeline.directory / f"host{len(self._pipeline.workers)}")
        slot.process = self._start(number, {"XDG_STATE_HOME": elsewhere})
        return True

    def go_offline(self, asleep: bool) -> bool:
        """Stop all workers but the spared one, which sleeps, or send all to sleep.

        None is started until `come_back`.
        """
        if self._offline:
            return False
        for slot in self._slots:
            for process in _running(slot):
                if not asleep and slot is not self._slots[SPARED]:
                    process.signal(signal.SIGTERM)
                elif process is slot.process and not slot.stopped:
                    self._stop(slot)
                else:
                    slot.family += (family := _family(process))
                    _signal(family, signal.SIGSTOP)
        self._offline = True
        return True

    def come_back(self) -> None:
        """Let workers run again after `go_offline`."""
        self._offline = False
        for number in range(len(self)):
            self.resume(number)

    def processes(self) -> list[tuple[str, int]]:
        """Return each process that runs, children of the supervisor included, with its worker."""
        return [
            (str(number), member.pid)
            for number, slot in enumerate(self._slots)
            for process in _running(slot)
            for member in _family(process)
        ]

    def finish(self, seconds: float) -> list[str]:
        """Ask everyone to end, and return what did not go well."""
        for number, slot in enumerate(self._slots):
            self.resume(number)
            for process in _running(slot):
                process.signal(signal.SIGTERM)
        found: list[str] = []
        for number, slot in enumerate(self._slots):
            for process in _running(slot):
                code = process.wait(seconds)
                # One that is still importing has no handler for the signal yet.
                if code != 0 and (code != -signal.SIGTERM or process.log):
                    found.append(str(Ended(number, code, process)))
            try:
                wait_until(lambda slot=slot: not _alive(slot.family), "its end", seconds)
            except AssertionError:
                left = ", ".join(str(process.pid) for process in _alive(slot.family))
                found.append(f"worker {number} left behind: process {left}")
        return found

    def end(self) -> None:
        """SIGKILL whatever runs."""
        self._pipeline.stop()
        for slot in self._slots:
            _signal(slot.family, signal.SIGKILL)

    def _start(self, number: int, environment: dict[str, str] | None = None) -> WorkerProcess:
        supervised = number == SUPERVISOR
        arguments = ["--processes", str(SUPERVISED_CHILDREN)] if supervised else []
        return self._pipeline.start_worker(
            *arguments,
            # Partitions go by name: the spared one has the first, and never is without.
            instance="spared" if number == SPARED else f"worker{number}",
            settings=[
                *self._settings,
                *(LASTING if number == SPARED else ()),
            ],
            environment={
                **self._environment,
                **({"EOS_TEST_HEAP": str(self.heaps)} if number == SPARED else {}),
                **(environment or {}),
            },
        )


def _running(slot: _Slot) -> list[WorkerProcess]:
    everyone = [*slot.others, *([slot.process] if slot.process else [])]
    return [process for process in everyone if process.process.poll() is None]


def _family(worker: WorkerProcess) -> list[psutil.Process]:
    """A worker's process with those that it supervises."""
    try:
        process = psutil.Process(worker.process.pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _alive(family: list[psutil.Process]) -> list[psutil.Process]:
    alive: list[psutil.Process] = []
    for process in family:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


def _signal(family: list[psutil.Process], number: signal.Signals) -> bool:
    reached = False
    for process in family:
        # psutil signals whatever has the number of a process that it has once found gone.
        if process.is_running():
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                if number == signal.SIGSTOP:
                    suspend_process(process.pid)
                else:
                    process.send_signal(number)
                reached = True
    return reached
