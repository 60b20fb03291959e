"""The example that asks a service."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.loader import load_app

FOLDER = Path(__file__).parents[3] / "examples" / "quotes"

pytestmark = pytest.mark.enable_socket


def test_it_has_no_findings() -> None:
    assert lint(load_app(str(FOLDER / "app.py"))) == []


def test_the_test_in_its_readme_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("QUOTES_URL", f"http://127.0.0.1:{port}")
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program.replace("port=8000", f"port={port}"), names)
    assert names["driver"].now > 1.2, "two more attempts, after their pauses"
