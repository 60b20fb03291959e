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
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil

from eosframework.errors import ComponentFailed

STOP_SECONDS = 40.0
GONE_SECONDS = 5.0
GROWN_UP_SECONDS = 2.0
"""A worker that is younger may not have joined its group yet: killing it would prove little."""

_END_WITH_PARENT = (
    "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(int(sys.argv[1]), signal.SIGKILL)"
)


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that was killed."""

    pid: int
    instance: str
    age_seconds: float


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
        """SIGKILL a random worker that is at work; None if there is none at the moment.

        Raises:
            ComponentFailed: the signal did not end it.
        """
        victims = [worker for worker in self._children() if _is_at_work(worker)]
        if not victims:
            return None
        victim = chance.choice(victims)
        instance = _instance(victim.cmdline())
        age_seconds = time.time() - victim.create_time()
        victim.send_signal(signal.SIGKILL)
        try:
            victim.wait(GONE_SECONDS)
        except psutil.TimeoutExpired:
            raise ComponentFailed(f"worker {victim.pid} outlived SIGKILL") from None
        return Kill(victim.pid, instance, age_seconds)

    def deaths_seen(self) -> int:
        """How many workers the supervisor saw die by SIGKILL, as its log says."""
        return sum(
            event.get("event") == "worker_died" and event.get("signal") == "SIGKILL"
            for event in self._events()
        )

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
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._supervisor.pid, signal.SIGKILL)
        self._supervisor.wait()
        self._guard.kill()
        self._guard.communicate()

    def _children(self) -> Sequence[psutil.Process]:
        try:
            children = psutil.Process(self._supervisor.pid).children()
        except psutil.NoSuchProcess:
            return []
        return sorted(children, key=lambda child: child.pid)

    def _events(self) -> list[dict[str, object]]:
        lines = self.log_file.read_bytes().splitlines()
        return [orjson.loads(line) for line in lines if line.startswith(b"{")]


def _is_at_work(worker: psutil.Process) -> bool:
    """Whether a worker runs, is connected to the broker and has had the time to join."""
    try:
        return (
            worker.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            and "run-worker" in worker.cmdline()
            and time.time() - worker.create_time() >= GROWN_UP_SECONDS
            and any(c.status == psutil.CONN_ESTABLISHED for c in worker.net_connections("tcp"))
        )
    except psutil.NoSuchProcess:
        return False


def _instance(command: Sequence[str]) -> str:
    prefix = "worker.instance="
    names = [part.removeprefix(prefix) for part in command if part.startswith(prefix)]
    return names[-1] if names else "?"
