"""Where test processes keep what they share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

SHARED_FOLDER_VARIABLE = "PYTEST_DEBUG_TEMPROOT"
"""pytest's own folder, too, is not in the one that has to be empty after each test."""

OWNER_VARIABLE = "LEFTOVERS_OWNER"
"""Processes inherit it from the test process that they belong to (leftovers.py)."""


def shared_folder() -> Path:
    """Return the temporary directory of the machine; a test process has one of its own besides."""
    return Path(os.environ.get(SHARED_FOLDER_VARIABLE) or tempfile.gettempdir())
