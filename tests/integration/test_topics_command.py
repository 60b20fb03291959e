from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from tests.conftest import KafkaService
from tests.support.processes.commands import Folder
from tests.support.processes.waiting import PATIENCE_SECONDS


@pytest.fixture
def folder(kafka: Any, tmp_path: Path) -> Folder:
    return Folder(tmp_path, kafka.bootstrap_servers)


def typed(folder: Folder, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`topics produce` with text on its stdin."""
    return subprocess.run(
        folder.command("topics", "produce", *arguments),
        env=folder.environment(),
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def test_lines_are_written_and_read_again(
    folder: Folder, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("tried")
    assert folder.run("topics", "create", topic, "--partitions", "3").exit_code == 0
    again = folder.run("topics", "create", topic, "--json").json
    assert (again["created"], again["existed"]) == ([], [topic])

    assert typed(folder, "to be\nor not\n", topic).returncode == 0
    done = typed(folder, "a=1\nb=2\na=3\n", topic, "--key-separator", "=")
    assert done.stdout == f"wrote 3 records to {topic}\n"
    shown = folder.run("topics", "read", topic)
    assert sorted(shown.out.splitlines()) == ["\tor not", "\tto be", "a\t1", "a\t3", "b\t2"]
    assert shown.out.index("a\t1") < shown.out.index("a\t3")
    limited = folder.run("topics", "read", topic, "--limit", "2", "--json").json["records"]
    assert len(limited) == 2


def test_a_topic_gets_the_settings_that_are_asked_for(
    folder: Folder, kafka: KafkaService, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("compacted")
    asked = ("--setting", "cleanup.policy=compact", "--setting", "segment.bytes=1048576")
    assert folder.run("topics", "create", topic, *asked).exit_code == 0
    admin = ClusterAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    assert admin.topic_setting([topic], "cleanup.policy") == {topic: "compact"}
    refused = folder.run("topics", "create", unique_name("odd"), "--setting", "cleanup=compact")
    assert refused.exit_code == 2
    assert "cleanup" in refused.error


def test_mistakes_are_named(folder: Folder, unique_name: Callable[[str], str]) -> None:
    topic = unique_name("none")
    for done in (folder.run("topics", "read", topic), folder.run("topics", "produce", topic)):
        assert done.exit_code == 2
        assert f"`eosframework topics create {topic}`" in done.error
    folder.run("topics", "create", topic)
    done = typed(folder, "a=1\nb\n", topic, "--key-separator", "=")
    assert done.returncode == 2
    assert "line 2 of stdin has no '='; expected KEY=VALUE" in done.stderr


def test_status_names_a_missing_source_as_its_producers(
    folder: Folder, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("absent")
    folder.write(
        "app.yaml",
        f"application: {topic}\nsources:\n  s: {{topic: {topic}}}\n"
        f"streams:\n  x: {{from: s, to: {topic}.out}}\n",
    )
    done = folder.run("status", "app.yaml")
    assert done.exit_code == 2
    assert f"source topic {topic} does not exist; its producers create it" in done.error
    assert "apply" not in done.error
