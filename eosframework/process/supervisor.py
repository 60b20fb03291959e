"""The supervisor: runs several workers as child processes and restarts killed ones.

A child that a signal ends (SIGKILL, the kernel's out-of-memory killer, a crash in C) is restarted
at once under the same instance name, so it gets its partitions back without waiting. A child that
exits with an error would do so again: the supervisor stops the others and exits with the child's
code.

Child processes started by fork, which run at once because all modules are imported already.
A restarted worker would spend most of a second on imports before it could join its group. The
parent therefore imports the modules that its children need, and creates nothing that a fork cannot
copy: no thread and no librdkafka client. Work that needs a client runs in a child (`run_in_child`).

SIGTERM and SIGINT end a child until it handles them itself. On Linux the kernel kills a child when
its parent ends, because an orphan would keep locks that the next worker needs.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import IO, NoReturn, Protocol, cast

import orjson
import structlog

from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.process.progress import PIPE_VARIABLE, ProgressEvents, ProgressLine, total
from eosframework.process.signals import SIGNALS, handled, restore_default_handlers, signals_blocked
from eosframework.process.terminal import unescaped

_parents: list[int] = []
"""Pids of this process's ancestors that forked it; empty in a process that was not forked."""

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

CRASHED = 70
"""Exit code of a child that ended by an unhandled exception (EX_SOFTWARE)."""


