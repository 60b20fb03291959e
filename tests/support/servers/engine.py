"""A Docker engine for tests: the one that answers here, else Debian's, started for them alone.

An engine of our own keeps its images in the cache directory, so they are built once. Test
processes that need it at the same time share it: each holds a shared lock on one file, and the last
that goes ends it. It touches no firewall: ports are published by a proxy, on 127.0.0.1, and
containers reach each other but nothing outside.

`python -m tests.support.servers.engine` holds one up until it is interrupted.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import docker
import psutil
from docker.errors import DockerException

from eosframework.embedded.jars import cache_directory
from eosframework.errors import ComponentFailed, ConfigurationError
from tests.support.processes.places import OWNER_VARIABLE, shared_folder
from tests.support.servers.debian_packages import require_programs

_FOLDER = shared_folder() / f"eosframework-engine-{os.getuid()}"
_HOST = f"unix://{_FOLDER / 'docker.sock'}"
_START_SECONDS = 120
_STOP_SECONDS = 60
_BRIDGE = "docker0"
_PACKAGES = {"dockerd": "docker.io", "ip": "iproute2", "iptables": "iptables"}
_STARTED: list[subprocess.Popen[bytes]] = []
"""Engines of this process, which another one may have ended: kept until they are looked at."""


@dataclass(frozen=True)
class Engine:
    """A Docker engine that answers.

    Args:
        host: what DOCKER_HOST has to be.
        own: it was started for tests, so what is put into it is nobody else's.
    """

    host: str
    own: bool


@contextmanager
def container_engine() -> Iterator[Engine]:
    """An engine for as long as the context lasts.

    Raises:
        ConfigurationError: none answers, and this process cannot start one.
        ComponentFailed: one was started and does not answer.
    """
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if host != _HOST and _answers(host):
        yield Engine(host, own=False)
        return
    _require_root()
    require_programs(_PACKAGES)
    _FOLDER.mkdir(mode=0o700, exist_ok=True)
    with (_FOLDER / "users").open("w") as users:
        with _alone():
            fcntl.flock(users, fcntl.LOCK_SH)
            if not _answers(_HOST):
                _start()
        try:
            yield Engine(_HOST, own=True)
        finally:
            with _alone():
                if _is_last(users.fileno()):
                    _stop()


def _answers(host: str) -> bool:
    """Whether an engine answers there; where nobody listens, Docker's client leaves its socket."""
    with suppress(DockerException, OSError):
        if host.startswith("unix://"):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(host.removeprefix("unix://"))
        with closing(docker.DockerClient(host)) as client:
            return bool(client.ping())
    return False


def _require_root() -> None:
    if os.geteuid() != 0:
        raise ConfigurationError(
            "no Docker engine answers, and only root can start one; start yours, or set DOCKER_HOST"
        )


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time starts or ends the engine; the lock ends with its process."""
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_last(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _start() -> None:
    data = cache_directory() / "engine"
    data.mkdir(parents=True, exist_ok=True)
    log_file = _FOLDER / "dockerd.log"
    command = [
        _program("dockerd"),
        *("--host", _HOST, "--data-root", str(data), "--exec-root", str(_FOLDER / "exec")),
        *("--pidfile", str(_pid_file()), "--storage-driver=overlay2", "--ip=127.0.0.1"),
        *("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
    ]
    with log_file.open("wb") as log:
        # A session of its own: Ctrl-C in a terminal is for the tests, which end it in order. And no
        # mark of this process, which others may outlive with it.
        process = subprocess.Popen(
            command,
            env={name: value for name, value in os.environ.items() if name != OWNER_VARIABLE},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _STARTED.append(process)
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(_HOST):
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline:
            said = log_file.read_text(errors="replace").strip()[-800:]
            _stop()
            raise ComponentFailed(f"dockerd {'ended' if ended else 'does not answer'}: {said}")
        time.sleep(0.1)


def _stop() -> None:
    """End the engine: its containers first, then itself, then what it leaves in the system."""
    _remove_containers()
    with suppress(OSError, ValueError, psutil.Error):
        engine = psutil.Process(int(_pid_file().read_text()))
        if engine.name() == "dockerd":
            _end(engine)
    for process in _STARTED:
        process.poll()
    for mount in _mounts():
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
    remove_bridge = [_program("ip"), "link", "delete", _BRIDGE]
    subprocess.run(remove_bridge, check=False, capture_output=True)
    shutil.rmtree(_FOLDER / "exec", ignore_errors=True)


def _remove_containers() -> None:
    with suppress(DockerException, OSError), closing(docker.DockerClient(_HOST)) as client:
        for container in client.containers.list(all=True):
            with suppress(DockerException):
                container.remove(force=True, v=True)
        client.networks.prune()
        client.volumes.prune()
        client.images.prune()


def _end(engine: psutil.Process) -> None:
    children = engine.children(recursive=True)
    engine.terminate()
    deadline = time.monotonic() + _STOP_SECONDS
    while any(_lives(process) for process in (engine, *children)):
        if time.monotonic() > deadline:
            for process in (engine, *children):
                with suppress(psutil.Error):
                    process.kill()
        time.sleep(0.05)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _mounts() -> list[str]:
    """Return what is mounted below our folders, the innermost first."""
    places = (str(_FOLDER), str(cache_directory() / "engine"))
    lines = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    return [mount for line in reversed(lines) if (mount := line.split()[1]).startswith(places)]


def _pid_file() -> Path:
    return _FOLDER / "docker.pid"


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return found or name


def main() -> None:
    """Hold an engine up until SIGINT or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(KeyboardInterrupt), container_engine() as engine:
        print(f"export DOCKER_HOST={engine.host}", flush=True)
        print("Ctrl-C ends it.", file=sys.stderr)
        signal.pause()


if __name__ == "__main__":
    main()
