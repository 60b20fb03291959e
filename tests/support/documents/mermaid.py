"""Mermaid, which draws the diagrams of the documentation site: one version, checked by its digest.

The npm registry has the script as one file without dependencies. It is kept in .cache/, so a second
build needs no network.
"""

from __future__ import annotations

from pathlib import Path

from tests.house import REPOSITORY
from tests.support.documents.npm_files import NpmFile

SCRIPT = NpmFile(
    "mermaid",
    "11.17.2",  # of the major version that the theme is made for
    "package/dist/mermaid.min.js",
    "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8",
)

_KEPT = REPOSITORY / ".cache" / "mermaid" / f"mermaid-{SCRIPT.version}.min.js"


def mermaid_script() -> Path:
    """Return the script; fetch it with npm if it is not here.

    Raises:
        NpmFileMissing: it is not here and cannot be had.
    """
    if not _KEPT.is_file():
        content = SCRIPT.fetched()
        _KEPT.parent.mkdir(parents=True, exist_ok=True)
        _KEPT.write_bytes(content)
    return _KEPT
