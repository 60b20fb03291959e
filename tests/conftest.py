"""Services, unique names and the rules of the tiers.

A test that asks for `kafka` gets the marker of that name and a real broker, started once per run:
the one that EOS_TEST_PROVIDER or EOS_TEST_BOOTSTRAP says (eosframework/testing/providers.py), else
an embedded one. The same holds for `postgres`, with EOS_TEST_DSN; `database` is a new, empty
database on it. `container_engine` is a Docker engine.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hypothesis
import pytest

from eosframework.errors import EosError
from eosframework.testing.providers import PROVIDER_VARIABLE, External, Service, choose_provider

if TYPE_CHECKING:
    from tests.support.processes.leftovers import Guard
    from tests.support.servers.engine import Engine

pytest_plugins = [
    "eosframework.testing.fixtures",
    "pytester",
    "tests.support.fixtures",
    "tests.support.processes.leftovers",
]

# How long an example takes says how busy the machine is, and nothing of what is tested.
hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")

TOLD = "told"
"""A property by which a test tells something that is printed though it passed, and though it ran in
another process."""

UNIT = Path(__file__).parent / "unit"
UNIT_TIMEOUT_SECONDS = 120

SMALL_BROKER = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "8",
    "num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "metadata.max.idle.interval.ms": "5000",
}
"""Internal topics are made at their first use; few partitions make that quick. Two records a second
in an idle metadata log would be a third of what an idle broker costs."""

GROUPS_OF_KIP_848 = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
}
"""The times of members are the brokers' there; these are those of the tests' workers."""


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


QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""A Spark of tests ends before the better compiler has earned what it costs."""

SHARED_SPARK = "tests/integration/backfill/"
"""The folder whose tests share one (its conftest.py)."""

SHARED = (SHARED_SPARK, "tests/faults/test_three_brokers")
"""What modules begin with that share servers: one process runs all of them."""

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


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what tests that passed have to tell, such as the seed that they drew."""
    for report in terminalreporter.getreports("passed"):
        for name, told in report.user_properties:
            if name == TOLD and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid}: {told}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-services",
        action="store_true",
        help="a service that cannot be had is a failure, not a reason to skip",
    )
    parser.addoption(
        "--group-protocol",
        choices=("classic", "consumer"),
        default="classic",
        help="of the workers that tests start; `consumer` is that of KIP-848",
    )
    parser.addoption(
        "--postgres-version",
        choices=("14", "15", "16", "17"),
        help="major version of the shared PostgreSQL (default: the wheel's)",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts jobs in the background with SIGINT ignored, and all that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["EOS_TEST_GROUP_PROTOCOL"] = str(config.getoption("--group-protocol"))
    options = f"{QUICK_JVM} -Djava.io.tmpdir={_guard(config).java}"
    for variable in ("SPARK_DAEMON_JAVA_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
        os.environ.setdefault(variable, options)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for service in ("container_engine", "kafka", "postgres", "spark"):
            if service in getattr(item, "fixturenames", ()):
                item.add_marker(service)
        if item.get_closest_marker("spark"):
            item.add_marker(SOCKETS_OF_SPARK)
        if UNIT in item.path.parents:
            item.add_marker(pytest.mark.disable_socket)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(UNIT_TIMEOUT_SECONDS))
    if hasattr(config, "workerinput"):
        _long_modules_first(items)


def _long_modules_first(items: list[pytest.Item]) -> None:
    """Leave short modules for the end of a run side by side, where one may be alone with its last.

    Long is what shares one Spark; then modules with tests that are marked `slow`; and others by how
    many tests they have.
    """
    tests = Counter(item.path for item in items)
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(
        key=lambda item: (not _shares_spark(item.nodeid), -slow[item.path], -tests[item.path])
    )


def _shares_spark(nodeid: str) -> bool:
    return nodeid.startswith(SHARED_SPARK)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a module's tests in one process, and all modules that share servers."""
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            shared = (start for start in SHARED if nodeid.startswith(start))
            return next(shared, None) or super()._split_scope(nodeid)

        def _reschedule(self, node: Any) -> None:
            """Assign the next module before the last test of one begins, and not before the last
            but one: what waits for a long test is not run by a process that is free.

            Modules of a process that died are assigned again, also those of which every test has
            run: nothing would come of one that is assigned alone.
            """
            while node in self.registered_collections and not node.shutting_down:
                if self._pending_of(self.assigned_work[node]) > 1:
                    return
                super()._reschedule(node)

        def remove_node(self, node: Any) -> str | None:
            """Assign the tests of a process that died, but for the one that ended it: it failed."""
            for tests in self.assigned_work[node].values():
                for nodeid, done in tests.items():
                    if not done:
                        tests[nodeid] = True
                        super().remove_node(node)
                        return nodeid
            return super().remove_node(node)

    return Sharing(config, log)


@pytest.fixture(scope="session")
def kafka_properties() -> Mapping[str, str]:
    return {**SMALL_BROKER, **GROUPS_OF_KIP_848}


@pytest.fixture(scope="session")
def postgres_settings() -> Mapping[str, str]:
    return QUICK_POSTGRES


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaService]:
    """One real broker for the whole run."""
    _prepare_containers(request, "kafka")
    cluster = _service(request, "kafka_cluster", "no Kafka broker")
    whole = not _has_other_users(request, "kafka")
    with _guard(request.config).topics.watched(cluster.bootstrap_servers, whole=whole):
        yield KafkaService(cluster.bootstrap_servers)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresService]:
    """One real PostgreSQL for the whole run."""
    _prepare_containers(request, "postgres")
    dsn = _service(request, "postgres_server", "no PostgreSQL")
    whole = not _has_other_users(request, "postgres")
    with _guard(request.config).databases.watched(dsn, whole=whole):
        yield PostgresService(dsn)


