"""Servers, programs and seeds that modules of several folders use (a plugin)."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql

from eosframework.embedded import start_kafka
from eosframework.errors import ConfigurationError, EosError
from tests.conftest import SMALL_BROKER, TOLD, KafkaService
from tests.support.processes.browser import Browser, running_browser
from tests.support.servers.databases import DATABASE_PASSWORD, dsn_with
from tests.support.servers.schema_registry import Registry, start_registry

VERIFICATION = "transaction.partition.verification.enable"

UNPROTECTED = {
    **SMALL_BROKER,
    VERIFICATION: "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture
def seed(record_property: Callable[[str, object], None]) -> int:
    """A seed that each run draws anew and names; `EOS_TEST_SEED=` repeats a run's."""
    drawn = int(os.environ.get("EOS_TEST_SEED", random.randrange(2**32)))
    print(f"EOS_TEST_SEED={drawn}")
    record_property(TOLD, f"seed {drawn}")
    return drawn


@pytest.fixture(scope="module")
def unprotected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaService]:
    """A broker that takes records of transactions that no producer announced, and knows ACLs."""
    directory = tmp_path_factory.mktemp("unprotected")
    cluster = start_kafka(directory, fast_start=True, properties=UNPROTECTED)
    try:
        yield KafkaService(cluster.bootstrap_servers)
    finally:
        cluster.kill()


@pytest.fixture(scope="module")
def registry(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Registry]:
    """A real schema registry that takes only schemas which can read what was written before."""
    try:
        running = start_registry(tmp_path_factory.mktemp("registry"))
    except EosError as error:
        if request.config.getoption("--require-services"):
            raise
        pytest.skip(f"no schema registry: {error}")
    try:
        running.wait_until_up()
        running.ask("PUT", "/config", {"compatibility": "BACKWARD"})
        yield running
    finally:
        running.stop()


@pytest.fixture
def secret_dsn(database: str) -> Iterator[str]:
    """The DSN of a user with `DATABASE_PASSWORD`."""
    role = f"keeper_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(database, autocommit=True) as connection:
        create = sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}")
        connection.execute(create.format(sql.Identifier(role), DATABASE_PASSWORD))
    yield dsn_with(database, user=role, password=DATABASE_PASSWORD)
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in ("REASSIGN OWNED BY {} TO CURRENT_USER", "DROP ROLE {}"):
            connection.execute(sql.SQL(statement).format(sql.Identifier(role)))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window; skips where it cannot be had."""
    try:
        with running_browser() as browser:
            yield browser
    except ConfigurationError as error:
        pytest.skip(str(error))
