"""A PostgreSQL server process, found by PostgreSQL's pid file and verified by its command line."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from eosframework.embedded.data_directory import START_SECONDS, tail_of
from eosframework.embedded.guard import Guard
from eosframework.embedded.ports import HOST, require_free
from eosframework.embedded.postgres.programs import SUPERUSER, as_account, find_programs
from eosframework.embedded.postgres.record import Record, data_of, log_of
from eosframework.errors import ComponentFailed
from eosframework.process.private_files import UMASK, opener
from eosframework.process.signals import interrupts_deferred

_POLL_SECONDS = 0.02
_SIGNAL_SECONDS = 10.0
"""More than a process needs to act on a signal, even one that waits for a disk."""

_ENDED = frozenset({psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD})
_AT_REST = _ENDED | {psutil.STATUS_STOPPED}
"""A process that ends while its server is stopped stays a zombie, since the server does not reap
it."""

_READY_LINE = 7
"""Index of the status line in PostgreSQL's pid file; the first line is the pid."""


class PostgresServer:
    """A real PostgreSQL on this machine; as a context manager it stops at the end.

    Args:
        data_dir: for all files of the server, absolute.
        record: of the server, from the directory.
        guarded: kill the server when this process ends, even by SIGKILL.
    """

    def __init__(self, data_dir: Path, record: Record, *, guarded: bool = False) -> None:
        self.data_dir = data_dir
        self.port = record.port
        self.settings = dict(record.settings)
        self._record = record
        self._guarded = guarded
        self._guard: Guard | None = None
        self._data = data_of(data_dir)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """Its connection string, with the superuser's password."""
        return f"postgresql://{SUPERUSER}:{self._record.password}@{HOST}:{self.port}/postgres"

    @property
    def log_file(self) -> Path:
        """The server's log; the log before its last start is `server.log.1`."""
        return log_of(self.data_dir)

    @property
    def running(self) -> bool:
        """True if the process exists, even suspended."""
        return self._process() is not None

    @property
    def pid(self) -> int | None:
        """The process id, or None if the server is not running."""
        process = self._process()
        return process.pid if process else None

    def start(self, *, deadline_seconds: float = START_SECONDS) -> None:
        """Start the process on its port and its data, and wait until it serves.

        Raises:
            ConfigurationError: the port is taken, or the programs are missing; nothing was
                started.
            ComponentFailed: it ended or did not serve in time; it is not running.
        """
        if not self.running:
            self._launch()
        try:
            self._await_ready(time.monotonic() + deadline_seconds)
        except BaseException:
            self.kill()
            raise

    def stop(self, *, deadline_seconds: float = 20) -> None:
        """Stop the server: transactions are rolled back, connections are closed.

        A server that still runs at the deadline is killed.
        """
        if process := self._process():
            self.resume()
            process.send_signal(signal.SIGINT)
            try:
                process.wait(max(deadline_seconds, 0))
            except psutil.TimeoutExpired:
                self.kill()
        self._forget()

    def kill(self) -> None:
        """Send SIGKILL to every process of the server."""
        frozen = self._freeze()
        for process in frozen:
            _signal(process, signal.SIGKILL)
        self._forget()
        _await(frozen, _ENDED)

    def suspend(self) -> None:
        """Send SIGSTOP to every process of the server; it keeps its connections."""
        self._freeze()

    def resume(self) -> None:
        """Send SIGCONT to every process of a suspended server."""
        if process := self._process():
            for each in [*process.children(recursive=True), process]:
                _signal(each, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self) -> None:
        require_free(self.port)
        programs = find_programs(self._record.programs)
        self._drop_stale_pid_file()
        if self._guarded:
            self._guard = Guard(self.data_dir)
        settings = {
            **self.settings,
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
        }
        arguments = [part for item in settings.items() for part in ("-c", "=".join(item))]
        command = [programs.path("postgres"), "-D", str(self._data), *arguments]
        if self.log_file.exists():
            self.log_file.replace(self.log_file.with_suffix(".log.1"))
        with interrupts_deferred(), open(self.log_file, "wb", opener=opener) as log:
            # In a new session, so that Ctrl-C in a terminal does not reach the database.
            self._child = subprocess.Popen(
                as_account(command, self.data_dir, programs),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.data_dir,
                env=programs.environment(),
                start_new_session=True,
                umask=UMASK,
            )

    def _await_ready(self, deadline: float) -> None:
        """Raise ComponentFailed if the server ended, or `deadline` (monotonic seconds) passed."""
        while not self._is_ready():
            if not self.running:
                raise ComponentFailed(f"PostgreSQL ended while it started; {self._tail()}")
            if time.monotonic() > deadline:
                raise ComponentFailed(
                    f"PostgreSQL did not serve on port {self.port} in time; {self._tail()}"
                )
            time.sleep(_POLL_SECONDS)

    def _is_ready(self) -> bool:
        """Return True if the server's own process reports that it accepts connections."""
        lines = self._pid_lines()
        if len(lines) <= _READY_LINE or lines[_READY_LINE].strip() != "ready":
            return False
        return lines[0] == str(self.pid)

    def _freeze(self) -> list[psutil.Process]:
        """Stop the postmaster, then its children, so that no new child is missed.

        Each process has its own session, so no process group contains them all.
        """
        server = self._process()
        if server is None:
            return []
        _signal(server, signal.SIGSTOP)
        _await([server], _AT_REST)
        children = server.children(recursive=True)
        for child in children:
            _signal(child, signal.SIGSTOP)
        _await(children, _AT_REST)
        return [server, *children]

    def _process(self) -> psutil.Process | None:
        """Return the server's process, unless the pid is stale or is now another program's."""
        if self._child is not None and self._child.poll() is None:
            return psutil.Process(self._child.pid)
        try:
            process = psutil.Process(int(self._pid_lines()[0]))
            return process if str(self._data) in process.cmdline() else None
        except (IndexError, ValueError, psutil.Error):
            return None

    def _pid_lines(self) -> list[str]:
        try:
            return (self._data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except OSError:
            return []

    def _drop_stale_pid_file(self) -> None:
        """Remove a pid that another program has now: PostgreSQL would take it for its own."""
        lines = self._pid_lines()
        if lines and lines[0].isdecimal() and psutil.pid_exists(int(lines[0])):
            (self._data / "postmaster.pid").unlink(missing_ok=True)

    def _forget(self) -> None:
        if self._child is not None:
            self._child.wait()
        self._child = None
        if self._guard is not None:
            self._guard.dismiss()
        self._guard = None

    def _tail(self) -> str:
        return tail_of(self.log_file, directory=self.data_dir)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _await(processes: Iterable[psutil.Process], states: frozenset[str]) -> None:
    """Wait, with a limit, until each process is in one of the states or gone."""
    deadline = time.monotonic() + _SIGNAL_SECONDS
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            while process.status() not in states and time.monotonic() < deadline:
                time.sleep(0.001)
