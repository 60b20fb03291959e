"""Files of other projects that the console serves: in the repository, as the npm registry has them.

`python -m tests.support.documents.vendored` fetches them anew, after a version was changed here.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.house import PRODUCT
from tests.support.documents.npm_files import NpmFile

FOLDER = PRODUCT / "operations" / "console" / "assets" / "vendored"


def _elkjs(member: str, sha256: str) -> NpmFile:
    return NpmFile("elkjs", "0.12.1", f"package/{member}", sha256)


VENDORED: Mapping[str, NpmFile] = {
    "elk-api.js": _elkjs(
        "lib/elk-api.js", "ccca46175c05bbd280b5de6c9853103711e52c666a101f145b717e345363e24d"
    ),
    "elk-worker.min.js": _elkjs(
        "lib/elk-worker.min.js", "dca3a19d9ec37f5634bf5876b4ebd2455c3f43f0d32570136c13c13edaba9bfb"
    ),
    "elkjs-LICENSE.md": _elkjs(
        "LICENSE.md", "637e81f4a1b6b4079535c499fca05e238cf7605c1ff5b76d60d7da7ce96700c9"
    ),
}
"""The files by their names in `FOLDER`."""

LICENSES: Mapping[str, str] = {"elkjs": "EPL-2.0"}
"""License under which the package is distributed here, by SPDX's name."""

if __name__ == "__main__":
    for name, file in VENDORED.items():
        (FOLDER / name).write_bytes(file.fetched())
