"""A Kafka cluster on this machine: one process per node, one directory for all its files.

The files in a cluster's data directory, with the configuration of its brokers.
cluster.json            ports, size and options of the cluster
node-1/server.properties, log4j2.properties, server.log, console.log, pid
node-1/data             the broker's log segments and metadata
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from pydantic import TypeAdapter

from eosframework.embedded.data_directory import (
    HOST,
    START_SECONDS,
    Guard,
    exclusively,
    free_ports,
    is_free,
    load_state,
    own_directory,
    replace_file,
    require_free,
)
from eosframework.embedded.jars import (
    KAFKA_VERSION,
    class_archive,
    fetched,
    find_java,
    kafka_release,
    recording,
    sharing,
    version_key,
)
from eosframework.embedded.node import STORAGE_MAIN, Node, node_marker
from eosframework.errors import ComponentFailed, ConfigurationError, EosError
from eosframework.process.directories import FILE_MODE, UMASK, expanded, make_directory

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


CLUSTER_SIZES = (1, 3)

FEATURES = ("--feature=transaction.version=2",)
"""Options for formatting new clusters."""

_FORMATTED = "formatted"

_QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_LASTING_JVM = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


class KafkaCluster:
    """Real Kafka brokers on this machine; as a context manager it stops them at the end."""

    def __init__(
        self, data_dir: Path, version: str, nodes: Sequence[Node], guard: Guard | None = None
    ) -> None:
        self.data_dir = data_dir
        self.version = version
        self.nodes = tuple(nodes)
        self._guard = guard

    @property
    def bootstrap_servers(self) -> str:
        """All brokers as host:port, separated by commas."""
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    @property
    def running(self) -> bool:
        """True if the process of every node exists."""
        return all(node.running for node in self.nodes)

    def stop(self, *, deadline_seconds: float = 20) -> None:
        """Stop all nodes; those still running at the deadline are killed."""
        deadline = time.monotonic() + deadline_seconds
        for node in self.nodes:
            node.ask_to_stop()
        for node in self.nodes:
            node.await_end(deadline - time.monotonic())
        self.dismiss_guard()

    def kill(self) -> None:
        """Send SIGKILL to all nodes."""
        for node in self.nodes:
            node.kill()
        self.dismiss_guard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def dismiss_guard(self) -> None:
        """End the guard, the process that would kill the nodes after this process has ended."""
        if self._guard is not None:
            self._guard.dismiss()


def start_kafka(
    data_dir: Path,
    *,
    kafka: str | None = None,
    nodes: int | None = None,
    ports: Sequence[int] | None = None,
    properties: Mapping[str, str] | None = None,
    heap_megabytes: int = 512,
    fast_start: bool = False,
    detached: bool = False,
    deadline_seconds: float = START_SECONDS,
) -> KafkaCluster:
    """Start a cluster on the data in `data_dir`, or a new one if there is none.

    1. record the layout  2. fetch missing jars  3. format new nodes  4. start all nodes
    5. wait until each of them knows all of them. The first cluster of a machine also records the
    classes of a broker (`class_archive`), which takes a few seconds once.

    Args:
        data_dir: for all files of the cluster; later starts use its data and ports again.
        kafka: version of the brokers. None: as recorded, KAFKA_VERSION for a new cluster.
        nodes: 1 or 3. None: as recorded, 1 for a new cluster.
        ports: one per node for clients. None: as recorded, free ones for a new cluster.
        properties: broker properties; `{port}`, `{controller_port}` and `{node_id}` in a value
            are replaced for each node. None: as recorded.
        heap_megabytes: heap of each node.
        fast_start: start in less time, at the price of throughput once running.
        detached: let the nodes outlive this process. Otherwise they are killed when it ends,
            even by SIGKILL.
        deadline_seconds: limit for steps 4 and 5.

    Raises:
        ConfigurationError: a port is taken, no Java was found, the version has no lock, the
            cluster already runs, or the arguments do not fit the data; nothing was started.
        ComponentFailed: a broker ended or did not serve in time; no node is running.
    """
    data_dir = expanded(data_dir, "name the data directory").resolve()
    own_directory(data_dir)
    with exclusively(data_dir):
        recorded = load_layout(data_dir)
        version = kafka or (recorded.kafka if recorded else KAFKA_VERSION)
        _record_classes(version, deadline_seconds)
        alive = _running_nodes(data_dir, recorded)
        if alive and not detached:
            raise ConfigurationError(
                f"the cluster in {data_dir} already runs (pid {alive[0].pid}); "
                f"stop it, or choose another data directory"
            )
        if recorded and alive:
            layout = recorded
        else:
            layout = _plan(data_dir, recorded, version, nodes, ports)
        layout = replace(
            layout,
            heap_megabytes=heap_megabytes,
            fast_start=fast_start,
            properties=layout.properties if properties is None else dict(properties),
        )
        save_layout(data_dir, layout)
        _format_new_nodes(data_dir, layout)
        guard = None if detached else Guard(data_dir)
        cluster = KafkaCluster(data_dir, layout.kafka, _nodes(data_dir, layout), guard)
        _start_missing_nodes(cluster, time.monotonic() + deadline_seconds)
        return cluster


def find_kafka(data_dir: Path) -> KafkaCluster | None:
    """Return the cluster recorded in `data_dir`, running or not; None if there is none."""
    data_dir = expanded(data_dir, "name the data directory").resolve()
    layout = load_layout(data_dir)
    if layout is None:
        return None
    return KafkaCluster(data_dir, layout.kafka, _nodes(data_dir, layout))


def _record_classes(version: str, deadline_seconds: float) -> None:
    """Run a broker for a moment and keep its classes, unless they are already recorded.

    This is only an optimization: if the cache cannot be written, nothing is recorded, and a broker
    that fails here is reported when the cluster itself starts.
    """
    release = kafka_release(version)
    archive = class_archive(find_java(), release)
    fetched(release)
    if archive.exists():
        return
    with suppress(EosError), exclusively(archive.parent):
        # 1. two programs find no archive  2. one gets the lock and records  3. the other gets it.
        if archive.exists():
            return
        print(f"recording the classes of a broker in {archive}", file=sys.stderr)
        unfinished = archive.with_suffix(".new")
        with TemporaryDirectory(prefix="eos-classes-") as folder:
            directory = Path(folder)
            layout = replace(_plan(directory, None, version, 1, None), fast_start=True)
            save_layout(directory, layout)
            _format_new_nodes(directory, layout)
            nodes = _nodes(directory, layout, recording(unfinished))
            cluster = KafkaCluster(directory, version, nodes, Guard(directory))
            _start_missing_nodes(cluster, time.monotonic() + deadline_seconds)
            try:
                cluster.stop(deadline_seconds=deadline_seconds)
            except BaseException:  # once the directory is removed, the guard cannot find the broker
                cluster.kill()
                raise
        with suppress(FileNotFoundError):
            unfinished.replace(archive)


def _running_nodes(data_dir: Path, recorded: Layout | None) -> list[Node]:
    return [node for node in _nodes(data_dir, recorded) if node.running] if recorded else []


def _plan(
    data_dir: Path,
    recorded: Layout | None,
    version: str,
    nodes: int | None,
    ports: Sequence[int] | None,
) -> Layout:
    """Return the layout to start with: the recorded one, with the caller's changes."""
    formatted = version
    if recorded and (node_directory(data_dir, 1) / _FORMATTED).exists():
        formatted = recorded.formatted
        _refuse_older_version(data_dir, recorded, version)
    size = nodes or (len(recorded.ports) if recorded else 1)
    if size not in CLUSTER_SIZES:
        raise ConfigurationError(f"nodes={size}: an embedded cluster has 1 node or 3")
    if recorded and size != len(recorded.ports):
        raise ConfigurationError(
            f"{data_dir} holds a cluster of {len(recorded.ports)} node(s), not {size}; "
            f"choose another data directory, or remove this one and its data"
        )
    if ports and len(set(ports)) != size:
        raise ConfigurationError(f"ports={list(ports)}: a cluster of {size} needs {size} ports")
    clients = tuple(ports or (recorded.ports if recorded else free_ports(size)))
    for port in clients:
        require_free(port)
    controllers = recorded.controller_ports if recorded else ()
    if not controllers or not all(is_free(port) for port in controllers):
        controllers = tuple(free_ports(size, besides=clients))
    return Layout(
        cluster_id=recorded.cluster_id if recorded else new_cluster_id(),
        ports=clients,
        controller_ports=controllers,
        kafka=version,
        formatted=formatted,
        properties=recorded.properties if recorded else {},
    )


