"""The executor's part: one task of Spark runs one worker in a child process (SW2 to SW5).

The connection between the driver and a task that runs a worker.
Both sides prove that they have the run's key (HMAC, `multiprocessing.connection`); messages are
JSON. Neither side ever waits for the other: a driver that is suspended does not stop the workers.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from eosframework.config import Settings
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.errors import EosError, StartRefused
from eosframework.process.instance import own_instance
from eosframework.process.supervisor import Supervisor

if TYPE_CHECKING:
    import psutil

MOST_BYTES = 65_536
CONNECT_SECONDS = 20.0
HANDSHAKE_SECONDS = 10
SILENT_SECONDS = 10
"""Time after which the kernel asks a silent peer for a sign of life; it ends the connection after
three times without an answer."""


class LinkClosed(Exception):
    """The other side has ended, or the connection is broken."""


class Link:
    """One side of a connection that is already proven."""

    def __init__(self, connection: Connection[bytes, bytes]) -> None:
        self._connection = connection
        self._room = select.poll()
        self._room.register(connection, select.POLLOUT)

    def fileno(self) -> int:
        """Return the file descriptor, for a selector."""
        return self._connection.fileno()

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send a message; return False without sending it if the other side does not read.

        Raises:
            LinkClosed: the other side has ended.
        """
        if not self._room.poll(0):
            return False
        try:
            self._connection.send_bytes(orjson.dumps(message))
        except OSError as error:
            raise LinkClosed from error
        return True

    def first(self) -> dict[str, Any]:
        """Wait for the first message of a task.

        Raises:
            LinkClosed: it does not come in time.
        """
        try:
            return orjson.loads(self._connection.recv_bytes(MOST_BYTES))
        except (EOFError, OSError, ValueError) as error:
            self.close()
            raise LinkClosed from error

    def received(self) -> dict[str, Any] | None:
        """Return the next message; None: there is none yet.

        Raises:
            LinkClosed: the other side has ended.
        """
        try:
            if not self._connection.poll():
                return None
            return orjson.loads(self._connection.recv_bytes(MOST_BYTES))
        except (EOFError, OSError, ValueError) as error:
            raise LinkClosed from error

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self._connection.close()


def connect(address: tuple[str, int], key: bytes) -> Link:
    """Connect to the driver.

    Raises:
        LinkClosed: it cannot be reached, or has another key.
    """
    try:
        taken = socket.create_connection(address, CONNECT_SECONDS)
    except OSError as error:
        raise LinkClosed(f"the driver cannot be reached at {address[0]}:{address[1]}") from error
    other = f"the driver at {address[0]}:{address[1]} is that of another run"
    return _proven(taken, (answer_challenge, deliver_challenge), key, other)


def accepted(taken: socket.socket, key: bytes) -> Link:
    """Return the driver's side of a connection that a task has made.

    Raises:
        LinkClosed: the other side does not prove in time that it has the key.
    """
    # Without a limit, a program that connects and stays silent would hold a thread for ever.
    limit = HANDSHAKE_SECONDS.to_bytes(8, "little") + bytes(8)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    stranger = "the other side did not prove that it has the key of this run"
    return _proven(taken, (deliver_challenge, answer_challenge), key, stranger)


def _proven(
    taken: socket.socket,
    steps: Sequence[Callable[[Connection[bytes, bytes], bytes], None]],
    key: bytes,
    refusal: str,
) -> Link:
    """Return one side of a connection once both have proven that they have the key.

    Raises:
        LinkClosed: `refusal`, if a step fails.
    """
    connection = _connection_of(taken)
    try:
        for step in steps:
            step(connection, key)
    except Exception as error:
        connection.close()
        raise LinkClosed(refusal) from error
    return Link(connection)


def _connection_of(taken: socket.socket) -> Connection[bytes, bytes]:
    taken.settimeout(None)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_SECONDS)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENT_SECONDS)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    return Connection(taken.detach())


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

    from eosframework.application.composition.worker import Kind, load
    from eosframework.application.composition.worker_start import run_kind, settings_of_child

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
