"""Providers of the servers of a test run: this machine, containers, or running servers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from eosframework.errors import ConfigurationError

Service = Literal["kafka", "postgres"]

PROVIDER_VARIABLE = "EOS_TEST_PROVIDER"
VERSION_VARIABLE = "EOS_TEST_KAFKA_VERSION"
ADDRESS_VARIABLES: Mapping[Service, str] = {
    "kafka": "EOS_TEST_BOOTSTRAP",
    "postgres": "EOS_TEST_DSN",
}


class Provider(Protocol):
    """Provides real servers for the duration of a context; no other test run uses them."""

    def kafka(self, properties: Mapping[str, str]) -> AbstractContextManager[str]:
        """Provide a cluster; yields its bootstrap servers.

        Args:
            properties: of its brokers, by Kafka's names.
        """
        ...

    def postgres(self, settings: Mapping[str, str]) -> AbstractContextManager[str]:
        """Provide a database server; yields the DSN of a user who may create databases.

        Args:
            settings: of the server, by PostgreSQL's names.
        """
        ...


_NEVER_FENCED = {"broker.session.timeout.ms": "60000"}
"""A machine that stands still for seconds must not end the only broker's session."""


def choose_provider(
    service: Service,
    name: str | None,
    environment: Mapping[str, str],
    make_folder: Callable[[str], Path],
) -> Provider:
    """Return the provider of a service.

    Args:
        service: that a test needs.
        name: the user's choice; None: EOS_TEST_PROVIDER, else the server in EOS_TEST_BOOTSTRAP
            or EOS_TEST_DSN, else embedded.
        environment: variables by name.
        make_folder: creates a new folder for a server's data.

    Raises:
        ConfigurationError: there is no such provider, or a variable or package that it needs is
            missing.
    """
    address = environment.get(ADDRESS_VARIABLES[service])
    name = name or environment.get(PROVIDER_VARIABLE) or ("external" if address else "embedded")
    if name == "embedded":
        return Embedded(make_folder, environment.get(VERSION_VARIABLE))
    if name == "containers":
        from eosframework.testing.containers import Containers, chosen_images

        return Containers(chosen_images(environment))
    if name == "external":
        return External(environment)
    raise ConfigurationError(
        f"{PROVIDER_VARIABLE} is {name!r}; expected embedded, containers or external"
    )


@dataclass(frozen=True)
class Embedded:
    """Servers started from packages, as processes on this machine.

    Args:
        make_folder: creates a new folder for a server's data.
        kafka_version: of the brokers; None: the newest.
    """

    make_folder: Callable[[str], Path]
    kafka_version: str | None = None

    @contextmanager
    def kafka(self, properties: Mapping[str, str]) -> Generator[str]:
        """Start a broker; it is killed at the end, because its data is not needed again."""
        from eosframework.embedded import start_kafka

        folder = self.make_folder("kafka")
        cluster = start_kafka(
            folder,
            kafka=self.kafka_version,
            fast_start=True,
            properties={**_NEVER_FENCED, **properties},
        )
        try:
            yield cluster.bootstrap_servers
        finally:
            cluster.kill()

    @contextmanager
    def postgres(self, settings: Mapping[str, str]) -> Generator[str]:
        """Start a server and stop it at the end."""
        from eosframework.embedded import start_postgres

        with start_postgres(self.make_folder("postgres"), settings=settings) as server:
            yield server.dsn


@dataclass(frozen=True)
class External:
    """Servers that are already running, with their own settings.

    Args:
        environment: variables by name; EOS_TEST_BOOTSTRAP and EOS_TEST_DSN are the addresses.
    """

    environment: Mapping[str, str] = field(repr=False)

    @contextmanager
    def kafka(self, properties: Mapping[str, str]) -> Generator[str]:
        """Yield the brokers of EOS_TEST_BOOTSTRAP."""
        del properties
        yield self._address("kafka")

    @contextmanager
    def postgres(self, settings: Mapping[str, str]) -> Generator[str]:
        """Yield the server of EOS_TEST_DSN."""
        del settings
        yield self._address("postgres")

    def _address(self, service: Service) -> str:
        variable = ADDRESS_VARIABLES[service]
        if address := self.environment.get(variable):
            return address
        raise ConfigurationError(
            f"tests were to use servers that run already, and {variable} does not say where; "
            f"set it, or choose {PROVIDER_VARIABLE}=embedded"
        )