def _refuse_older_version(data_dir: Path, recorded: Layout, version: str) -> None:
    """Refuse brokers older than the data, and report feature levels older than the brokers.

    A broker does not raise the feature levels of its data by itself (KIP-584), and older brokers
    cannot read data with levels that they do not know.

    Raises:
        ConfigurationError: the version is older than the recorded one.
    """
    if version_key(version) < version_key(recorded.kafka):
        raise ConfigurationError(
            f"the data in {data_dir} was written by Kafka {recorded.kafka}, which Kafka {version} "
            f"may not be able to read; choose {recorded.kafka} or later, or another data directory"
        )
    if version_key(version)[:2] > version_key(recorded.formatted)[:2]:
        print(
            f"the data in {data_dir} was formatted by Kafka {recorded.formatted}, so the feature "
            f"levels of this Kafka {version} stay those of {recorded.formatted}; a new data "
            f"directory has those of {version}",
            file=sys.stderr,
        )


def _nodes(data_dir: Path, layout: Layout, options: Sequence[str] | None = None) -> list[Node]:
    java = _java_command(layout, options)
    return [
        Node(node_id, port, node_directory(data_dir, node_id), java)
        for node_id, port in zip(layout.node_ids, layout.ports, strict=True)
    ]


def _java_command(
    layout: Layout, options: Sequence[str] | None = None
) -> Callable[[Path], list[str]]:
    """Return a function that builds a node's command line up to the main class.

    It looks for Java and the jars at its first call.

    Args:
        layout: of the cluster.
        options: of Java, in place of those that use the class archive.
    """

    @cache
    def runtime() -> tuple[str, str, Sequence[str]]:
        java, release = find_java(), kafka_release(layout.kafka)
        shared = sharing(java, release) if options is None else options
        return str(java), f"{fetched(release)}/*", shared

    def command(directory: Path) -> list[str]:
        java, class_path, shared = runtime()
        return [
            java,
            *shared,
            f"-Xmx{layout.heap_megabytes}m",
            *(_QUICK_JVM if layout.fast_start else _LASTING_JVM),
            f"-Djava.io.tmpdir={directory / 'tmp'}",
            f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}",
            node_marker(directory),
            "-cp",
            class_path,
        ]

    return command


