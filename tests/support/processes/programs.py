"""Programs under test, forked from a server that has imported them.

An interpreter that imports the framework costs more than a second of processor time, and a run of
the tests starts hundreds of workers. `fork_program` therefore forks them from the fork server of
`multiprocessing`, which has imported the command line once and runs nothing else: no thread, no
Kafka client. A test of the start itself, or of signals from a terminal, starts a process instead.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from tests.support.processes.waiting import PATIENCE_SECONDS

REPOSITORY = Path(__file__).resolve().parents[3]

FRAMEWORK = "eosframework.__main__"
"""The command `eosframework`."""

FAULTY = "tests.support.faults.faulty_worker"
"""The same with faults armed (there)."""

PRELOADED = (
    "tests.support.applications.backfilled",
    "tests.support.faults.faulty_worker",
    "pyspark.cloudpickle",
    "eosframework.backfill.cutover.cutover_steps",
    "eosframework.cli.apply",
    "eosframework.cli.backfill",
    "eosframework.cli.console",
    "eosframework.console.server",
    "eosframework.cli.relay_outbox",
    "eosframework.cli.run_worker",
    "eosframework.postgres",
    "eosframework.runtime.worker",
    "eosframework.process.supervisor",
)
"""What most programs import; none of it starts a thread or a client when it is imported."""

FORKED = multiprocessing.get_context("forkserver")
"""Makes processes that are forked from the server; there is one in a process of tests."""
FORKED.set_forkserver_preload(list(PRELOADED))


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    exit_code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one message, with the lines that belong to it; nothing else may claim to be one."""
        assert "Traceback" not in self.err, self.err
        lines = self.err.splitlines()
        starts = [n for n, line in enumerate(lines) if line.startswith("error: ")]
        assert len(starts) == 1, self.err
        return "\n".join(lines[starts[0] :]).removeprefix("error: ")

    @property
    def json(self) -> Any:
        """Standard output as the one JSON object that it is."""
        return json.loads(self.out)


class Program:
    """A forked program, used as a `subprocess.Popen`.

    Args:
        process: runs the program.
        arguments: the command line, for messages.
        out: file with its standard output.
        err: the same for standard error.
    """

    def __init__(
        self,
        process: ForkServerProcess,
        arguments: Sequence[str],
        out: Path,
        err: Path,
    ) -> None:
        self.args = list(arguments)
        self._process = process
        self._out, self._err = out, err
        assert process.pid is not None
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, minus the signal's number if a signal ended the program."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code; None while the program runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the program and return its exit code.

        Raises:
            subprocess.TimeoutExpired: the program still runs after `timeout` seconds.
        """
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def finish(self, timeout: float = PATIENCE_SECONDS) -> Finished:
        """Wait for the end of the program and return what it printed.

        Raises:
            subprocess.TimeoutExpired: as `wait`; the program was killed.
        """
        try:
            code = self.wait(timeout)
        finally:
            self.kill()
        return Finished(code, self._out.read_text(), self._err.read_text())

    def send_signal(self, number: int) -> None:
        """Send a signal to the program, unless it has ended."""
        if self.poll() is None:
            # The fork server is its parent, and hears of its end first.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


Running = Program | subprocess.Popen[bytes]


@dataclass(frozen=True)
class _Start:
    """The beginning of a forked program."""

    module: str
    arguments: list[str]
    directory: Path
    environment: dict[str, str]
    out: Path
    err: Path

    def __call__(self) -> NoReturn:
        """Become the program: its streams, directory, environment and arguments."""
        self._redirect()
        os.chdir(self.directory)
        os.environ.clear()
        os.environ.update(self.environment)
        sys.argv = ["eosframework", *self.arguments]
        sys.path[:0] = [str(self.directory), *self._python_path()]
        code: object = 0
        try:
            import_module(self.module).main()
        except SystemExit as ended:
            code = ended.code
        # As an interpreter ends: non-daemon threads, then what was registered, then the streams.
        threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1 if code else 0)

    def _redirect(self) -> None:
        for descriptor, path in ((1, self.out), (2, self.err)):
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(opened, descriptor)
            os.close(opened)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the program runs
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115

    def _python_path(self) -> list[str]:
        return [part for part in self.environment.get("PYTHONPATH", "").split(os.pathsep) if part]


def fork_program(
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    out: Path,
    err: Path | None = None,
    directory: Path = REPOSITORY,
) -> Program:
    """Fork a program that calls `main` of `module`, with `arguments` as its command line.

    Args:
        module: FRAMEWORK or FAULTY.
        arguments: without the program's name.
        environment: variables besides those of this process.
        out: file for standard output; emptied first.
        err: the same for standard error; None: `out`.
        directory: where the program runs; importable, as with `python -m`.
    """
    err = err or out
    for file in (out, err):
        file.write_bytes(b"")
    everything = os.environ | dict(environment)
    start = _Start(module, list(arguments), directory, everything, out, err)
    process = FORKED.Process(target=start, name="program")
    process.start()
    return Program(process, arguments, out, err)


def start_program(
    module: str, arguments: Sequence[str], *, environment: Mapping[str, str], out: Path
) -> subprocess.Popen[bytes]:
    """Start the same in an interpreter and a process group of its own, as a terminal does."""
    with out.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module.removesuffix(".__main__"), *arguments],
            cwd=REPOSITORY,
            env=os.environ | dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
        )


def run_command(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    directory: Path = REPOSITORY,
    seconds: float = PATIENCE_SECONDS,
) -> Finished:
    """Run a command of the framework to its end in a forked program.

    Raises:
        subprocess.TimeoutExpired: it still ran after `seconds`, and was killed.
    """
    with TemporaryDirectory() as folder:
        program = fork_program(
            FRAMEWORK,
            arguments,
            environment=environment or {},
            out=Path(folder, "out"),
            err=Path(folder, "err"),
            directory=directory,
        )
        return program.finish(seconds)


def megabytes(pid: int, field: str) -> int:
    """A line of a process's status, which is in kB."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in status if line.startswith(f"{field}:")]
    return int(line.split()[1]) // 1024
