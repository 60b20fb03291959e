"""The executor's part: one task of Spark runs one worker in a child process (W2 to W5)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eosframework.config import Settings
from eosframework.errors import EosError, StartRefused
from eosframework.process.instance import own_instance
from eosframework.process.supervisor import Supervisor
from eosframework.processing.worker_plan import WorkerCounts
from eosframework.spark.workers.link import Link, LinkClosed, connect

if TYPE_CHECKING:
    import psutil

SEND_SECONDS = 0.5
LOOK_SECONDS = 0.25
PREDECESSOR_SECONDS = 30.0
"""The longest wait for a worker of this name that still ends on this host."""

MOST_MESSAGE_BYTES = 32_768

LOST = 75
"""Result of a task that lost its driver or its executor (EX_TEMPFAIL)."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one worker.

    Args:
        application: of `run-worker`; the same file or module on every executor.
        name: the application's name.
        settings: of all workers.
        kind: of the worker.
        instance: its name.
        instances: the names of all, in the order of their HTTP ports.
        driver: address of the driver.
        key: of the run.
        until_caught_up: the worker ends once all input is processed.
    """

    application: str
    name: str
    settings: Settings
    kind: str
    instance: str
    instances: Sequence[str]
    driver: tuple[str, int]
    key: bytes
    until_caught_up: bool


@dataclass(frozen=True, slots=True)
class SlotEnd:
    """The end of a worker.

    Args:
        exit_code: of `run-worker`.
        message: of its error; empty: there is none.
        host: of the executor.
    """

    exit_code: int
    message: str
    host: str


def run_slot(slot: Slot) -> SlotEnd:
    """Run the worker of a slot until it ends, the driver asks for it, or either side is gone."""
    host = socket.gethostname()
    try:
        link = connect(slot.driver, slot.key)
    except LinkClosed as error:
        return SlotEnd(LOST, str(error), host)
    try:
        link.send({"instance": slot.instance, "host": host})
        _await_predecessor(slot)
        return SlotEnd(*_supervised(slot, link), host)
    except EosError as error:
        return SlotEnd(error.exit_code, str(error), host)
    except LinkClosed:
        return SlotEnd(LOST, "", host)
    finally:
        link.close()


def _await_predecessor(slot: Slot) -> None:
    """Wait until no worker of this name runs on this host any more.

    1. An executor is killed. 2. Spark starts another on this host, with this task. 3. The kernel
    has not ended the first executor's worker yet, which holds the name.

    Raises:
        StartRefused: it still runs.
    """
    deadline = time.monotonic() + PREDECESSOR_SECONDS
    worker = slot.settings.with_instance(slot.instance, None).worker
    while True:
        try:
            with own_instance(slot.name, worker):
                return
        except StartRefused:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.1)


def _supervised(slot: Slot, link: Link) -> tuple[int, str]:
    """Run the worker in a child process; return its exit code and its error."""
    from eosframework.process.logs import configure_logs

    configure_logs(slot.settings.log)
    reading, writing = os.pipe()

    def run_child(instance: str) -> int:
        os.close(reading)
        code, message = _worker(slot, instance)
        os.write(writing, message.encode()[:MOST_MESSAGE_BYTES])
        return code

    line = _DriverLine(link)
    supervisor = Supervisor(
        run_child, [slot.instance], slot.settings.worker.stop_deadline_seconds + 10, line
    )
    line.stop = supervisor.stop
    with os.fdopen(reading, "rb") as pipe:
        try:
            code = supervisor.run()
        finally:
            os.close(writing)
        if line.is_alone:
            return LOST, "the connection to the driver was lost"
        return code, pipe.read().decode(errors="replace")


def _worker(slot: Slot, instance: str) -> tuple[int, str]:
    import structlog

    from eosframework.runtime.worker import Kind, load, run_kind, settings_of_child

    structlog.contextvars.bind_contextvars(instance=instance)
    settings = settings_of_child(_with_directory(slot.settings), instance, slot.instances)
    try:
        graph = load(_found(slot.application))
        run_kind(graph, settings, Kind(slot.kind), until_caught_up=slot.until_caught_up)
    except EosError as error:
        return error.exit_code, str(error)
    return 0, ""


def _found(application: str) -> str:
    """Return the place of the application on this executor: its own path, or in `spark.files`."""
    from pyspark import SparkFiles

    sent = Path(SparkFiles.get(Path(application).name))
    return str(sent) if not Path(application).exists() and sent.exists() else application


def _with_directory(settings: Settings) -> Settings:
    """Keep stores in the executor's local directory, which Spark empties, unless one is set."""
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if settings.state.directory is not None or not local:
        return settings
    state = settings.state.model_copy(update={"directory": Path(local) / "eosframework-stores"})
    return settings.model_copy(update={"state": state})


class _DriverLine:
    """The driver's connection, as the display of a supervisor: counts go out, requests come in.

    Args:
        link: to the driver.
    """

    def __init__(self, link: Link) -> None:
        self.stop: Callable[[], None] = lambda: None
        self._link = link
        self._executor = _executor()
        self._look_at = self._send_at = 0.0
        self.is_alone = False

    def show(self, counts: WorkerCounts) -> None:
        """Send the counts; stop the worker if the driver asks for it or has ended.

        Raises:
            LinkClosed: the executor has ended, so the worker must end at once.
        """
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        if self._executor is not None and not is_running(self._executor):
            raise LinkClosed
        if self.is_alone:
            return
        try:
            if self._link.received() is not None:
                self.stop()
            if now >= self._send_at and self._link.send({"counts": asdict(counts)}):
                self._send_at = now + SEND_SECONDS
        except LinkClosed:
            self.is_alone = True
            self.stop()


def _executor() -> psutil.Process | None:
    """Return the executor above this process; None: Spark runs Python in another way."""
    import psutil

    above = psutil.Process().parents()
    return next((process for process in above if process.name() == "java"), None)


def is_running(process: psutil.Process) -> bool:
    """Return whether a process runs; False for one that has ended and is not yet reaped."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