def _format_new_nodes(data_dir: Path, layout: Layout) -> None:
    """Format the nodes that are not formatted; an interrupted one is formatted anew."""
    new = [node_directory(data_dir, node_id) for node_id in layout.node_ids]
    new = [directory for directory in new if not (directory / _FORMATTED).exists()]
    java = _java_command(replace(layout, fast_start=True))
    running: list[tuple[Path, subprocess.Popen[str]]] = []
    for directory in new:
        shutil.rmtree(directory / "data", ignore_errors=True)
        command = [
            *(part for part in java(directory) if part != node_marker(directory)),
            STORAGE_MAIN,
            "format",
            f"--cluster-id={layout.cluster_id}",
            f"--config={directory / 'server.properties'}",
            *FEATURES,
        ]
        running.append(
            (
                directory,
                subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    umask=UMASK,
                ),
            )
        )
    ended = [(directory, process, process.communicate()[0]) for directory, process in running]
    for directory, process, output in ended:
        if process.returncode != 0:
            said = " ".join(
                line.strip() for line in output.splitlines() if not line.startswith("\tat ")
            )
            raise ComponentFailed(
                f"Kafka's storage tool could not format {directory / 'data'}: {said}; correct the "
                f"broker properties"
            )
        (directory / _FORMATTED).touch(FILE_MODE)


def _start_missing_nodes(cluster: KafkaCluster, deadline: float) -> None:
    launched: list[Node] = []
    try:
        for node in cluster.nodes:
            if not node.running:
                launched.append(node)
                node.launch()
        everyone = frozenset(node.id for node in cluster.nodes)
        for node in cluster.nodes:
            node.await_ready(everyone, deadline)
    except BaseException:
        for node in launched:
            node.kill()
        cluster.dismiss_guard()
        raise
