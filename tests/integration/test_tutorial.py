"""The notebook of the tutorial runs from its first cell to its last, as in a user's directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.processes.programs import REPOSITORY

NOTEBOOK = REPOSITORY / "docs" / "start" / "tutorial.ipynb"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def notebook() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def run(cells: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    """Run a notebook in a kernel of its own; an assertion in a cell fails here."""
    command = folder / "bin" / "eosframework"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m eosframework "$@"\n')
    command.chmod(0o755)
    own = {"PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    own |= {name: str(folder / name) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR")}
    for name, value in {**own, **environment}.items():
        monkeypatch.setenv(name, value)
    NotebookClient(
        cells, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()


def test_its_cells_without_a_broker_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = notebook()
    [end] = [
        number for number, cell in enumerate(found.cells) if "## On a real Kafka" in cell.source
    ]
    found.cells = found.cells[:end]
    run(found, tmp_path, monkeypatch)
    [outcome] = [output for output in found.cells[-1].outputs if "data" in output]
    assert "crashes, and each result once" in outcome["data"]["text/plain"]


@pytest.mark.exhaustive
def test_all_of_its_cells_run(
    kafka: Any, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = notebook()
    for cell in found.cells:
        cell.source = cell.source.replace("tutorial", topic_name)
    run(found, tmp_path, monkeypatch, EOS_KAFKA__BOOTSTRAP_SERVERS=kafka.bootstrap_servers)
    ran = [cell for cell in found.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in ran)
    assert "exactly once" in ran[-1].outputs[-1]["data"]["text/plain"]


def test_no_output_is_kept_in_it() -> None:
    code = [cell for cell in notebook().cells if cell.cell_type == "code"]
    assert len(code) > 10
    assert not any(cell.outputs or cell.execution_count for cell in code)
