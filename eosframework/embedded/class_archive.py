"""The archive of a broker's Java classes, which makes later starts faster.

A broker's start mostly reads, verifies and links some seven thousand classes. Class-data sharing
(JEP 350) keeps the result of one run in a file; with it a start takes about half the processor
time. A Java that cannot use the file, after an upgrade for example, ignores it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from eosframework.embedded.jars import KAFKA


def class_archive(java: Path) -> Path:
    """Return the path of this Java's archive, which may not exist yet."""
    binary = java.resolve()
    version = f"{binary} {binary.stat().st_size} {binary.stat().st_mtime_ns}"
    name = hashlib.sha256(version.encode()).hexdigest()[:12]
    return KAFKA.home / "classes" / f"{name}.jsa"


def recording(archive: Path) -> list[str]:
    """Return the options with which a Java writes the archive at a clean exit."""
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def sharing(java: Path) -> list[str]:
    """Return the options with which a Java uses its archive, if it exists."""
    archive = class_archive(java)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
