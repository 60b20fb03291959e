"""The files in a cluster's data directory, with the configuration of its brokers.

cluster.json            ports, size and options of the cluster
node-1/server.properties, log4j2.properties, server.log, console.log, pid
node-1/data             the broker's log segments and metadata
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from eosframework.embedded.data_directory import load_state, replace_file
from eosframework.embedded.jars import KAFKA_VERSION
from eosframework.embedded.ports import HOST
from eosframework.errors import ConfigurationError
from eosframework.process.private_files import make_directory

_STATE = "cluster.json"

_OWNED_PROPERTIES = frozenset(
    {
        "process.roles",
        "node.id",
        "controller.quorum.voters",
        "controller.listener.names",
        "log.dirs",
    }
)

_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log_file}
appender.file.filePattern = {log_file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A cluster as recorded in its data directory; node n is at index n - 1.

    Args:
        kafka: version of its brokers.
        formatted: version of Kafka that formatted its data, which decides its feature levels.
    """

    cluster_id: str
    ports: tuple[int, ...]
    controller_ports: tuple[int, ...]
    kafka: str = KAFKA_VERSION
    formatted: str = KAFKA_VERSION
    heap_megabytes: int = 512
    fast_start: bool = False
    properties: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def node_ids(self) -> range:
        """Ids of the nodes, from 1."""
        return range(1, len(self.ports) + 1)


_LAYOUT = TypeAdapter(Layout)


def new_cluster_id() -> str:
    """Return a random id in the format of Kafka's storage tool."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")


def node_directory(data_dir: Path, node_id: int) -> Path:
    """Return the directory of one node."""
    return data_dir / f"node-{node_id}"


def load_layout(data_dir: Path) -> Layout | None:
    """Return the cluster recorded in `data_dir`, or None if there is none.

    Raises:
        ConfigurationError: the record cannot be read.
    """
    return load_state(data_dir / _STATE, _LAYOUT, "cluster")


def save_layout(data_dir: Path, layout: Layout) -> None:
    """Record the cluster and write the configuration files of its nodes."""
    for node_id in layout.node_ids:
        directory = node_directory(data_dir, node_id)
        make_directory(directory)
        make_directory(directory / "tmp")
        replace_file(
            directory / "server.properties", _render(server_properties(layout, data_dir, node_id))
        )
        log_file = directory / "server.log"
        replace_file(directory / "log4j2.properties", _LOGGING.format(log_file=log_file.as_posix()))
    replace_file(data_dir / _STATE, json.dumps(asdict(layout), indent=2))


def server_properties(layout: Layout, data_dir: Path, node_id: int) -> dict[str, str]:
    """Return the broker configuration of one node.

    `{port}`, `{controller_port}` and `{node_id}` in a given property are replaced for the node.

    Raises:
        ConfigurationError: a given property is one that the cluster's layout sets.
    """
    own = {
        "{port}": str(layout.ports[node_id - 1]),
        "{controller_port}": str(layout.controller_ports[node_id - 1]),
        "{node_id}": str(node_id),
    }
    voters = (f"{i}@{HOST}:{layout.controller_ports[i - 1]}" for i in layout.node_ids)
    properties = {
        "process.roles": "broker,controller",
        "node.id": "{node_id}",
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{{port}},CONTROLLER://{HOST}:{{controller_port}}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{{port}}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": (node_directory(data_dir, node_id) / "data").as_posix(),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker may register again only when its old session has ended (9 s by default).
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
        # Retention goes by the records' own time: history written today would be deleted today.
        "log.retention.ms": "-1",
        # The default of 128 MB would take a quarter of the default heap.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        **_replication(len(layout.ports)),
    }
    for name, value in layout.properties.items():
        if name in _OWNED_PROPERTIES:
            raise ConfigurationError(
                f"broker property {name}={value!r} is decided by the embedded cluster; remove it"
            )
        properties[name] = value
    return {name: _substitute(value, own) for name, value in properties.items()}


def _replication(nodes: int) -> dict[str, str]:
    replicas, in_sync = (1, 1) if nodes == 1 else (3, 2)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
    }


def _substitute(value: str, own: Mapping[str, str]) -> str:
    for placeholder, text in own.items():
        value = value.replace(placeholder, text)
    return value


def _render(properties: Mapping[str, str]) -> str:
    escaped = {name: value.replace("\\", "\\\\") for name, value in properties.items()}
    return "".join(f"{name}={value}\n" for name, value in escaped.items())
