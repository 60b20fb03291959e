"""What the README shows runs as it stands there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.applications.pipeline import read_committed
from tests.support.processes.commands import Cluster, Folder
from tests.support.processes.programs import REPOSITORY


def snippets(language: str) -> list[str]:
    """The blocks from the first topology on; test_getting_started.py runs those before."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8").partition("## A topology")[2]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize(("language", "file"), [("yaml", "topology.yaml"), ("python", "app.py")])
def test_the_topology_of_the_readme_is_good(tmp_path: Path, language: str, file: str) -> None:
    shutil.copy(REPOSITORY / "examples" / "flights" / "flights.py", tmp_path)
    folder = Folder(tmp_path, "127.0.0.1:1")
    folder.write(file, snippets(language)[0])
    found = folder.run("lint", file, "--json").json
    assert (found["errors"], found["warnings"]) == (0, 0), found
    described = folder.run("describe", file, "--json").json
    assert described["application"] == "flights"


def test_the_windows_of_the_readme_are_good(tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "examples" / "flights" / "flights.py", tmp_path)
    folder = Folder(tmp_path, "127.0.0.1:1")
    folder.write("app.py", "\n".join(snippets("python")[:2]))
    found = folder.run("lint", "app.py", "--json").json
    assert (found["errors"], found["warnings"]) == (0, 0), found
    [stored] = [
        part["stores"]
        for part in folder.run("describe", "app.py", "--json").json["sub_topologies"]
        if part["stores"]
    ]
    assert len([store for store in stored if not store["name"].endswith(".__watermarks")]) == 1


def test_the_producer_of_the_readme_commits(kafka: Any, topic_name: str, tmp_path: Path) -> None:
    Cluster(kafka.bootstrap_servers).create(topic_name)
    program = snippets("python")[2].replace('"…"', repr(kafka.bootstrap_servers), 1)
    program = program.replace('"orders"', repr(topic_name)).replace("orders-1", f"{topic_name}-1")
    (tmp_path / "program.py").write_text(program)
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, check=True, timeout=180)
    assert [record.value() for record in read_committed(kafka.bootstrap_servers, topic_name)]
