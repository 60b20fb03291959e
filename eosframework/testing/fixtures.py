"""pytest fixtures for tests against a real Kafka and a real PostgreSQL.

A suite requests them once, in its `conftest.py`:

    pytest_plugins = ["eosframework.testing.fixtures"]

They are not an entry point of pytest: an entry point would load them into every run of every suite
in an environment with eosframework.

`kafka_cluster` is one cluster for a whole run; `postgres_database` is a new, empty database for
each test, on one server for a whole run. Both start at their first use. `kafka_properties` and
`postgres_settings` may be overridden. `--eos-provider`, else EOS_TEST_PROVIDER, chooses the
provider of the servers (see `providers`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from eosframework.config import KafkaSettings
from eosframework.testing.providers import External, Provider, Service, choose_provider


@dataclass(frozen=True)
class KafkaForTests:
    """A real cluster that the tests of a run share.

    Args:
        bootstrap_servers: its brokers as host:port, separated by commas.
    """

    bootstrap_servers: str
    _names: list[str] = field(default_factory=list[str], init=False, repr=False, compare=False)

    def make_topic(
        self,
        name: str = "topic",
        partitions: int = 1,
        *,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic and return its name, which begins with `name` and is unique.

        Args:
            name: of [a-zA-Z0-9._-].
            partitions: number of partitions.
            config: its settings, by Kafka's names.

        Raises:
            ConfigurationError: the cluster refuses the topic; names the reason.
            ClusterUnreachable: no broker answered.
        """
        from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate

        topic = TopicToCreate(self.unique(name), partitions, config=config)
        admin = ClusterAdmin(KafkaSettings(bootstrap_servers=self.bootstrap_servers))
        admin.create_topics([topic])
        return topic.name

    def unique(self, name: str) -> str:
        """Return a unique name for an application, a group or a topic."""
        self._names.append(f"{name}.{uuid.uuid4().hex[:12]}")
        return self._names[-1]

    def delete_topics(self) -> None:
        """Delete every topic whose name begins with one that was made here.

        These are the topics of tests and of their applications, which must have stopped. Topics
        that the cluster refuses to delete stay.
        """
        from eosframework.kafka.admin.cluster_admin import ClusterAdmin
        from eosframework.kafka.admin.requests import REQUEST_FAILED

        if self._names:
            admin = ClusterAdmin(KafkaSettings(bootstrap_servers=self.bootstrap_servers))
            with suppress(*REQUEST_FAILED):
                own = tuple(self._names)
                if doomed := [name for name in admin.topic_names() if name.startswith(own)]:
                    admin.delete_topics(doomed)


@dataclass(frozen=True)
class PostgresForTests:
    """A real, empty database for one test.

    Args:
        dsn: its connection string, with its owner's password.
    """

    dsn: str = field(repr=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses the provider of servers."""
    parser.addoption(
        "--eos-provider",
        metavar="NAME",
        help="provider of Kafka and PostgreSQL: embedded, containers or external",
    )


@pytest.fixture(scope="session")
def kafka_properties() -> Mapping[str, str]:
    """Properties of the brokers; few partitions of internal topics make their creation quick."""
    return {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "8",
    }


@pytest.fixture(scope="session")
def postgres_settings() -> Mapping[str, str]:
    """Settings of the server; its data need not survive a crash of the machine."""
    return {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


@pytest.fixture(scope="session")
def kafka_cluster(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kafka_properties: Mapping[str, str],
) -> Iterator[KafkaForTests]:
    """One real cluster for the whole run; a cluster that stays loses the topics of the run."""
    provider = _provider("kafka", request, tmp_path_factory)
    with provider.kafka(kafka_properties) as bootstrap_servers:
        cluster = KafkaForTests(bootstrap_servers)
        yield cluster
        if isinstance(provider, External):  # other providers remove the cluster
            cluster.delete_topics()


@pytest.fixture(scope="session")
def postgres_server(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    postgres_settings: Mapping[str, str],
) -> Iterator[str]:
    """One real PostgreSQL for the whole run: the DSN of a user who may create databases."""
    provider = _provider("postgres", request, tmp_path_factory)
    with provider.postgres(postgres_settings) as dsn:
        yield dsn


@pytest.fixture
def postgres_database(postgres_server: str) -> Iterator[PostgresForTests]:
    """A new, empty database for one test; it is dropped with its connections."""
    from eosframework.postgres.database.scratch import create_database, drop_database

    dsn = create_database(postgres_server)
    yield PostgresForTests(dsn)
    drop_database(postgres_server, dsn)


def _provider(
    service: Service, request: pytest.FixtureRequest, folders: pytest.TempPathFactory
) -> Provider:
    return choose_provider(
        service, request.config.getoption("--eos-provider"), os.environ, folders.mktemp
    )
