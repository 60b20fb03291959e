"""mypy finds in the typed topology what basedpyright finds in `make types`, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path("tests", "support", "typing", "typed_topology.py")


def checked(program: Path) -> list[str]:
    """Return the complaints about a program, and not those about the package that it imports."""
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(program)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert found.stderr == ""
    return [line for line in found.stdout.splitlines() if line.startswith(str(program))]


@pytest.mark.exhaustive
def test_mypy_complains_of_each_wrong_line_and_of_no_right_one(tmp_path: Path) -> None:
    assert checked(PROGRAM) == []
    program = tmp_path / "unmarked.py"
    text = PROGRAM.read_text()
    program.write_text(text.replace("# type: ignore", "# no"))
    assert len(checked(program)) >= text.count("# type: ignore[")