@pytest.fixture(scope="session")
def postgres_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The server of the plugin, unless a version was chosen."""
    version = request.config.getoption("--postgres-version")
    if version is None:
        yield request.getfixturevalue("postgres_server")
        return
    from eosframework.embedded import start_postgres
    from tests.support.servers.zonky_postgres import zonky_programs

    folder, programs = tmp_path_factory.mktemp("postgres"), zonky_programs(version)
    with start_postgres(folder, programs=programs, settings=QUICK_POSTGRES) as server:
        yield server.dsn


@pytest.fixture(scope="session")
def container_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A Docker engine for the whole run; clients find it by DOCKER_HOST."""
    from tests.support.servers.engine import container_engine

    with ExitStack() as stack:
        try:
            engine = stack.enter_context(container_engine())
        except EosError as error:
            missing(request, f"no container engine: {error}", error)
        variables = stack.enter_context(pytest.MonkeyPatch.context())
        variables.setenv("DOCKER_HOST", engine.host)
        if engine.own:
            # It removes all containers when it ends, so it needs no reaper; and its ports are on
            # 127.0.0.1, also where this machine looks like a container.
            variables.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
            variables.setenv("TESTCONTAINERS_CONNECTION_MODE", "docker_host")
            variables.setenv("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
        yield engine


@pytest.fixture(scope="session")
def need_images(
    request: pytest.FixtureRequest, container_engine: Engine
) -> Callable[[Sequence[str]], None]:
    """Make sure that the engine has images, by their names in servers/local_images.py."""
    from tests.support.servers.local_images import ensure_images

    def need(names: Sequence[str]) -> None:
        try:
            ensure_images(container_engine, names)
        except EosError as error:
            missing(request, f"no image: {error}", error)

    return need


def _prepare_containers(request: pytest.FixtureRequest, service: str) -> None:
    chosen = request.config.getoption("--eos-provider") or os.environ.get(PROVIDER_VARIABLE)
    if chosen == "containers":
        request.getfixturevalue("need_images")([service])


def _guard(config: pytest.Config) -> Guard:
    # pytest wants to load a plugin before anybody else does.
    from tests.support.processes.leftovers import guard_of

    return guard_of(config)


def _has_other_users(request: pytest.FixtureRequest, service: Service) -> bool:
    """Tell whether a server is none that was started for the tests of this process."""
    chosen = request.config.getoption("--eos-provider")
    return isinstance(choose_provider(service, chosen, os.environ, Path), External)


def _service(request: pytest.FixtureRequest, fixture: str, what: str) -> Any:
    try:
        return request.getfixturevalue(fixture)
    except EosError as error:
        missing(request, f"{what} could be started: {error}", error)


def missing(request: pytest.FixtureRequest, reason: str, error: EosError) -> NoReturn:
    """Skip for a service that cannot be had, or fail where services are required."""
    if request.config.getoption("--require-services"):
        raise error
    pytest.skip(reason)


@pytest.fixture
def make_database(postgres: PostgresService) -> Iterator[Callable[[], str]]:
    """Make new, empty databases and return their DSN; they are dropped after the test."""
    from eosframework.postgres.database.scratch import create_database, drop_database

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
def own_names(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Names of one test's own: topics of the shared broker that begin with one end with it."""
    names: list[str] = []
    yield names
    _guard(request.config).topics.delete(names)


@pytest.fixture
def unique_name(own_names: list[str]) -> Callable[[str], str]:
    """Make names that no other test has: `unique_name("orders")`, of [a-z0-9_.]."""

    def make(prefix: str = "test") -> str:
        own_names.append(f"{prefix}.{uuid.uuid4().hex[:12]}")
        return own_names[-1]

    return make


@pytest.fixture
def topic_name(unique_name: Callable[[str], str]) -> str:
    """A topic name that no other test has."""
    return unique_name("topic")


@pytest.fixture
def make_pipeline(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[..., Any]]:
    """Make pipelines (applications/pipeline.py) on the shared broker; their workers are ended."""
    from tests.support.applications.pipeline import Pipeline

    made: list[Pipeline] = []

    def make(kind: type[Pipeline] = Pipeline, **options: Any) -> Pipeline:
        name = unique_name("app")
        made.append(kind(kafka.bootstrap_servers, name, tmp_path / name, **options))
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.stop()


@pytest.fixture
def make_outbox(
    kafka: KafkaService,
    make_database: Callable[[], str],
    own_names: list[str],
    tmp_path: Path,
) -> Iterator[Callable[..., Any]]:
    """Make outboxes (applications/outbox.py) on the shared servers; their relays are ended."""
    from tests.support.applications.outbox import OutboxWorld

    made: list[OutboxWorld] = []

    def make(
        *, dsn: str | None = None, bootstrap_servers: str | None = None, **options: Any
    ) -> OutboxWorld:
        place = tmp_path / f"outbox{len(made)}"
        brokers = bootstrap_servers or kafka.bootstrap_servers
        made.append(OutboxWorld(brokers, dsn or make_database(), place, **options))
        own_names.append(made[-1].name)
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
    """Make applications that fill tables (applications/tables.py); their workers are ended."""
    from tests.support.applications.tables import TablesWorld

    made: list[TablesWorld] = []

    def make(
        kind: type[TablesWorld] = TablesWorld, *, dsn: str | None = None, **options: Any
    ) -> TablesWorld:
        name = unique_name("app")
        chosen = dsn or make_database()
        made.append(kind(kafka.bootstrap_servers, name, tmp_path / name, chosen, **options))
        return made[-1]

    yield make
    for tables in made:
        tables.stop()
