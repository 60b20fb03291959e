"""No secret is in what commands print, log or are called with, also not when they fail."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import sql

from tests.support.applications.guarded import Guarded
from tests.support.applications.pipeline import wait_until
from tests.support.processes.waiting import PATIENCE_SECONDS
from tests.support.servers.databases import DATABASE_PASSWORD
from tests.support.servers.secured_kafka import KEY_PASSWORD, PASSWORD, SecuredKafka, secured_kafka

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, value: json}
streams:
  kept:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to: [{topic: NAME.out, value: json}, {table: numbers, mode: append, value: json}]
"""
WRONG = "wr0ng-p4ss"
SECRETS = (PASSWORD, KEY_PASSWORD, DATABASE_PASSWORD, WRONG)
LOUD = {
    "EOS_LOG__LEVEL": "debug",
    "EOS_KAFKA__PROPERTIES": '{"debug": "security,broker,conf,cgrp"}',
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secrets") / "kafka", "unused") as started:
        yield started


@pytest.fixture
def dsn(secret_dsn: str) -> str:
    """The DSN of a user whose password is known to be secret, on a database with the table."""
    with psycopg.connect(secret_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE numbers (n bigint)")
    return secret_dsn


def assert_hidden(text: str, *, about: object) -> None:
    for secret in SECRETS:
        assert secret not in text, about


@pytest.mark.slow
def test_no_secret_is_shown_by_commands_their_logs_errors_or_the_process_list(
    broker: SecuredKafka, dsn: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    world = Guarded(broker, tmp_path)
    name = unique_name("app")
    world.folder.write("app.yaml", TOPOLOGY.replace("NAME", name))
    for way in ("password", "certificate"):
        world.folder.write(f"{way}/database.dsn", dsn + "\n")
    world.cluster.create(f"{name}.in", partitions=2)
    world.cluster.feed(f"{name}.in", *(b'{"n":%d}' % n for n in range(20)))

    for way, *arguments in (
        ("password", "apply", "app.yaml"),
        ("certificate", "plan", "app.yaml", "--json", "--principal", "User:alice"),
        ("certificate", "doctor", "app.yaml", "--json"),
        ("password", "describe", "app.yaml", "--json"),
        ("password", "status", "app.yaml"),
        ("password", "txn", "list"),
    ):
        done = world.run(*arguments, way=way, own=LOUD)
        assert done.exit_code == 0, (arguments, done.err)
        assert_hidden(done.out + done.err, about=arguments)

    processes, log = running_workers(world, dsn)
    assert processes >= 3, "a supervisor and its workers were looked at"
    assert "SASL_SSL" in log.upper(), "librdkafka told of its connections"
    assert_hidden(log, about=log)


def running_workers(world: Guarded, dsn: str) -> tuple[int, str]:
    """Run supervised workers until they have written; look at how they were called meanwhile."""
    log_file = world.directory / "worker.log"
    arguments = ("run-worker", "app.yaml", "--processes", "2", "--config", "password.yaml")
    process = world.folder.start(*arguments, log=log_file, environment=world.environment() | LOUD)
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            count = sql.SQL("SELECT count(*) FROM numbers")
            wait_until(lambda: connection.execute(count).fetchone() == (20,), "rows")
        family = [psutil.Process(process.pid)]
        family += family[0].children(recursive=True)
        for member in family:
            assert_hidden("\0".join(member.cmdline()), about=member)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
        return len(family), log_file.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("kafka.properties.sasl.password", WRONG, "refused the connection"),
        pytest.param(
            "database.dsn",
            f"postgresql://nobody:{WRONG}@127.0.0.1:1/none",
            "could not connect",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_a_wrong_secret_is_not_told(
    broker: SecuredKafka,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    file: str,
    content: str,
    message: str,
) -> None:
    world = Guarded(broker, tmp_path)
    world.folder.write("app.yaml", TOPOLOGY.replace("NAME", unique_name("app")))
    world.folder.write("password/database.dsn", f"postgresql://nobody:{WRONG}@127.0.0.1:1/none")
    world.folder.write(f"password/{file}", content)
    patience = {"EOS_KAFKA__REQUEST_TIMEOUT_SECONDS": "10"}

    done = world.run("plan", "app.yaml", own=LOUD | patience)

    assert done.exit_code == 2
    assert message in done.error
    assert_hidden(done.out + done.err, about=done.err)
