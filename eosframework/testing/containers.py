"""Servers for tests in containers: the official images, through testcontainers.

The only importer of testcontainers. Its KafkaContainer supports images of another vendor, so
apache/kafka is started here in the same way as by testcontainers for Java: the port for clients is
known only once the container runs, so its command waits for a script.
"""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from eosframework.config import KafkaSettings
from eosframework.errors import ComponentFailed, ConfigurationError, EosError

try:
    from docker.errors import APIError, DockerException
    from testcontainers.core.container import DockerContainer
except ImportError as _error:
    raise ConfigurationError(
        "servers in containers need packages that are not installed; "
        "run: pip install 'eosframework[containers]'"
    ) from _error

IMAGE_VARIABLES = {"kafka": "EOS_TEST_KAFKA_IMAGE", "postgres": "EOS_TEST_POSTGRES_IMAGE"}
DEFAULT_IMAGES = {"kafka": "apache/kafka:4.4.0", "postgres": "postgres:18"}

_READY_SECONDS = 300
_POLL_SECONDS = 0.1
_CLIENT_PORT = 9092
_SCRIPT = "/tmp/eosframework-start.sh"
_WAIT_FOR_SCRIPT = f"while [ ! -f {_SCRIPT} ]; do sleep 0.1; done; exec sh {_SCRIPT}"
_RUN = "/etc/kafka/docker/run"
"""The default command of the official image."""

_ONE_NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.quorum.voters": "1@localhost:9094",
    "controller.listener.names": "CONTROLLER",
    "listeners": f"CLIENTS://:{_CLIENT_PORT},BROKER://:9093,CONTROLLER://:9094",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}

_QUICK_JVM = {
    "KAFKA_HEAP_OPTS": "-Xmx512m",
    "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Options for a quick start of the broker, at the price of throughput once it runs."""


@dataclass(frozen=True)
class Containers:
    """One container for each server, removed at the end.

    Args:
        images: by service.
    """

    images: Mapping[str, str]

    @contextmanager
    def kafka(self, properties: Mapping[str, str]) -> Generator[str]:
        """Start a broker and wait until it answers requests."""
        chosen = {**_ONE_NODE, **properties}
        variables = {broker_variable(name): value for name, value in chosen.items()} | _QUICK_JVM
        command = ["sh", "-c", _WAIT_FOR_SCRIPT]
        with self._started("kafka", _CLIENT_PORT, variables, command) as (container, address):
            advertised = f"CLIENTS://{address},BROKER://localhost:9093"
            _put(container, f"export KAFKA_ADVERTISED_LISTENERS={advertised}\nexec {_RUN}\n")
            _await(container, lambda: _answers_as_kafka(address))
            yield address

    @contextmanager
    def postgres(self, settings: Mapping[str, str]) -> Generator[str]:
        """Start a server and wait until it accepts connections."""
        from eosframework.postgres.database.scratch import answers

        variables = {"POSTGRES_USER": "postgres", "POSTGRES_PASSWORD": "postgres"}
        options = [part for item in settings.items() for part in ("-c", "=".join(item))]
        command = ["postgres", *options]
        with self._started("postgres", 5432, variables, command) as (container, address):
            dsn = f"postgresql://postgres:postgres@{address}/postgres"
            _await(container, lambda: answers(dsn))
            yield dsn

    @contextmanager
    def _started(
        self, service: str, port: int, variables: Mapping[str, str], command: list[str]
    ) -> Generator[tuple[DockerContainer, str]]:
        """Run a container; yields it with the address of its port, as host:port."""
        container: DockerContainer | None = None
        try:
            try:
                container = DockerContainer(self.images[service])
                container.with_exposed_ports(port).with_envs(**variables).with_command(command)
                container.start()
                address = f"{_host_of(container)}:{container.get_exposed_port(port)}"
            except APIError as error:
                raise ConfigurationError(
                    f"a container of {self.images[service]} cannot be started: "
                    f"{error.explanation or error}; {IMAGE_VARIABLES[service]} names another image"
                ) from error
            except DockerException as error:
                raise ConfigurationError(
                    f"no Docker engine answers ({error}); start one, set DOCKER_HOST, or choose "
                    "EOS_TEST_PROVIDER=embedded"
                ) from error
            yield container, address
        finally:
            if container is not None:
                container.stop()


def chosen_images(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the image of each service: the one in its variable, else the official one."""
    return {
        service: environment.get(IMAGE_VARIABLES[service]) or image
        for service, image in DEFAULT_IMAGES.items()
    }


def broker_variable(name: str) -> str:
    """Return the variable from which the image reads a broker's property (KafkaDockerWrapper)."""
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def _host_of(container: DockerContainer) -> str:
    """Return the host of the engine; as a number, because a name may resolve to IPv6 first."""
    host = container.get_container_host_ip()
    return "127.0.0.1" if host == "localhost" else host


def _put(container: DockerContainer, script: str) -> None:
    content = script.encode()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo(_SCRIPT.lstrip("/"))
        entry.size = len(content)
        entry.mode = 0o644
        tar.addfile(entry, io.BytesIO(content))
    wrapped: Any = container.get_wrapped_container()
    wrapped.put_archive("/", archive.getvalue())


def _await(container: DockerContainer, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    wrapped: Any = container.get_wrapped_container()
    while not ready():
        wrapped.reload()
        ended = wrapped.status in ("exited", "dead")
        if ended or time.monotonic() > deadline:
            said = wrapped.logs(tail=20).decode(errors="replace").strip()
            raise ComponentFailed(
                f"the container of {container.image} "
                f"{'ended' if ended else f'did not serve within {_READY_SECONDS} s'}: {said}"
            )
        time.sleep(_POLL_SECONDS)


def _answers_as_kafka(address: str) -> bool:
    from eosframework.kafka.admin.cluster_admin import ClusterAdmin

    settings = KafkaSettings(bootstrap_servers=address, request_timeout_seconds=5)
    try:
        return bool(ClusterAdmin(settings).cluster_id())
    except EosError:
        return False
