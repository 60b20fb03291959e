"""What an ACL denies stops a worker with a message that names it; no record is blamed for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from eosframework.config import KafkaSettings
from eosframework.embedded import start_kafka
from eosframework.errors import TransactionFatal
from eosframework.kafka.client.properties import Role, client_properties
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.records import Position
from eosframework.transactions.ports import Commit
from eosframework.transactions.producing import produce_all
from tests.support.applications.pipeline import WorkerProcess, read_committed, wait_until
from tests.support.processes.commands import Cluster, Folder
from tests.support.processes.programs import Finished
from tests.support.servers.acls import wait_until_known
from tests.support.servers.kafka_admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

GUARDED = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
}
TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, value: json}
streams:
  copied:
    from: numbers
    on_error: {dead_letter: NAME.dead}
    to: [{topic: NAME.out, value: json}]
"""


EVERYBODY = "User:ANONYMOUS"


class Guarded:
    """One application on a broker with an authorizer, with ten records to copy."""

    def __init__(self, cluster: Cluster, name: str, path: Path) -> None:
        self.cluster = cluster
        self.name = name
        self.folder = Folder(path, cluster.bootstrap_servers)
        self.folder.write("app.yaml", TOPOLOGY.replace("NAME", name))
        cluster.create(f"{name}.in", f"{name}.out", f"{name}.dead")
        self.feed()

    def feed(self) -> None:
        self.cluster.feed(f"{self.name}.in", *(b'{"n":%d}' % n for n in range(10)))

    def deny(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Deny one operation on a resource and allow the others."""
        pattern = ResourcePatternType.LITERAL
        for chosen, permission in (
            (AclOperation.ALL, AclPermissionType.ALLOW),
            (operation, AclPermissionType.DENY),
        ):
            acl = AclBinding(kind, name, pattern, EVERYBODY, "*", chosen, permission)
            self.create(acl)

    def create(self, *acls: AclBinding) -> None:
        for future in self.cluster.admin.create_acls(list(acls)).values():
            future.result(60)
        wait_until_known(self.cluster.admin, acls)

    def run(self, environment: Mapping[str, str] | None = None) -> Finished:
        return self.folder.run(
            "run-worker", "app.yaml", "--until-caught-up", environment=environment
        )

    def took_nothing(self) -> bool:
        topics = [f"{self.name}.{topic}" for topic in ("out", "dead")]
        return not any(self.cluster.end(topic) for topic in topics)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    embedded = start_kafka(tmp_path_factory.mktemp("guarded"), fast_start=True, properties=GUARDED)
    yield Cluster(embedded.bootstrap_servers)
    embedded.kill()


@pytest.fixture
def guarded(cluster: Cluster, unique_name: Callable[[str], str], tmp_path: Path) -> Guarded:
    return Guarded(cluster, unique_name("acl"), tmp_path)


@pytest.mark.parametrize(
    ("topic", "operation"),
    [
        pytest.param("in", AclOperation.READ, marks=pytest.mark.exhaustive),
        ("out", AclOperation.WRITE),
        pytest.param("dead", AclOperation.WRITE, marks=pytest.mark.exhaustive),
    ],
)
def test_a_topic_that_may_not_be_used_is_named_before_anything_starts(
    guarded: Guarded, topic: str, operation: AclOperation
) -> None:
    name, needed = f"{guarded.name}.{topic}", operation.name.capitalize()
    guarded.deny(ResourceType.TOPIC, name, operation)
    done = guarded.run()
    assert done.exit_code == 2, done.err
    assert f"this principal is not allowed {needed} on topic {name}" in done.error
    assert f"grant {needed} on Topic {name}" in done.error
    assert guarded.took_nothing()
    assert guarded.cluster.committed(guarded.name, f"{guarded.name}.in") is None


def test_a_right_that_is_taken_away_stops_a_running_worker(guarded: Guarded) -> None:
    """Without Describe records are refused as if their partition did not exist."""
    log = guarded.folder.path / "log"
    process = guarded.folder.start("run-worker", "app.yaml", log=log)
    worker = WorkerProcess(process, log, guarded.folder.path)
    out, source = f"{guarded.name}.out", f"{guarded.name}.in"
    try:
        wait_until(lambda: guarded.cluster.committed(guarded.name, source) == 10, "ten records")
        copied = len(read_committed(guarded.cluster.bootstrap_servers, out))
        guarded.deny(ResourceType.TOPIC, out, AclOperation.DESCRIBE)
        guarded.deny(ResourceType.TOPIC, out, AclOperation.WRITE)
        guarded.feed()
        assert worker.wait() == 1, worker.log
    finally:
        worker.process.kill()
        worker.process.wait()
    assert "Traceback" not in worker.log
    [error] = [line for line in worker.log.splitlines() if line.startswith("error: ")]
    assert f"Write and Describe on topic {out}" in error
    assert guarded.cluster.end(f"{guarded.name}.dead") == 0
    assert guarded.cluster.committed(guarded.name, source) == 10
    assert copied == 10


def produce_and_commit(
    outputs: ProducerPool, output: Any, topic: str, progress: Position, consumer: Consumer
) -> None:
    """Do what a worker does, and raise what it is told."""
    produce_all(output, [(topic, b"{}", None, -1, None, None, 0, None)])
    membership = consumer.consumer_group_metadata()
    [committed] = outputs.commit([Commit(output, [progress], membership)])
    if committed.error is not None:
        raise committed.error


def test_a_topic_hidden_from_a_producer_is_not_the_records_fault(guarded: Guarded) -> None:
    """It says _INCONSISTENT, as for a partition that does not exist; or `produce` knows already."""
    topic = f"{guarded.name}.out"
    guarded.deny(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    guarded.deny(ResourceType.TOPIC, topic, AclOperation.WRITE)
    settings = KafkaSettings(bootstrap_servers=guarded.cluster.bootstrap_servers)
    outputs = ProducerPool(client_properties(settings, Role.PRODUCER), topics=[topic])
    [output] = outputs.open([f"{guarded.name}:copied:0"])
    group = {"bootstrap.servers": settings.bootstrap_servers, "group.id": guarded.name}
    consumer = Consumer(group)
    progress = Position(f"{guarded.name}.in", 0, 1)
    try:
        output.begin()
        with pytest.raises(TransactionFatal, match=f"Write and Describe on topic {topic}"):
            produce_and_commit(outputs, output, topic, progress, consumer)
    finally:
        consumer.close()
        outputs.close([output])
        outputs.stop()


@pytest.mark.parametrize(
    "operation",
    [AclOperation.WRITE, pytest.param(AclOperation.DESCRIBE, marks=pytest.mark.exhaustive)],
)
def test_a_transactional_id_that_may_not_be_used_is_named(
    guarded: Guarded, operation: AclOperation
) -> None:
    instance = f"{guarded.name}.one"
    id_ = f"{guarded.name}:worker.{instance}:0"
    guarded.deny(ResourceType.TRANSACTIONAL_ID, id_, operation)
    done = guarded.run(environment={"EOS_WORKER__INSTANCE": instance})
    assert done.exit_code == 1, done.err
    assert f"the principal may not use transactional.id {id_}" in done.error
    assert "allow it Write and Describe on the TransactionalId" in done.error
    assert guarded.took_nothing()


def test_a_leased_id_needs_its_own_permission_and_none_on_the_prefix(
    guarded: Guarded, database: str
) -> None:
    """As where an administrator grants ids one by one."""
    leased, environment = lease_without_prefix(guarded, database)
    done = guarded.run(environment)
    assert done.exit_code == 0, done.err
    end = guarded.cluster.end(f"{guarded.name}.out")
    out = read_committed(guarded.cluster.bootstrap_servers, f"{guarded.name}.out")
    assert len(out) == 10

    guarded.create(
        AclBinding(
            ResourceType.TRANSACTIONAL_ID,
            leased,
            ResourcePatternType.LITERAL,
            EVERYBODY,
            "*",
            AclOperation.WRITE,
            AclPermissionType.DENY,
        )
    )
    guarded.feed()
    refused = guarded.run(environment)
    assert refused.exit_code == 1, refused.err
    assert f"the principal may not use transactional.id {leased}" in refused.error
    assert guarded.cluster.end(f"{guarded.name}.out") == end
    found = guarded.folder.run("doctor", "app.yaml", "--json", environment=environment)
    [finding] = [f for f in found.json["findings"] if f["check"] == "transactional-id-acls"]
    assert finding["about"] == f"TransactionalId {leased}"
    assert f"--transactional-id '{leased}'" in finding["fix"]


def lease_without_prefix(guarded: Guarded, database: str) -> tuple[str, dict[str, str]]:
    """Put one id into the pool, permit it and no id that is derived.

    Returns:
        The id, and the environment of commands that lease it.
    """
    leased, kind = f"{guarded.name.upper()}/TX 1", ResourceType.TRANSACTIONAL_ID
    prefix = (f"{guarded.name}:", ResourcePatternType.PREFIXED, EVERYBODY, "*", AclOperation.ALL)
    guarded.create(AclBinding(kind, *prefix, AclPermissionType.DENY))
    environment = {"EOS_DATABASE__DSN": database, "EOS_WORKER__IDS": "leased"}
    added = guarded.folder.run("ids", "add", "app.yaml", leased, environment=environment)
    assert added.exit_code == 0, added.err
    literal = (leased, ResourcePatternType.LITERAL, EVERYBODY, "*")
    for operation in (AclOperation.WRITE, AclOperation.DESCRIBE):
        guarded.create(AclBinding(kind, *literal, operation, AclPermissionType.ALLOW))
    return leased, environment


@pytest.mark.exhaustive
def test_positions_are_set_with_permission_on_leased_ids_alone(
    guarded: Guarded, database: str
) -> None:
    """Every id under which a worker could still commit is inited, and no other one."""
    _, environment = lease_without_prefix(guarded, database)
    done = guarded.run(environment)
    assert done.exit_code == 0, done.err
    again = f"{guarded.name}.in[0]=4"
    done = guarded.folder.run("positions", "set", "app.yaml", again, environment=environment)
    assert done.exit_code == 0, done.err
    assert guarded.cluster.committed(guarded.name, f"{guarded.name}.in") == 4


@pytest.mark.parametrize(
    ("operation", "needed"),
    [
        (AclOperation.READ, "grant Read on Group"),
        pytest.param(
            AclOperation.DESCRIBE, "which includes Describe", marks=pytest.mark.exhaustive
        ),
    ],
)
def test_a_group_that_may_not_be_used_is_named(
    guarded: Guarded, operation: AclOperation, needed: str
) -> None:
    guarded.deny(ResourceType.GROUP, guarded.name, operation)
    done = guarded.run()
    assert done.exit_code == 2, done.err
    assert guarded.name in done.error
    assert needed in done.error
    assert guarded.took_nothing()


@pytest.mark.parametrize(
    "topic",
    [
        ".in",
        pytest.param(".out", marks=pytest.mark.exhaustive),
        pytest.param(".dead", marks=pytest.mark.exhaustive),
        pytest.param("-control", marks=pytest.mark.exhaustive),
    ],
)
def test_a_topic_that_may_not_be_described_is_named_before_anything_starts(
    guarded: Guarded, topic: str
) -> None:
    hidden = f"{guarded.name}{topic}"
    guarded.deny(ResourceType.TOPIC, hidden, AclOperation.DESCRIBE)
    done = guarded.run()
    assert done.exit_code == 2, done.err
    assert f"topic '{hidden}' may not be described" in done.error
    assert f"on Topic {hidden}" in done.error
    assert "which includes Describe" in done.error


@pytest.mark.parametrize(
    "operation", [pytest.param(AclOperation.READ, marks=pytest.mark.exhaustive), AclOperation.WRITE]
)
def test_a_registry_that_may_not_be_used_is_named(
    guarded: Guarded, operation: AclOperation
) -> None:
    registry = f"{guarded.name}-control"
    guarded.deny(ResourceType.TOPIC, registry, operation)
    done = guarded.run()
    assert done.exit_code == 2, done.err
    assert f"grant {operation.name.capitalize()} on Topic {registry}" in done.error
    assert guarded.took_nothing()


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(AclOperation.DESCRIBE, marks=pytest.mark.exhaustive),
        pytest.param(AclOperation.READ, marks=pytest.mark.exhaustive),
        AclOperation.WRITE,
    ],
)
def test_an_ownership_topic_that_may_not_be_used_is_named(
    guarded: Guarded, operation: AclOperation
) -> None:
    topic = f"{guarded.name}-ownership"
    guarded.deny(ResourceType.TOPIC, topic, operation)
    refused = guarded.run()
    assert refused.exit_code == 2, refused.err
    assert topic in refused.error
    assert guarded.took_nothing()
