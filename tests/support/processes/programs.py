"""Processes under test: their start, their log, signals to them, and their end.

    fork_program        a program of the framework, forked from a server that has imported it
    start_command       any command, in an interpreter or a program of its own
    in_the_foreground   the same as a shell starts it, for signals from a terminal
    RunningProgram      either of them with its log; every wait has a deadline

An interpreter that imports the framework costs more than a second of processor time, and a run of
the tests starts hundreds of workers. `fork_program` therefore forks them from the fork server of
`multiprocessing`, which has imported the command line once and runs nothing else: no thread, no
Kafka client. A test of the start itself, or of signals from a terminal, starts a process instead.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from eosframework.embedded.node import suspend_process
from tests.support.processes.waiting import PATIENCE_SECONDS, wait_until
from tests.support.verifiers.logged import logged

REPOSITORY = Path(__file__).resolve().parents[3]

FRAMEWORK = "eosframework.__main__"
"""The command `eosframework`."""

FAULTY = "tests.support.faults.faulty_worker"
"""The same with faults armed (there)."""

SHOW_STACKS = signal.SIGUSR2
"""Makes a program write the stack of each thread to standard error."""

STACKS_SECONDS = 1.0
SHOWN_CHARACTERS = 8000

PRELOADED = (
    "tests.support.applications.backfilled",
    "tests.support.faults.faulty_worker",
    "pyspark.cloudpickle",
    "eosframework.spark.backfill.cutover",
    "eosframework.cli.plan",
    "eosframework.cli.backfill",
    "eosframework.cli.console",
    "eosframework.operations.console.server",
    "eosframework.cli.relay_outbox",
    "eosframework.cli.run_worker",
    "eosframework.postgres.database",
    "eosframework.application.composition.worker",
    "eosframework.process.supervisor",
)
"""Modules that most programs import; none of them starts a thread or a client at its import."""

FORKED = multiprocessing.get_context("forkserver")
"""Makes processes that are forked from the server; there is one in a process of tests."""
FORKED.set_forkserver_preload(list(PRELOADED))


@dataclass(frozen=True)
class Finished:
    """The exit code and the outputs of a command that ended."""

    exit_code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The only error message, with the lines that belong to it."""
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
            subprocess.TimeoutExpired: as `wait`, with the stack of each thread and the end of what
                the program printed; it was killed.
        """
        try:
            code = self.wait(timeout)
        except subprocess.TimeoutExpired as error:
            self.send_signal(SHOW_STACKS)
            time.sleep(STACKS_SECONDS)
            error.add_note(self._err.read_text(errors="replace")[-SHOWN_CHARACTERS:])
            raise
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
        faulthandler.register(SHOW_STACKS, sys.stderr)
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


def start_command(
    command: Sequence[str],
    *,
    out: Path,
    environment: Mapping[str, str] | None = None,
    directory: Path = REPOSITORY,
    prepare: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command, with both outputs appended to a file.

    Args:
        command: a program with its arguments.
        out: file for both outputs.
        environment: variables besides those of this process.
        directory: working directory.
        prepare: called in the new process before the command.
    """
    with out.open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=directory,
            env=os.environ | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=prepare,
        )


def framework_command(*arguments: str, module: str = FRAMEWORK) -> list[str]:
    """Return the command line of a program of the framework in an interpreter of its own."""
    return [sys.executable, "-m", module.removesuffix(".__main__"), *arguments]


def in_the_foreground() -> None:
    """Make a process group as a shell does, with a Ctrl-C that is not ignored."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class RunningProgram:
    """A program that was started, with the file of its log."""

    process: Running
    log_file: Path

    @property
    def log(self) -> str:
        """The log so far."""
        return self.log_file.read_text(errors="replace")

    def events(self, name: str) -> list[dict[str, object]]:
        """Return the log events of this name so far."""
        return [event for event in logged(self.log) if event.get("event") == name]

    def wait_for_event(self, name: str, count: int = 1, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for log events; fail if the program ends before."""
        self.wait_for(lambda: len(self.events(name)) >= count, f"event {name}", seconds)

    def wait_for(
        self, condition: Callable[[], bool], subject: str, seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Wait for a condition; fail if the program ends before."""

        def holds() -> bool:
            ended = self.process.poll() is not None
            if condition():
                return True
            assert not ended, (
                f"it ended with {self.process.returncode} before {subject}:\n{self.log[-4000:]}"
            )
            return False

        wait_until(holds, f"{subject} of {self.log_file}", seconds)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; after a SIGSTOP the program stands still when this returns."""
        if number == signal.SIGSTOP:
            suspend_process(self.process.pid)
        else:
            self.process.send_signal(number)

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait for the end and return the exit code; fail with the end of the log."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"it still runs after {seconds:g} s:\n{self.log[-4000:]}"
            ) from None

    def end(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Stop the program with SIGTERM, if it runs."""
        if self.process.poll() is None:
            self.process.terminate()
            self.wait(seconds)


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
    """Return a field of a process's status, which is in kB, in MB."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in status if line.startswith(f"{field}:")]
    return int(line.split()[1]) // 1024
