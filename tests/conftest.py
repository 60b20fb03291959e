"""Services, unique names and the rules of the tiers.

A test that asks for `kafka` gets the marker of that name and a real broker: the one in
EOS_TEST_BOOTSTRAP, else an embedded one, started once per run. The same holds for `postgres`, with
EOS_TEST_DSN; `database` is a new, empty database on it. `spark` is a session that a module has for
itself.
"""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from eosframework.embedded import start_kafka, start_postgres
from eosframework.errors import EosError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes says how busy the machine is, and nothing of what is tested.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

UNIT = Path(__file__).parent / "unit"
UNIT_TIMEOUT_SECONDS = 20

SMALL_BROKER = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "8",
    "num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
"""Internal topics are made at their first use; few partitions make that quick."""


QUICK_POSTGRES = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "max_replication_slots": "50",
    "max_wal_senders": "20",
    "synchronous_commit": "off",
    "wal_level": "logical",
}
"""Nothing here survives a crash of the machine; tests that kill the server start their own."""


SMALL_SPARK = {"spark.driver.memory": "600m", "spark.sql.shuffle.partitions": "2"}

SOCKETS_OF_SPARK = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""pyspark leaves the sockets on which it got rows to the garbage collector."""


@dataclass(frozen=True)
class KafkaService:
    """A real broker for tests."""

    bootstrap_servers: str


@dataclass(frozen=True)
class PostgresService:
    """A real PostgreSQL for tests: where a superuser reaches it."""

    dsn: str


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-services",
        action="store_true",
        help="a service that cannot be had is a failure, not a reason to skip",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for service in ("kafka", "postgres", "spark"):
            if service in getattr(item, "fixturenames", ()):
                item.add_marker(service)
        if item.get_closest_marker("spark"):
            item.add_marker(SOCKETS_OF_SPARK)
        if UNIT in item.path.parents:
            item.add_marker(pytest.mark.disable_socket)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(UNIT_TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaService]:
    """One real broker for the whole run."""
    if chosen := os.environ.get("EOS_TEST_BOOTSTRAP"):
        yield KafkaService(chosen)
        return
    data_dir = tmp_path_factory.mktemp("kafka")
    try:
        cluster = start_kafka(data_dir, fast_start=True, properties=SMALL_BROKER)
    except EosError as error:
        if request.config.getoption("--require-services"):
            raise
        pytest.skip(f"no Kafka broker could be started: {error}")
    try:
        yield KafkaService(cluster.bootstrap_servers)
    finally:
        cluster.kill()


@pytest.fixture(scope="session")
def postgres(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PostgresService]:
    """One real PostgreSQL for the whole run."""
    if chosen := os.environ.get("EOS_TEST_DSN"):
        yield PostgresService(chosen)
        return
    try:
        server = start_postgres(tmp_path_factory.mktemp("postgres"), settings=QUICK_POSTGRES)
    except EosError as error:
        if request.config.getoption("--require-services"):
            raise
        pytest.skip(f"no PostgreSQL could be started: {error}")
    try:
        yield PostgresService(server.dsn)
    finally:
        server.stop()


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session as a backfill starts one; its tasks run two at a time and are tried four times."""
    from eosframework.backfill.spark.session import spark_session

    try:
        session = spark_session("local[2,4]", SMALL_SPARK)
    except EosError as error:
        if request.config.getoption("--require-services"):
            raise
        pytest.skip(f"no Spark could be started: {error}")
    try:
        yield session
    finally:
        session.stop()
        gc.collect()


@pytest.fixture
def make_database(postgres: PostgresService) -> Iterator[Callable[[], str]]:
    """Make new, empty databases and return their DSN; they are dropped after the test."""
    from tests.support.databases import create_database, drop_database

    made: list[str] = []

    def make() -> str:
        made.append(create_database(postgres.dsn))
        return made[-1]

    yield make
    for dsn in made:
        drop_database(postgres.dsn, dsn)


@pytest.fixture
def database(make_database: Callable[[], str]) -> str:
    """The DSN of a new, empty database."""
    return make_database()


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """Make names that no other test has: `unique_name("orders")`, of [a-z0-9_.]."""

    def make(prefix: str = "test") -> str:
        return f"{prefix}.{uuid.uuid4().hex[:12]}"

    return make


@pytest.fixture
def topic_name(unique_name: Callable[[str], str]) -> str:
    """A topic name that no other test has."""
    return unique_name("topic")


@pytest.fixture
def make_pipeline(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[..., Any]]:
    """Make pipelines (tests/support/pipeline.py) on the shared broker; their workers are ended."""
    from tests.support.pipeline import Pipeline

    made: list[Pipeline] = []

    def make(**options: Any) -> Pipeline:
        name = unique_name("app")
        made.append(Pipeline(kafka.bootstrap_servers, name, tmp_path / name, **options))
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.stop()


@pytest.fixture
def make_outbox(
    kafka: KafkaService, make_database: Callable[[], str], tmp_path: Path
) -> Iterator[Callable[..., Any]]:
    """Make outboxes (tests/support/outbox.py) on the shared servers; their relays are ended."""
    from tests.support.outbox import OutboxWorld

    made: list[OutboxWorld] = []

    def make(
        *, dsn: str | None = None, bootstrap_servers: str | None = None, **options: Any
    ) -> OutboxWorld:
        place = tmp_path / f"outbox{len(made)}"
        brokers = bootstrap_servers or kafka.bootstrap_servers
        made.append(OutboxWorld(brokers, dsn or make_database(), place, **options))
        return made[-1]

    yield make
    for outbox in made:
        outbox.stop()


@pytest.fixture
def make_tables(
    kafka: KafkaService,
    make_database: Callable[[], str],
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> Iterator[Callable[..., Any]]:
    """Make applications that fill tables (tests/support/tables.py); their workers are ended."""
    from tests.support.tables import TablesWorld

    made: list[TablesWorld] = []

    def make(*, dsn: str | None = None, **options: Any) -> TablesWorld:
        name = unique_name("app")
        chosen = dsn or make_database()
        made.append(TablesWorld(kafka.bootstrap_servers, name, tmp_path / name, chosen, **options))
        return made[-1]

    yield make
    for tables in made:
        tables.stop()
