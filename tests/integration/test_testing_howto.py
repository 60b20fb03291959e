"""The suite that docs/howto/testing.md shows, and what the fixtures give to one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import KafkaService, PostgresService

REPOSITORY = Path(__file__).resolve().parents[2]

DATABASES = """
import psycopg

seen = []


def look(database):
    with psycopg.connect(database.dsn) as connection:
        connection.execute("CREATE TABLE mine (n int)")
        seen.append(connection.info.dbname)


def test_one(postgres_database):
    look(postgres_database)


def test_another_has_a_database_of_its_own(postgres_database):
    look(postgres_database)
    assert len(set(seen)) == 2


def test_both_are_gone(postgres_server):
    with psycopg.connect(postgres_server) as connection:
        names = [name for [name] in connection.execute("SELECT datname FROM pg_database")]
    assert not set(seen) & set(names)
"""


def test_the_suite_that_the_howto_shows_passes_as_it_stands(
    kafka: KafkaService, tmp_path: Path
) -> None:
    page = (REPOSITORY / "docs/howto/testing.md").read_text(encoding="utf-8")
    files = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL)
    on_servers = {"conftest.py", "orders.py", "test_orders.py"}
    assert {name for name, _ in files} == {"shop.py", "test_shop.py", *on_servers}
    for name, text in files:
        (tmp_path / name).write_text(text)
    said = run_suite(tmp_path, {"EOS_TEST_BOOTSTRAP": kafka.bootstrap_servers})
    assert "2 passed" in said


def test_each_test_has_an_empty_database_of_its_own_which_is_dropped(
    postgres: PostgresService, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["eosframework.testing.fixtures"]\n')
    (tmp_path / "test_databases.py").write_text(DATABASES)
    assert "3 passed" in run_suite(tmp_path, {"EOS_TEST_DSN": postgres.dsn})


def test_a_server_that_cannot_be_had_fails_the_test_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["eosframework.testing.fixtures"]\n')
    (tmp_path / "test_it.py").write_text("def test_it(kafka_cluster):\n    pass\n")
    said = run_suite(tmp_path, {"EOS_TEST_PROVIDER": "external"}, passes=False)
    assert "EOS_TEST_BOOTSTRAP does not say where; set it" in said
    assert "1 error" in said


def run_suite(folder: Path, variables: Mapping[str, str], *, passes: bool = True) -> str:
    own = ("EOS_TEST_", "PYTEST_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env=inherited | dict(variables),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode == 0) is passes, done.stdout + done.stderr
    return done.stdout
