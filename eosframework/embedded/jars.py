"""The jars of Apache Kafka: resolved once into a cache of our own, checked at every start.

The lock file beside this module names every jar with its sha256. A jar that is missing, cut
short or changed is fetched again; a jar that differs from the lock after that is refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import ssl
import sys
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import platformdirs

from eosframework.errors import ComponentFailed, ConfigurationError

KAFKA_VERSION = "4.3.1"
KAFKA = f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}"
LOG_BINDING = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
"""Without it Kafka's log goes nowhere: the broker's own pom leaves the choice to its users."""

_STAMP = "verified.json"
_FETCH_TIMEOUT_SECONDS = 60


def cache_directory() -> Path:
    """Where jars are kept: EOS_CACHE_DIR, else the user's cache directory."""
    if chosen := os.environ.get("EOS_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    return Path(platformdirs.user_cache_dir("eosframework"))


def locked_jars() -> dict[str, str]:
    """The sha256 of every jar by file name, from the lock file of this package."""
    lock = files("eosframework.embedded") / f"kafka-{KAFKA_VERSION}.lock"
    return parse_lock(lock.read_text(encoding="ascii"))


def parse_lock(text: str) -> dict[str, str]:
    """Read `sha256  filename` lines.

    Raises:
        ConfigurationError: a line is not of that form or a file is named twice.
    """
    jars: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        digest, separator, name = line.partition("  ")
        well_formed = len(digest) == 64 and set(digest) <= set("0123456789abcdef")
        if not separator or not well_formed or "/" in name or not name.endswith(".jar"):
            raise ConfigurationError(
                f"line {number} of the jar lock is {line!r}; expected 'sha256  name.jar'"
            )
        if name in jars:
            raise ConfigurationError(f"line {number} of the jar lock names {name} again")
        jars[name] = digest
    return jars


def kafka_jars() -> Path:
    """A directory with exactly the locked jars, fetched or repaired as needed.

    Raises:
        ConfigurationError: the packages of the extra `embedded` are missing, or the cache
            directory cannot be written.
        ComponentFailed: the jars cannot be fetched or are not what the lock says.
    """
    locked = locked_jars()
    home = cache_directory() / f"kafka-{KAFKA_VERSION}"
    jars = home / "jars"
    if _stamp_holds(home, locked):
        return jars
    with _exclusively(home):
        if damaged := damaged_jars(jars, locked):
            _fetch(home, damaged, locked)
        _remove_unlocked(jars, locked)
        _write_stamp(home, locked)
    return jars


def damaged_jars(jars: Path, locked: Mapping[str, str]) -> list[str]:
    """Names of the locked jars that are missing from `jars` or differ from their sha256."""
    return [name for name, digest in locked.items() if _sha256(jars / name) != digest]


def _sha256(file: Path) -> str | None:
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except FileNotFoundError:
        return None


@contextmanager
def _exclusively(home: Path) -> Generator[None]:
    """Let one process at a time change the cache; the lock ends with its process."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / "lock").open("w")
    except OSError as error:
        raise ConfigurationError(
            f"the jar cache {home} cannot be written ({error.strerror}); "
            f"set EOS_CACHE_DIR to a directory that can"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(home: Path, names: list[str], locked: Mapping[str, str]) -> None:
    """Resolve Kafka and put the jars called `names` in place, each by one rename.

    A download that was cut short leaves damaged poms or jars in the resolver's directory, so
    the second attempt starts from an empty one.
    """
    print(
        f"fetching {len(names)} of the {len(locked)} jars of Apache Kafka {KAFKA_VERSION} "
        f"into {home}",
        file=sys.stderr,
    )
    repository = home / "repository"
    failure: Exception | None = None
    for _ in range(2):
        try:
            return _resolve_into(home / "jars", repository, names, locked)
        except ConfigurationError:
            raise
        except Exception as error:
            failure = error
            shutil.rmtree(repository, ignore_errors=True)
    raise ComponentFailed(
        f"the jars of Apache Kafka {KAFKA_VERSION} could not be fetched into {home}: {failure}; "
        f"check the network and start again"
    ) from failure


def _resolve_into(
    jars: Path, repository: Path, names: list[str], locked: Mapping[str, str]
) -> None:
    try:
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as error:
        raise ConfigurationError(
            "fetching Apache Kafka needs the package jgo; run: pip install 'eosframework[embedded]'"
        ) from error

    # The pure Python resolver: a fresh machine has no mvn. The log binding is taken by itself,
    # because its dependency management would change the versions of Kafka's own jars.
    maven = MavenContext(
        resolver=PythonResolver(), repo_cache=repository, timeout=_FETCH_TIMEOUT_SECONDS
    )
    jars.mkdir(exist_ok=True)
    with _trusting_the_system():
        roots, dependencies = maven.resolver.resolve([maven.create_dependency(KAFKA)])
        wanted = [*roots, *dependencies, maven.create_dependency(LOG_BINDING)]
        artifacts = {dependency.artifact.filename: dependency.artifact for dependency in wanted}
        if unknown := sorted(set(names) - set(artifacts)):
            raise ComponentFailed(f"{KAFKA} does not depend on {unknown}, which the lock names")
        with ThreadPoolExecutor(max_workers=8) as pool:
            jobs = [pool.submit(artifacts[name].resolve) for name in names]
        fetched = [job.result() for job in jobs]
    for name, file in zip(names, fetched, strict=True):
        if (digest := _sha256(file)) != locked[name]:
            raise ComponentFailed(
                f"{name} has the sha256 {digest}, but the lock says {locked[name]}"
            )
        file.replace(jars / name)


@contextmanager
def _trusting_the_system() -> Generator[None]:
    """Let the downloads trust what the system trusts; the package requests brings its own list."""
    bundle = ssl.get_default_verify_paths().cafile or ""
    if not bundle or os.environ.keys() & {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}:
        yield
        return
    os.environ["REQUESTS_CA_BUNDLE"] = bundle
    try:
        yield
    finally:
        del os.environ["REQUESTS_CA_BUNDLE"]


def _remove_unlocked(jars: Path, locked: Mapping[str, str]) -> None:
    """Every file in the directory is on the class path, so nothing else may be there."""
    for file in jars.iterdir():
        if file.name not in locked:
            file.unlink()


def _stamp_holds(home: Path, locked: Mapping[str, str]) -> bool:
    """Whether the jars are the files that were verified last, by name, size and time."""
    try:
        stamp = json.loads((home / _STAMP).read_text(encoding="utf-8"))
        return stamp == _describe(home / "jars", locked)
    except (OSError, ValueError):
        return False


def _write_stamp(home: Path, locked: Mapping[str, str]) -> None:
    unfinished = home / f"{_STAMP}.new"
    unfinished.write_text(json.dumps(_describe(home / "jars", locked)), encoding="utf-8")
    unfinished.replace(home / _STAMP)


def _describe(jars: Path, locked: Mapping[str, str]) -> dict[str, list[str | int]]:
    return {
        entry.name: [locked.get(entry.name, ""), status.st_size, status.st_mtime_ns]
        for entry in os.scandir(jars)
        if (status := entry.stat())
    }
