"""The first hour of a user: the commands of the README in their order, on a real broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.programs import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
EXAMPLE = REPOSITORY / "examples" / "wordcount"


def section(name: str) -> str:
    return README.partition(f"## {name}\n")[2].partition("\n## ")[0]


def test_the_word_count_of_the_readme_is_the_example() -> None:
    [shown] = re.findall(r"```python\n(.*?)```", section("Getting started"), re.DOTALL)
    assert (EXAMPLE / "wordcount.py").read_text().endswith(shown)
    assert sum(bool(line.strip()) for line in shown.splitlines()) == 9


@pytest.mark.slow
def test_its_commands_run_in_their_order(
    kafka: Any, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    [script] = re.findall(r"```sh\n(.*?)```", section("Getting started"), re.DOTALL)
    first, *others = script.splitlines()
    assert first.startswith("eosframework broker up")  # the broker of the tests is up already
    # Its names are its own on a broker that others use.
    names = {name: unique_name(name) for name in ("wordcount", "lines", "counts")}
    text = (EXAMPLE / "wordcount.py").read_text()
    for name, own in names.items():
        text = text.replace(f'"{name}"', f'"{own}"')
        others = [re.sub(rf"\b{name}(?![.\w])", own, line) for line in others]
    (tmp_path / f"{names['wordcount']}.py").write_text(text)
    (tmp_path / "wordcount.py").write_text(text)
    (tmp_path / "eosframework").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m eosframework "$@"\n'
    )
    (tmp_path / "eosframework").chmod(0o755)
    done = subprocess.run(
        ["sh", "-exc", "\n".join(others)],
        cwd=tmp_path,
        env=os.environ
        | {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "EOS_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "EOS_STATE__DIRECTORY": str(tmp_path / "stores"),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {"to\t2", "be\t2", "or\t1", "not\t1"} <= set(lines)
    assert any(f"{names['wordcount']}: 0 members" in line for line in lines), lines
