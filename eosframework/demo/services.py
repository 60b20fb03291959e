"""Child processes of the demos that run eosframework's commands, and their log events."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import psutil

from eosframework.errors import ComponentFailed, EosError


@dataclass(frozen=True, slots=True)
class Kill:
    """A killed process, and its tasks at the time."""

    pid: int
    instance: str
    tasks: tuple[str, ...]

    def __str__(self) -> str:
        tasks = ", ".join(self.tasks)
        return f"SIGKILL to pid {self.pid}, {self.instance}, in the middle of {tasks}"


def kill_points(steps: int, kills: int, chance: random.Random) -> list[int]:
    """Return the steps at which to kill: one at random within each equal share of the run."""
    share = steps * 0.92 / max(kills, 1)
    first = steps * 0.05
    return [int(first + share * (number + chance.uniform(0.1, 0.9))) for number in range(kills)]


def hold_points(steps: int, points: Sequence[int]) -> list[int]:
    """Return for each kill the step before which it must be done: the next one's, or near the end.

    Args:
        steps: of the run.
        points: as `kill_points` returns them.
    """
    return [*points[1:], int(steps * 0.98)]


def deal(kills: int, chance: random.Random) -> list[str]:
    """Return the kinds of victims in order: workers and relays, and a few databases."""
    databases = max(kills // 5, int(kills > 2))
    rest = ["worker" if number % 2 == 0 else "relay" for number in range(kills - databases)]
    dealt = ["database"] * databases + rest
    chance.shuffle(dealt)
    return dealt


class Background:
    """A group of threads that keeps the first error of any of them.

    Args:
        name: of the threads.
        loops: one for each thread; each returns soon after `stopping` is set.
    """

    def __init__(self, name: str, loops: Sequence[Callable[[], None]]) -> None:
        self.stopping = threading.Event()
        self.error: EosError | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name=name, daemon=True)
            for loop in loops
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads."""
        self.stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def require_running(self) -> None:
        """Check that no thread has failed.

        Raises:
            EosError: the cause of a failure.
        """
        if self.error is not None:
            raise self.error

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except EosError as error:
            self.error = self.error or error


_STOP_SECONDS = 40.0
_TURN_SECONDS = 0.2
_LAST_LINES = 8
_END_WITH_PARENT = (
    "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(int(sys.argv[1]), signal.SIGKILL)"
)


class Program:
    """A program that runs until it is stopped; it ends with this process in any case.

    Args:
        name: in messages.
        command: the program and its arguments.
        log_file: its output is appended.
        environment: settings that must not appear in the command line; this process' own settings
            are not inherited.
        directory: working directory; None: that of this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_file: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self._name = name
        self._log_file = log_file
        self._ended = False
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("EOS_")}
        with log_file.open("ab") as log:
            self._from = log.tell()
            # A session of its own: Ctrl-C in a terminal is for the demo, which stops in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**inherited, **(environment or {})},
                cwd=directory,
                start_new_session=True,
            )
        self._guard = subprocess.Popen(
            [sys.executable, "-P", "-c", _END_WITH_PARENT, str(self.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Process id, and id of its process group."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True until it has ended."""
        return self._process.poll() is None

    def require_running(self) -> None:
        """Check that it runs.

        Raises:
            ComponentFailed: it ended; with its exit code and last log lines.
        """
        code = self._process.poll()
        if code is not None:
            last = self._log_file.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            raise ComponentFailed(
                f"{self._name} ended with exit code {code}; the last log lines:\n  "
                + "\n  ".join(last)
            )

    def new_events(self) -> Iterator[dict[str, Any]]:
        """Yield the log events written since the last call."""
        with self._log_file.open("rb") as log:
            log.seek(self._from)
            *lines, unfinished = log.read().split(b"\n")
            self._from = log.tell() - len(unfinished)
        for line in lines:
            if line.startswith(b"{"):
                yield orjson.loads(line)

    def finish(self, seconds: float, on_turn: Callable[[], None]) -> None:
        """Wait until it has ended by itself, with exit code 0.

        Args:
            seconds: longest wait.
            on_turn: called a few times a second; may raise.

        Raises:
            ComponentFailed: it failed, or did not end in time.
        """
        deadline = time.monotonic() + seconds
        while (code := self._process.poll()) is None:
            if time.monotonic() > deadline:
                raise ComponentFailed(
                    f"{self._name} had not ended after {seconds:g} s; see {self._log_file}"
                )
            on_turn()
            time.sleep(_TURN_SECONDS)
        if code != 0:
            self.require_running()
        self.end()

    def kill(self) -> None:
        """SIGKILL it alone; its children end with this process."""
        self._process.kill()
        self._process.wait()

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        if self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """SIGTERM, and wait until it has ended; the signal ends a command that is still starting.

        Raises:
            ComponentFailed: it did not end in time, or failed.
        """
        self.ask_to_stop()
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise ComponentFailed(
                f"{self._name} was asked to stop and had not ended {_STOP_SECONDS:g} s later; "
                f"see {self._log_file}"
            ) from None
        finally:
            self.end()
        if code not in (0, -signal.SIGTERM):
            raise ComponentFailed(
                f"{self._name} was asked to stop and ended with {code}, not 0; see {self._log_file}"
            )

    def end(self) -> int:
        """Kill all its remaining processes, and return the exit code."""
        if not self._ended:
            self._ended = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            self._guard.kill()
            self._guard.communicate()
        return self._process.returncode


