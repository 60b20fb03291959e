"""The workers of the demo, under their supervisor, and what kills them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import psutil

from eosframework.errors import ComponentFailed

AT_WORK_SECONDS = 0.5
"""A worker has had its tasks for at least as long when it is killed: it is in a transaction."""

STOP_SECONDS = 40.0
GONE_SECONDS = 5.0
_END_WITH_PARENT = (
    "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(int(sys.argv[1]), signal.SIGKILL)"
)


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that was killed, and what it was working on."""

    pid: int
    instance: str
    tasks: tuple[str, ...]


@dataclass(slots=True)
class _Duty:
    """A worker's process, its tasks, and since when it has the last of them."""

    pid: int
    tasks: dict[str, str] = field(default_factory=dict[str, str])
    """By transactional.id, what the task is called."""
    since: float = 0.0


class Workers:
    """`eosframework run-worker` with several processes; they end with this process, however.

    Args:
        topology: the topology's file.
        bootstrap_servers: where its topics are.
        processes: how many workers.
        log_file: takes their log events, as JSON.
    """

    def __init__(
        self, topology: Path, bootstrap_servers: str, processes: int, log_file: Path
    ) -> None:
        self.log_file = log_file
        self._duties: dict[str, _Duty] = {}
        self._ended = False
        self._deaths = 0
        command = [sys.executable, "-m", "eosframework", "run-worker", str(topology)]
        command += ["--processes", str(processes), "--set", "log.format=json"]
        command += ["--set", f"kafka.bootstrap_servers={bootstrap_servers}"]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("EOS_")}
        with log_file.open("wb") as log:
            # A session of its own: Ctrl-C in a terminal is for the demo, which stops in order.
            self._supervisor = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._log = log_file.open("rb")
        self._guard = subprocess.Popen(
            [sys.executable, "-P", "-c", _END_WITH_PARENT, str(self._supervisor.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def require_running(self) -> None:
        """Return if the supervisor runs.

        Raises:
            ComponentFailed: it ended; says with what, and its last words.
        """
        code = self._supervisor.poll()
        if code is not None:
            last = self.log_file.read_text(errors="replace").splitlines()[-8:]
            raise ComponentFailed(
                f"the workers ended with exit code {code}; their last log lines:\n  "
                + "\n  ".join(last)
            )

    def kill_one(self, chance: random.Random) -> Kill | None:
        """SIGKILL a random worker that has tasks; None if none has tasks at the moment.

        Raises:
            ComponentFailed: the signal did not end it.
        """
        self._read_log()
        victims = [
            (child, instance)
            for instance, duty in sorted(self._duties.items())
            for child in self._children()
            if child.pid == duty.pid and _is_at_work(duty)
        ]
        if not victims:
            return None
        victim, instance = chance.choice(victims)
        tasks = tuple(sorted(self._duties.pop(instance).tasks.values()))
        victim.send_signal(signal.SIGKILL)
        try:
            victim.wait(GONE_SECONDS)
        except psutil.TimeoutExpired:
            raise ComponentFailed(f"worker {victim.pid} outlived SIGKILL") from None
        return Kill(victim.pid, instance, tasks)

    def deaths_seen(self) -> int:
        """How many workers the supervisor saw die by SIGKILL, as its log says."""
        self._read_log()
        return self._deaths

    def stop(self) -> int:
        """SIGTERM the supervisor and return its exit code."""
        if self._supervisor.poll() is None:
            self._supervisor.terminate()
        try:
            code = self._supervisor.wait(STOP_SECONDS)
        finally:
            self.end()
        return code

    def end(self) -> None:
        """Make sure that nothing of it runs any more."""
        if self._ended:
            return
        self._ended = True
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._supervisor.pid, signal.SIGKILL)
        self._supervisor.wait()
        self._guard.kill()
        self._guard.communicate()

    def _children(self) -> Sequence[psutil.Process]:
        """Return the supervisor's children that run."""
        try:
            children = psutil.Process(self._supervisor.pid).children()
            return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
        except psutil.NoSuchProcess:
            return []

    def _read_log(self) -> None:
        """Learn from new log events which workers have tasks, and which have died."""
        *lines, unfinished = self._log.read().split(b"\n")
        self._log.seek(-len(unfinished), os.SEEK_CUR)
        for line in lines:
            if not line.startswith(b"{"):
                continue
            event = orjson.loads(line)
            self._learn(event, str(event.get("instance")))

    def _learn(self, event: dict[str, Any], instance: str) -> None:
        match event.get("event"):
            case "worker_started":
                self._duties[instance] = _Duty(event["pid"])
            case "task_assigned" if instance in self._duties:
                duty = self._duties[instance]
                duty.tasks[event["transactional_id"]] = event["task"]
                duty.since = datetime.fromisoformat(event["timestamp"]).timestamp()
            case "partitions_revoked" | "partitions_lost" | "task_closed":
                if instance in self._duties:
                    self._duties[instance].tasks.pop(event["transactional_id"], None)
            case "worker_died":
                self._duties.pop(instance, None)
                self._deaths += event.get("signal") == "SIGKILL"
            case _:
                pass


def _is_at_work(duty: _Duty) -> bool:
    return bool(duty.tasks) and time.time() - duty.since >= AT_WORK_SECONDS
