"""The directory with all files of an embedded server.

The guard of an embedded server: a process that kills the server after its starter has ended.
The guard waits for the other end of a pipe to close, which the kernel does also after SIGKILL. A
death signal (PR_SET_PDEATHSIG) would fire when the *thread* that started the server ends, so it
does not work for programs that start servers in parallel.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import psutil
from pydantic import TypeAdapter

from eosframework.errors import ConfigurationError
from eosframework.process.directories import FILE_MODE, make_directory, opener

HOST = "127.0.0.1"

_BELOW_EPHEMERAL = range(15_000, 32_000)
"""A broker keeps its port while it is down. Ports from 32768 on are used for outgoing connections,
and such a connection would prevent the broker's restart."""

_CHANCE = random.SystemRandom()
"""Independent of `random`: a program may seed that to the same value in each of its processes."""


def free_ports(count: int, besides: Collection[int] = ()) -> list[int]:
    """Return ports that nothing listens on, outside the range of outgoing connections.

    Args:
        count: number of ports; they differ from each other.
        besides: ports that are reserved for a server that does not listen yet.
    """
    ports: list[int] = []
    for port in _CHANCE.sample(_BELOW_EPHEMERAL, k=len(_BELOW_EPHEMERAL)):
        if port not in besides and is_free(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise ConfigurationError(f"{count} free ports on {HOST} were not found; free some")


def is_free(port: int) -> bool:
    """Return True if a server could listen on `port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As in Java: a port whose last connections are in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def require_free(port: int) -> None:
    """Raise if a broker cannot listen on `port`.

    Raises:
        ConfigurationError: the port is taken; names it and, if known, the process.
    """
    if not is_free(port):
        raise ConfigurationError(
            f"port {port} on {HOST} is taken{_by_whom(port)}; "
            f"stop what uses it, or choose another port"
        )


def live_brokers(port: int, timeout_seconds: float = 2.0) -> frozenset[int]:
    """Return the ids of the live brokers that the broker on `port` knows; empty without an answer.

    A broker is included only once the controller has unfenced it, so this shows readiness and not
    only an open port.
    """
    # One Metadata request (api key 3, version 1, correlation id 1, no client id) for no topics.
    request = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    try:
        with socket.create_connection((HOST, port), timeout=timeout_seconds) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.makefile("rb")
            _size, _correlation, count = struct.unpack(">iii", answer.read(12))
            return frozenset(_read_broker_id(answer) for _ in range(count))
    except (OSError, struct.error):
        return frozenset()


def _read_broker_id(answer: BinaryIO) -> int:
    """Read one broker (node_id, host, port, rack) of a Metadata answer."""
    node_id, host_length = struct.unpack(">ih", answer.read(6))
    answer.read(host_length + 4)
    (rack_length,) = struct.unpack(">h", answer.read(2))
    answer.read(max(rack_length, 0))
    return node_id


def _by_whom(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            taken = connection.laddr and connection.laddr.port == port
            if taken and connection.status == psutil.CONN_LISTEN and connection.pid:
                name = psutil.Process(connection.pid).name()
                return f" by {name} (pid {connection.pid})"
    except psutil.Error:
        pass
    return ""


_PROGRAM = "eosframework.embedded.guard_process"


class Guard:
    """Kills the server in `data_dir` once this process has ended, unless dismissed."""

    def __init__(self, data_dir: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """End the guard; call it when the server has ended."""
        self._process.kill()
        self._process.communicate()


START_SECONDS = 180.0
"""Default deadline of a start. A server needs a few seconds, on a busy machine many times more; the
wait ends at once if its process ends."""

_TAIL_LINES = 15

T = TypeVar("T")


@contextmanager
def exclusively(
    directory: Path, title: str = "data directory", hint: str = "choose another"
) -> Generator[None]:
    """Let one process at a time change a directory; the lock ends with its process.

    Args:
        directory: is created if it is missing.
        title: of the directory, for messages.
        hint: the next step if it cannot be written.

    Raises:
        ConfigurationError: the directory cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = opener(str(directory / "lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigurationError(
            f"the {title} {directory} cannot be written ({error.strerror}); {hint}"
        ) from error
    # The file stays when the lock is released. If it were deleted: 1. A holds it, B waits for it
    # 2. A deletes and releases it  3. B has the deleted file, C creates and locks another.
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def own_directory(data_dir: Path) -> None:
    """Create a server's directory, readable by its owner only; restrict an existing one.

    Raises:
        ConfigurationError: the directory cannot be created.
    """
    try:
        make_directory(data_dir)
    except OSError as error:
        raise ConfigurationError(
            f"the data directory {data_dir} cannot be written ({error.strerror}); choose another"
        ) from error


def load_state(file: Path, adapter: TypeAdapter[T], what: str) -> T | None:
    """Return the state of a server as recorded in its data directory; None if there is none.

    Args:
        file: of the state, directly in the data directory.
        adapter: of the state's type.
        what: kind of server, for messages.

    Raises:
        ConfigurationError: the state cannot be read.
    """
    try:
        return adapter.validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{file} does not describe a {what} ({type(error).__name__}); "
            f"remove the data directory {file.parent}, or choose another with --data-dir"
        ) from None  # pydantic's error would show passwords


def replace_file(file: Path, text: str) -> None:
    """Replace the file atomically, so that a crash leaves the old one or the new one."""
    unfinished = file.with_name(f"{file.name}.new")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(FILE_MODE)
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(file)


def tail_of(*logs: Path, directory: Path) -> str:
    """Return the last lines of the most recent log, and the path of the log."""
    spoken = [file for file in logs if file.exists() and file.stat().st_size]
    if not spoken:
        return f"it wrote no log in {directory}"
    latest = max(spoken, key=lambda file: file.stat().st_mtime)
    lines = latest.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    return f"the end of {latest}:\n" + "\n".join(f"  {line}" for line in lines)