class Service(Program):
    """A command of eosframework.

    Args:
        name: in messages.
        arguments: the command and its arguments.
        log_file: its log events, as JSON, are appended.
        environment: as for `Program`.
        directory: as for `Program`.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log_file: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        command = [sys.executable, "-m", "eosframework", *arguments, "--set", "log.format=json"]
        super().__init__(name, command, log_file, environment, directory)


_AT_WORK_SECONDS = 0.5
"""A victim has had its tasks for at least this long, so that it is in a transaction."""

_GONE_SECONDS = 5.0


@dataclass(slots=True)
class Duty:
    """A process, its tasks, and the time of the last assignment."""

    pid: int
    tasks: dict[str, str] = field(default_factory=dict[str, str])
    """Displayed names, by task or by partition."""
    since: float = 0.0

    def take(self, name: str, task: str, timestamp: str) -> None:
        """Add a task assigned at a log event's time."""
        self.tasks[name] = task
        self.since = datetime.fromisoformat(timestamp).timestamp()

    @property
    def is_at_work(self) -> bool:
        """True once it has had its tasks for long enough."""
        return bool(self.tasks) and time.time() - self.since >= _AT_WORK_SECONDS


class Workers(Service):
    """The supervisor of `eosframework run-worker` with several processes.

    Args:
        topology: the topology's file.
        bootstrap_servers: cluster of its topics.
        processes: number of workers.
        log_file: of their log events, as JSON.
        environment: settings that must not appear in the command line.
    """

    def __init__(
        self,
        topology: Path,
        bootstrap_servers: str,
        processes: int,
        log_file: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._duties: dict[str, Duty] = {}
        self._deaths = 0
        arguments = ["run-worker", str(topology), "--processes", str(processes)]
        arguments += ["--set", f"kafka.bootstrap_servers={bootstrap_servers}"]
        name = f"the supervisor of {topology.stem}'s workers"
        super().__init__(name, arguments, log_file, environment)

    def kill_one(self, chance: random.Random) -> Kill | None:
        """SIGKILL a random worker with tasks; None if none has tasks at the moment.

        Raises:
            ComponentFailed: the signal did not end it.
        """
        self._read_log()
        victims = [
            (child, instance)
            for instance, duty in sorted(self._duties.items())
            for child in self._children()
            if child.pid == duty.pid and duty.is_at_work
        ]
        if not victims:
            return None
        victim, instance = chance.choice(victims)
        tasks = tuple(sorted(self._duties.pop(instance).tasks.values()))
        victim.send_signal(signal.SIGKILL)
        try:
            victim.wait(_GONE_SECONDS)
        except psutil.TimeoutExpired:
            raise ComponentFailed(f"worker {victim.pid} outlived SIGKILL") from None
        return Kill(victim.pid, f"worker {instance}", tasks)

    def are_at_work(self) -> bool:
        """Return whether any worker has tasks."""
        self._read_log()
        return any(duty.is_at_work for duty in self._duties.values())

    def deaths_seen(self) -> int:
        """Number of workers that the supervisor saw die by SIGKILL, by its log."""
        self._read_log()
        return self._deaths

    def _children(self) -> Sequence[psutil.Process]:
        """Return the supervisor's children that run."""
        try:
            children = psutil.Process(self.pid).children()
            return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
        except psutil.NoSuchProcess:
            return []

    def _read_log(self) -> None:
        """Update assignments and deaths from new log events."""
        for event in self.new_events():
            self._learn(event, str(event.get("instance")))

    def _learn(self, event: dict[str, Any], instance: str) -> None:
        duty = self._duties.get(instance)
        match event.get("event"):
            case "worker_started":
                self._duties[instance] = Duty(event["pid"])
            case "task_assigned" if duty is not None:
                duty.take(event["task"], event["task"], event["timestamp"])
            case "partition_claimed" if duty is not None:
                duty.take(event["partition"], event["partition"], event["timestamp"])
            case "partitions_revoked" | "partitions_lost" | "task_closed" if duty is not None:
                duty.tasks.pop(event.get("task") or event["partition"], None)
            case "worker_died":
                self._duties.pop(instance, None)
                self._deaths += event.get("signal") == "SIGKILL"
            case _:
                pass
