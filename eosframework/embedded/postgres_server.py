"""A real PostgreSQL as a local process, started from the programs in a wheel.

Owns the programs, the account that runs them, the process and its data directory. One directory is
one server; it listens on 127.0.0.1 only, and every connection needs the password in its DSN.

The files in the data directory of a PostgreSQL server.
postgres.json   port, password, settings and programs
server.log      the server's log
initialized     the data is complete; without this file, it is created again
data            PostgreSQL's own directory
"""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

import psutil
from pydantic import TypeAdapter

from eosframework.embedded.data_directory import (
    HOST,
    START_SECONDS,
    Guard,
    exclusively,
    free_ports,
    load_state,
    own_directory,
    replace_file,
    require_free,
    tail_of,
)
from eosframework.embedded.postgres_programs import (
    SUPERUSER,
    as_account,
    find_programs,
    initialize,
    let_account_pass,
)
from eosframework.errors import ComponentFailed, ConfigurationError
from eosframework.process.directories import FILE_MODE, UMASK, expanded, opener
from eosframework.process.signals import interrupts_deferred

_STATE = "postgres.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """A server as recorded in its data directory.

    Args:
        port: its port on 127.0.0.1.
        password: of the superuser.
        settings: of PostgreSQL.
        programs: the directory with its programs. None: those of the wheel.
    """

    port: int
    password: str = field(repr=False)
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    programs: str | None = None

    @property
    def durable(self) -> bool:
        """True if a commit waits until it is on the disk."""
        return self.settings.get("fsync", "on") not in ("off", "false", "no", "0")


_RECORD = TypeAdapter(Record)


def load_record(data_dir: Path) -> Record | None:
    """Return the record of an earlier start; None if there was none.

    Raises:
        ConfigurationError: the record cannot be read.
    """
    return load_state(data_dir / _STATE, _RECORD, "PostgreSQL server")


def save_record(data_dir: Path, record: Record) -> None:
    """Write the record, readable by its owner only: it contains the password."""
    replace_file(data_dir / _STATE, json.dumps(asdict(record), indent=2))


def data_of(data_dir: Path) -> Path:
    """Return PostgreSQL's own directory."""
    return data_dir / "data"


def _log_of(data_dir: Path) -> Path:
    """Return the server's log."""
    return data_dir / "server.log"


def _is_initialized(data_dir: Path) -> bool:
    """Return True if the data is complete."""
    return (data_dir / "initialized").exists()


def mark_initialized(data_dir: Path) -> None:
    """Record that the data is complete."""
    (data_dir / "initialized").touch(FILE_MODE)


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
        return _log_of(self.data_dir)

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


_OWNED_SETTINGS = frozenset(
    {
        "config_file",
        "data_directory",
        "external_pid_file",
        "hba_file",
        "listen_addresses",
        "port",
        "unix_socket_directories",
    }
)


def start_postgres(
    data_dir: Path,
    *,
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    detached: bool = False,
    programs: Path | None = None,
    deadline_seconds: float = START_SECONDS,
) -> PostgresServer:
    """Start a server on the data in `data_dir`, or a new one if there is none.

    1. record port and settings  2. create the data  3. start  4. wait until it serves

    A commit is on the disk before it is acknowledged, unless `settings` state otherwise. PostgreSQL
    does not run as root, so a process of root's starts it under another account.

    Args:
        data_dir: for all files of the server; later starts use its data and port again.
        port: its port on 127.0.0.1. None: as recorded, a free one for a new server.
        settings: of PostgreSQL (`{"wal_level": "logical"}`). None: as recorded.
        detached: let the server outlive this process. Otherwise it is killed when this process
            ends, even by SIGKILL.
        programs: the directory with another PostgreSQL's programs. None: as recorded, those of
            the wheel for a new server.
        deadline_seconds: limit for steps 3 and 4.

    Raises:
        ConfigurationError: the port is taken, the server already runs, its programs are missing,
            or a setting is one that the data directory determines; nothing was started.
        ComponentFailed: the server ended or did not serve in time; it is not running.
    """
    data_dir = expanded(data_dir, "name the data directory").resolve()
    own_directory(data_dir)
    let_account_pass(data_dir)
    with exclusively(data_dir):
        recorded = load_record(data_dir)
        if recorded and (pid := PostgresServer(data_dir, recorded).pid):
            raise ConfigurationError(
                f"the server in {data_dir} already runs (pid {pid}); "
                f"stop it, or choose another data directory"
            )
        record = _plan(recorded, port, settings, programs)
        save_record(data_dir, record)
        _make_data(data_dir, record)
        server = PostgresServer(data_dir, record, guarded=not detached)
        server.start(deadline_seconds=deadline_seconds)
        return server


def find_postgres(data_dir: Path) -> PostgresServer | None:
    """Return the server recorded in `data_dir`, running or not; None if there is none."""
    data_dir = expanded(data_dir, "name the data directory").resolve()
    record = load_record(data_dir)
    return PostgresServer(data_dir, record) if record else None


def _plan(
    recorded: Record | None,
    port: int | None,
    settings: Mapping[str, str] | None,
    programs: Path | None,
) -> Record:
    """Return the record to start with: the recorded one, with the caller's changes."""
    if owned := _OWNED_SETTINGS & (settings or {}).keys():
        raise ConfigurationError(
            f"PostgreSQL setting {min(owned)} is decided by the embedded server; remove it"
        )
    chosen = port or (recorded.port if recorded else free_ports(1)[0])
    require_free(chosen)
    record = recorded or Record(port=chosen, password=secrets.token_urlsafe(18))
    return replace(
        record,
        port=chosen,
        settings=record.settings if settings is None else dict(settings),
        programs=record.programs if programs is None else str(programs.resolve()),
    )


def _make_data(data_dir: Path, record: Record) -> None:
    """Create the data unless it is complete; incomplete data is created anew."""
    if _is_initialized(data_dir):
        return
    data = data_of(data_dir)
    shutil.rmtree(data, ignore_errors=True)
    initialize(find_programs(record.programs), data, record.password, durable=record.durable)
    mark_initialized(data_dir)


__all__ = ["PostgresServer", "find_postgres", "start_postgres"]
