"""Mermaid, which draws the diagrams of the documentation site: one version, checked by its digest.

The npm registry has the script as one file without dependencies. It is kept in .cache/, so a second
build needs no network.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.house import REPOSITORY

VERSION = "11.17.2"
"""Of the major version that the theme is made for."""

SHA256 = "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8"
"""Of the script."""

_KEPT = REPOSITORY / ".cache" / "mermaid" / f"mermaid-{VERSION}.min.js"
_MEMBER = "package/dist/mermaid.min.js"


class MermaidMissing(Exception):
    """The script is not here and cannot be had."""


def mermaid_script() -> Path:
    """Return the script; fetch it with npm if it is not here.

    Raises:
        MermaidMissing: there is no npm, no registry, or another file than expected.
    """
    if not _KEPT.is_file():
        content = _fetched()
        if hashlib.sha256(content).hexdigest() != SHA256:
            raise MermaidMissing(f"{_MEMBER} of mermaid {VERSION} has another digest than {SHA256}")
        _KEPT.parent.mkdir(parents=True, exist_ok=True)
        _KEPT.write_bytes(content)
    return _KEPT


def _fetched() -> bytes:
    npm = shutil.which("npm")
    if npm is None:
        raise MermaidMissing("npm, which fetches Mermaid, is not installed")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", f"mermaid@{VERSION}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        found = list(Path(folder).glob("*.tgz"))
        if done.returncode != 0 or not found:
            raise MermaidMissing(f"npm could not fetch mermaid {VERSION}: {done.stderr.strip()}")
        with tarfile.open(found[0]) as archive:
            member = archive.extractfile(_MEMBER)
            assert member is not None
            return member.read()
