"""A broker process, found by its pid file and verified by its command line."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from eosframework.embedded.data_directory import (
    START_SECONDS,
    live_brokers,
    replace_file,
    require_free,
    tail_of,
)
from eosframework.errors import ComponentFailed
from eosframework.process.directories import UMASK, opener
from eosframework.process.signals import interrupts_deferred

_AT_REST = frozenset("TtZX")
"""States of a thread, as in proc(5): stopped, traced, ended."""
_SUSPENSION_POLL_SECONDS = 0.005


def suspend_process(pid: int, *, deadline_seconds: float = 60) -> None:
    """Send SIGSTOP to a process and return once none of its threads runs.

    Raises:
        ProcessLookupError: there is no such process.
        ComponentFailed: a thread still ran at the deadline; the process may stop later.
    """
    # 1. kill() returns; the kernel has chosen a thread to take the signal.
    # 2. On a busy machine that thread sleeps, and the signal has no effect yet.
    # 3. The other threads run: a broker answered a request that came after the kill().
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + deadline_seconds
    while running := _running_threads(pid):
        if time.monotonic() > deadline:
            raise ComponentFailed(
                f"process {pid} was told to stop {deadline_seconds:g} s ago, and {running} of its "
                "threads still run"
            )
        time.sleep(_SUSPENSION_POLL_SECONDS)


def _running_threads(pid: int) -> int:
    """Return the number of threads that are not at rest; 0 on a system without /proc."""
    running = 0
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The command's name is in parentheses and may contain any character.
            state = (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            running += state not in _AT_REST
    return running


_POLL_SECONDS = 0.05

_KAFKA_MAIN = "kafka.Kafka"
STORAGE_MAIN = "kafka.tools.StorageTool"


class Node:
    """A broker and controller of an embedded cluster.

    Args:
        node_id: its `node.id`.
        port: its port for clients on 127.0.0.1.
        directory: its part of the cluster's data directory, absolute.
        java: returns the command line up to the main class.
    """

    def __init__(
        self, node_id: int, port: int, directory: Path, java: Callable[[Path], list[str]]
    ) -> None:
        self.id = node_id
        self.port = port
        self.directory = directory
        self._java = java
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def log_file(self) -> Path:
        """Kafka's own log."""
        return self.directory / "server.log"

    @property
    def running(self) -> bool:
        """True if the process exists, even suspended."""
        return self._process() is not None

    @property
    def pid(self) -> int | None:
        """The process id, or None if the node is not running."""
        process = self._process()
        return process.pid if process else None

    def start(self, *, deadline_seconds: float = START_SECONDS) -> None:
        """Start the process on its port and its data, and wait until it serves.

        Raises:
            ConfigurationError: the port is taken; nothing was started.
            ComponentFailed: it ended or did not serve in time; it is not running.
        """
        if not self.running:
            self.launch()
        self.await_ready(frozenset({self.id}), time.monotonic() + deadline_seconds)

    def stop(self, *, deadline_seconds: float = 20) -> None:
        """Stop the process; it is killed if it still runs at the deadline."""
        self.ask_to_stop()
        self.await_end(deadline_seconds)

    def kill(self) -> None:
        """Send SIGKILL to the process."""
        if process := self._process():
            process.kill()
            process.wait()
        self._forget()

    def suspend(self) -> None:
        """Send SIGSTOP, and return once the process stands still; it keeps its connections."""
        if process := self._process():
            suspend_process(process.pid)

    def resume(self) -> None:
        """Send SIGCONT to a suspended process."""
        self._signal(signal.SIGCONT)

    def launch(self) -> None:
        """Start the process without waiting for it to serve."""
        require_free(self.port)
        command = [
            *self._java(self.directory),
            _KAFKA_MAIN,
            str(self.directory / "server.properties"),
        ]
        log = self.directory / "console.log"
        # 1. the broker starts  2. Ctrl-C ends this program  3. the guard looks for the pid file. If
        # 2 came before the file is written, nothing would ever stop the broker; so Ctrl-C waits.
        with interrupts_deferred(), open(log, "wb", opener=opener) as console:
            # In a new session, so that Ctrl-C in a terminal does not reach the broker.
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
                umask=UMASK,
            )
            replace_file(self._pid_file, f"{self._child.pid}\n")

    def await_ready(self, brokers: frozenset[int], deadline: float) -> None:
        """Wait until the node serves and knows `brokers` to be live.

        Raises:
            ComponentFailed: the process ended, or `deadline` (monotonic seconds) passed.
        """
        while not brokers <= live_brokers(self.port):
            if not self.running:
                self._forget()
                raise ComponentFailed(f"broker {self.id} ended while it started; {self._tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ComponentFailed(
                    f"broker {self.id} did not serve on port {self.port} in time; {self._tail()}"
                )
            time.sleep(_POLL_SECONDS)

    def ask_to_stop(self) -> None:
        """Send SIGTERM, also to a suspended process."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def await_end(self, deadline_seconds: float) -> None:
        """Wait until the process has ended; kill it at the deadline."""
        if process := self._process():
            try:
                process.wait(max(deadline_seconds, 0))
            except psutil.TimeoutExpired:
                self.kill()
        self._forget()

    @property
    def _pid_file(self) -> Path:
        return self.directory / "pid"

    def _process(self) -> psutil.Process | None:
        """Return the node's process, unless the pid is stale or now belongs to another program."""
        if self._child is not None and self._child.poll() is None:
            # The check of the command line below could fail here: the kernel closes the pipe on
            # which Popen waits for exec a moment before it sets the arguments.
            return psutil.Process(self._child.pid)
        try:
            process = psutil.Process(int(self._pid_file.read_text(encoding="ascii")))
            return process if node_marker(self.directory) in process.cmdline() else None
        except (OSError, ValueError, psutil.Error):
            return None

    def _signal(self, number: signal.Signals) -> None:
        if process := self._process():
            process.send_signal(number)

    def _forget(self) -> None:
        if self._child is not None:
            self._child.wait()
        self._child = None
        self._pid_file.unlink(missing_ok=True)

    def _tail(self) -> str:
        return tail_of(self.directory / "console.log", self.log_file, directory=self.directory)


def node_marker(directory: Path) -> str:
    """Return the argument that identifies a node's process."""
    return f"-Deosframework.node={directory}"
