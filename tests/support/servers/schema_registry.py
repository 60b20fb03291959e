"""A real schema registry: Apicurio, whose API beside its own is Confluent's.

Its distribution comes from Maven Central into the cache of jars, once, and is checked against the
sha256 here. It keeps schemas in memory.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import signal
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from eosframework.embedded import jars
from eosframework.embedded.data_directory import free_ports
from eosframework.embedded.jars import find_java
from eosframework.embedded.node import suspend_process
from eosframework.errors import ComponentFailed
from tests.support.applications.pipeline import wait_until

VERSION = "3.0.9"
FETCH_SECONDS = 300
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"


class Registry:
    """A registry that runs, for the length of a test session."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self._process = process
        self._log = log
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def wait_until_up(self) -> None:
        def answers() -> bool:
            ended = self._process.poll()
            assert ended is None, (
                f"the registry ended with {ended}:\n{self._log.read_text()[-4000:]}"
            )
            try:
                return self.ask("GET", "/schemas/types") is not None
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                return False

        wait_until(answers, f"an answer of the registry ({self._log})")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return what the registry answers, as the REST contract has it."""
        data = None if body is None else orjson.dumps(body)
        kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        request = urllib.request.Request(self.url + path, data, kind, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return orjson.loads(answer.read() or b"null")

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Let it answer nothing for the length of the block."""
        suspend_process(self._process.pid)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(60)


def start_registry(directory: Path) -> Registry:
    """Start a registry whose log is in `directory`."""
    home = _distribution()
    [runner] = home.glob("*-runner.jar")
    [port] = free_ports(1)
    log = directory / "registry.log"
    options = ["-Xmx300m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    settings = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [find_java(), *options, *settings, "-jar", runner],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    return Registry(process, port, log)


def _distribution() -> Path:
    """Return where the distribution is, fetched and checked as needed."""
    home = jars.cache_directory() / f"apicurio-{VERSION}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unpacked = home / "unpacked"
        if not (home / "complete").exists():
            shutil.rmtree(unpacked, ignore_errors=True)
            with tarfile.open(_archive(home)) as archive:
                archive.extractall(unpacked, filter="data")
            (home / "complete").touch()
    return unpacked


def _archive(home: Path) -> Path:
    """Fetch the archive, or find it where it was fetched.

    Raises:
        ComponentFailed: it cannot be had, or is another one.
    """
    from jgo.maven import MavenContext, PythonResolver

    print(f"fetching Apicurio Registry {VERSION} into {home}", file=sys.stderr)
    context = MavenContext(
        resolver=PythonResolver(), repo_cache=home / "repository", timeout=FETCH_SECONDS
    )
    try:
        with jars._trusting_the_system():
            component = context.project("io.apicurio", "apicurio-registry-app").at_version(VERSION)
            file = Path(component.artifact("all", "tar.gz").resolve())
    except Exception as error:
        raise ComponentFailed(f"Apicurio Registry {VERSION} cannot be fetched: {error}") from error
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != SHA256:
        file.unlink()
        raise ComponentFailed(f"{file.name} has the sha256 {found}, expected {SHA256}")
    return file