class ChildProcess:
    """A child process that runs a function.

    Args:
        work: runs in the child; its result is the exit code.
    """

    def __init__(self, work: Callable[[], int]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._exit_code: int | None = None
        parent = os.getpid()
        # PR_SET_PDEATHSIG follows the thread that forked, and other threads end before the process.
        lasts = threading.current_thread() is threading.main_thread()
        with signals_blocked():
            self.pid = os.fork()
            if self.pid == 0:
                _parents.append(parent)
                if lasts:
                    _die_with_parent()
                _run_child(work)

    def poll(self) -> int | None:
        """Return the exit code, minus the number of the signal that ended it; None: it runs."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        """Wait for the child's end and return its exit code."""
        code = self._wait(0)
        assert code is not None, "waitpid waits"
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the child has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _wait(self, options: int) -> int | None:
        if self._exit_code is None:
            pid, status = os.waitpid(self.pid, options)
            if pid != 0:
                self._exit_code = os.waitstatus_to_exitcode(status)
        return self._exit_code


def is_orphaned() -> bool:
    """Return whether this process is a forked child whose parent has ended."""
    return bool(_parents) and os.getppid() != _parents[-1]


def _die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; end if the parent has ended."""
    if _prctl is None:
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The signal is not sent for a parent that ended before the call.
    if is_orphaned():
        os._exit(CRASHED)


def run_in_child(work: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """Run `work` in a child process and return its exit code and text.

    If SIGTERM or SIGINT ends this process in the meantime, the child is killed first.

    Args:
        work: returns an exit code and a short text.
    """
    reading, writing = os.pipe()

    def child() -> int:
        os.close(reading)
        code, text = work()
        with suppress(BrokenPipeError):  # The parent was killed.
            os.write(writing, text.encode())
        return code

    with ExitStack() as until_answered:
        with signals_blocked():
            process = ChildProcess(child)
            until_answered.enter_context(_killed_on_signal(process))
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read().decode()
        return process.wait(), text


@contextmanager
def _killed_on_signal(process: ChildProcess) -> Generator[None]:
    """Kill a child before a signal to stop ends this process."""
    former = {number: signal.getsignal(number) for number in SIGNALS}

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(signal.SIGKILL)
        signal.signal(number, former[signal.Signals(number)])
        signal.raise_signal(number)

    with handled(pass_on):
        yield


def _run_child(work: Callable[[], int]) -> NoReturn:
    code = CRASHED
    try:
        restore_default_handlers()
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # Exit even if the flush fails, or the child would run the parent's code.
            os._exit(code)


_POLL_SECONDS = 0.05
QUICK_DEATHS = 5
"""Number of deaths within `QUICK_SECONDS` after which a child is restarted with a pause."""
QUICK_SECONDS = 10.0
PAUSE_SECONDS = 2.0


@dataclass(slots=True)
class _Child:
    """One supervised worker, across its restarts."""

    instance: str
    process: ChildProcess | None = None
    progress: IO[bytes] | None = None
    output: IO[bytes] | None = None
    """The child's stderr, if the terminal shows a progress line."""
    done_counts: WorkerCounts = field(default_factory=WorkerCounts)
    counts: WorkerCounts = field(default_factory=WorkerCounts)
    error: str = ""
    deaths: list[float] = field(default_factory=list[float])
    start_at: float = 0.0
    exit_code: int | None = None


class Display(Protocol):
    """Shows the counts of running workers."""

    def show(self, counts: WorkerCounts) -> None:
        """Show the sum of all counts."""
        ...


class Supervisor:
    """Starts one child per instance name and keeps it running.

    Args:
        run_child: called in the child with its instance name; returns the exit code.
        instances: instance names, one for each child.
        stop_deadline_seconds: time that children have to stop before they are killed.
        display: of the sum of their counts, called in each turn; None: the terminal or the log.

    Attributes:
        failure: the first child that exited with an error, and its reason; None: there was none.
    """

    def __init__(
        self,
        run_child: Callable[[str], int],
        instances: Sequence[str],
        stop_deadline_seconds: float,
        display: Display | None = None,
    ) -> None:
        self._run_child = run_child
        self._children = [_Child(instance) for instance in instances]
        self._stop_deadline_seconds = stop_deadline_seconds
        self._selector = selectors.DefaultSelector()
        self._display = display
        self._on_terminal = display is None and sys.stderr.isatty()
        self._stopping_since: float | None = None
        self._exit_code = 0
        self.failure: str | None = None
        self._events = structlog.get_logger("eosframework.supervisor")

    @property
    def is_stopping(self) -> bool:
        """True once the children were asked to stop."""
        return self._stopping_since is not None

    def run(self) -> int:
        """Run until every child has ended; SIGTERM and SIGINT stop the children.

        Returns:
            0, or the exit code of the first child that exited with an error.
        """
        with handled(self._asked_to_stop):
            if self._on_terminal:
                with ProgressLine() as display:
                    self._loop(display)
            else:
                self._loop(self._display or ProgressEvents())
        return self._exit_code

    def _loop(self, display: Display) -> None:
        try:
            while any(child.exit_code is None for child in self._children):
                for child in self._children:
                    # A signal during the start of a child would not be passed on to it.
                    with signals_blocked():
                        self._look_after(child)
                self._read()
                self._kill_late()
                display.show(total([c for child in self._children for c in _counts(child)]))
        finally:
            for child in self._children:
                if child.process is not None:
                    child.process.send_signal(signal.SIGKILL)
                    child.process.wait()

    def _asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask the children to stop; `run` returns once they have."""
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()
        for child in self._children:
            if child.process is not None:
                child.process.send_signal(signal.SIGTERM)

    def _kill_late(self) -> None:
        since = self._stopping_since
        if since is not None and time.monotonic() > since + self._stop_deadline_seconds:
            for child in self._children:
                if child.process is not None and child.process.poll() is None:
                    self._events.warning("worker_killed", instance=child.instance)
                    child.process.send_signal(signal.SIGKILL)

    def _look_after(self, child: _Child) -> None:
        if child.exit_code is not None:
            return
        if child.process is None:
            if self._stopping_since is not None:
                child.exit_code = 0
            elif time.monotonic() >= child.start_at:
                self._start(child)
            return
        code = child.process.poll()
        if code is None:
            return
        self._forget_process(child)
        if code >= 0:
            child.exit_code = code
            if code > 0 and self._exit_code == 0:
                self._exit_code = code
                reason = child.error or f"exit code {code}; its last lines above have the cause"
                self.failure = f"worker {child.instance} ended: {reason}"
            if code > 0:
                self._events.error("worker_failed", instance=child.instance, exit_code=code)
                self.stop()
        elif self._stopping_since is not None:
            child.exit_code = 0
        else:
            self._died(child, signal.Signals(-code).name)

    def _died(self, child: _Child, by: str) -> None:
        now = time.monotonic()
        child.deaths = [t for t in child.deaths if now - t < QUICK_SECONDS] + [now]
        pause = PAUSE_SECONDS if len(child.deaths) > QUICK_DEATHS else 0.0
        child.start_at = now + pause
        self._events.warning(
            "worker_died", instance=child.instance, signal=by, restart_in_seconds=pause
        )
        if pause == 0:
            self._start(child)

    def _start(self, child: _Child) -> None:
        reading, writing = os.pipe()
        output = os.pipe() if self._on_terminal else None

        def work() -> int:
            self._selector.close()
            os.close(reading)
            os.environ[PIPE_VARIABLE] = str(writing)
            if output is not None:
                os.dup2(output[1], sys.stderr.fileno())
                os.close(output[0])
            return self._run_child(child.instance)

        child.process = ChildProcess(work)
        os.close(writing)
        child.progress = self._watch(child, reading)
        if output is not None:
            os.close(output[1])
            child.output = self._watch(child, output[0])
        self._events.info("worker_started", instance=child.instance, pid=child.process.pid)

    def _watch(self, child: _Child, descriptor: int) -> IO[bytes]:
        os.set_blocking(descriptor, False)
        pipe = os.fdopen(descriptor, "rb", buffering=0)
        self._selector.register(pipe, selectors.EVENT_READ, child)
        return pipe

    def _forget_process(self, child: _Child) -> None:
        for pipe in (child.progress, child.output):
            if pipe is not None:
                self._take(child, pipe)
                self._selector.unregister(pipe)
                pipe.close()
        child.process = child.progress = child.output = None
        child.done_counts = total([child.done_counts, child.counts])
        child.done_counts.lag = child.done_counts.restoring = 0
        child.counts = WorkerCounts()

    def _read(self) -> None:
        for key, _ in self._selector.select(_POLL_SECONDS):
            self._take(key.data, cast("IO[bytes]", key.fileobj))

    def _take(self, child: _Child, pipe: IO[bytes]) -> None:
        content = pipe.read(65536)
        if not content:
            return
        if pipe is child.output:
            # Escaped by the child, whose colors stay.
            unescaped(sys.stderr).write(content.decode(errors="replace"))
        else:
            for line in content.strip().split(b"\n"):
                match orjson.loads(line):
                    case {"error": error}:
                        child.error = error
                    case counts:
                        child.counts = WorkerCounts(**counts)


def _counts(child: _Child) -> list[WorkerCounts]:
    return [child.done_counts, child.counts]


def instances_for(base: str, processes: int, kind: str = "") -> list[str]:
    """Return the instance names of a supervisor's children.

    Args:
        base: instance name of the supervisor.
        processes: number of children.
        kind: part of the names, if there are several kinds of workers.
    """
    return [f"{base}.{kind}{'.' if kind else ''}{number}" for number in range(processes)]
