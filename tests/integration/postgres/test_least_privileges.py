"""A role that owns nothing writes rows and relays an outbox over TLS, with what the docs grant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from eosframework.application.composition.table_writer import require_tables
from eosframework.application.composition.worker import load
from eosframework.config import load_settings
from eosframework.embedded import PostgresServer
from eosframework.errors import StartRefused
from eosframework.postgres.database import Database
from eosframework.postgres.database.grants import RELAY_GRANTS, require_grants
from tests.conftest import KafkaService
from tests.support.applications.outbox import OutboxWorld
from tests.support.applications.tables import TablesWorld
from tests.support.servers.debian_postgres import start_primary

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "security.md"
ROLE, PASSWORD = "shop_worker", "of the worker"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with start_primary(tmp_path_factory.mktemp("least") / "primary") as started:
        yield started


@pytest.fixture
def admin(server: PostgresServer) -> Iterator[psycopg.Connection]:
    """A connection of the owner of everything."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        yield connection
        connection.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


def documented(heading: str) -> list[str]:
    """The statements of a section of the page."""
    section = PAGE.read_text().partition(f"## {heading}")[2].partition("\n## ")[0]
    [block] = re.findall(r"```sql\n(.*?)```", section, re.S)
    return [statement.strip() for statement in block.split(";") if statement.strip()]


def over_tls(server: PostgresServer) -> str:
    """How the role connects: it knows the server by its certificate."""
    place = f"127.0.0.1:{server.port}/{server.dsn.rpartition('/')[2]}"
    certificate = server.data_dir / "server.crt"
    password = PASSWORD.replace(" ", "%20")
    return f"postgresql://{ROLE}:{password}@{place}?sslmode=verify-full&sslrootcert={certificate}"


def each_missing(grants: list[str], admin: psycopg.Connection) -> Iterator[str]:
    """Take one privilege after the other away while the caller looks; each is given back."""
    for grant in grants:
        found = re.fullmatch(r"GRANT (.+) ON (.+) TO \w+", grant)
        assert found is not None
        wanted, where = found.groups()
        for privilege in wanted.split(", "):
            admin.execute(f"REVOKE {privilege} ON {where} FROM {ROLE}".encode())
            yield f"GRANT {privilege} ON {where}"
            admin.execute(f"GRANT {privilege} ON {where} TO {ROLE}".encode())


def sessions(admin: psycopg.Connection) -> set[bool]:
    """Whether the role's sessions are encrypted."""
    rows = admin.execute(
        "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = %s", [ROLE]
    )
    return {encrypted for (encrypted,) in rows}


def test_rows_are_written_with_the_documented_grants_and_without_one_it_is_named(
    server: PostgresServer,
    admin: psycopg.Connection,
    kafka: KafkaService,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    name = unique_name("app")
    world = TablesWorld(kafka.bootstrap_servers, name, tmp_path / name, server.dsn)
    admin.execute("CREATE TABLE orders (n bigint)")
    world.topology_file.write_text(
        world.topology_file.read_text().replace("table: numbers", "table: orders")
    )
    create, *grants = documented("PostgreSQL for a worker")
    assert create.startswith(f"CREATE ROLE {ROLE} LOGIN PASSWORD")
    admin.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
    world.apply()
    for grant in grants:
        admin.execute(grant.encode())
    world.produce(*({"n": n} for n in range(10)))
    worker = world.start_worker(dsn=over_tls(server))
    try:
        world.wait_for(10, "orders")
        assert sessions(admin) == {True}
    finally:
        world.stop()
    assert "error" not in worker.log

    settings = load_settings(assignments=[f"database.dsn={over_tls(server)}"])
    graph = load(str(world.topology_file))
    require_tables(graph, settings)
    for missing in each_missing(grants, admin):
        with pytest.raises(StartRefused, match=f"{missing} TO"):
            require_tables(graph, settings)


@pytest.mark.exhaustive
def test_an_outbox_is_relayed_with_the_documented_grants_and_without_one_it_is_named(
    server: PostgresServer, admin: psycopg.Connection, make_outbox: Callable[..., OutboxWorld]
) -> None:
    world = make_outbox(dsn=server.dsn)
    admin.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
    grants = documented("PostgreSQL for a relay")
    for grant in grants:
        admin.execute(grant.encode())
    world.publish(5)
    world.finish(dsn=over_tls(server))
    assert world.verify().clean

    database = Database(load_settings(assignments=[f"database.dsn={over_tls(server)}"]).database)
    require_grants(database, RELAY_GRANTS)
    for missing in each_missing(grants, admin):
        with pytest.raises(StartRefused, match=f"run: {missing} TO"):
            require_grants(database, RELAY_GRANTS)

    admin.execute(f"REVOKE DELETE ON eosframework.outbox FROM {ROLE}")
    relay = world.start_relay("--until-caught-up", dsn=over_tls(server))
    assert relay.wait() == 2, relay.log
    assert "run: GRANT DELETE ON TABLE eosframework.outbox" in relay.log
