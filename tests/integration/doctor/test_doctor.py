"""`eosframework doctor` against real brokers that were configured badly on purpose."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from eosframework.cli import main
from eosframework.config import KafkaSettings
from eosframework.embedded import start_kafka
from eosframework.kafka.inspect import probes as probing
from eosframework.kafka.inspect.coordinators import describe_transaction
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition
from tests.conftest import KafkaService
from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import wait_until
from tests.support.faults.hanging import write_unannounced
from tests.support.processes.commands import Cluster, Folder
from tests.support.processes.programs import Finished
from tests.support.processes.waiting import within
from tests.support.servers.acls import wait_until_known
from tests.support.servers.kafka_admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.support.servers.topics import configure, create_topics

SMALL = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
UNWELL = {
    **SMALL,
    "transaction.partition.verification.enable": "false",
    "transaction.max.timeout.ms": "20000",
    "transactional.id.expiration.ms": "3600000",
    "offsets.retention.minutes": "60",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "60000",
    "group.max.session.timeout.ms": "30000",
    "unclean.leader.election.enable": "true",
    "auto.create.topics.enable": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, value: json}
streams:
  copied: {from: numbers, to: NAME.out}
"""


class Patient:
    """An application, its folder and its cluster."""

    def __init__(
        self,
        bootstrap_servers: str,
        name: str,
        path: Path,
        output: pytest.CaptureFixture[str],
    ) -> None:
        path.mkdir(exist_ok=True)
        self._output = output
        self.cluster = Cluster(bootstrap_servers)
        self.name = name
        self.folder = Folder(path, bootstrap_servers)
        self.folder.write("app.yaml", TOPOLOGY.replace("NAME", name))

    def topic(self, short: str) -> str:
        return f"{self.name}.{short}"

    def create_topics(self) -> None:
        """Create them; brokers make their own on the first use of a group and of an id."""
        self.cluster.create(self.topic("in"), self.topic("out"))
        assert self.cluster.committed(self.name, self.topic("in")) is None
        self.producer("somebody")

    def producer(self, transactional_id: str, timeout_ms: int = 20_000) -> Producer:
        made = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
            }
        )
        made.init_transactions(60)
        return made

    def doctor(self, *arguments: str) -> Finished:
        """Run it in this process, which has imported all it needs; a busy machine takes longer."""
        servers = f"kafka.bootstrap_servers={self.cluster.bootstrap_servers}"
        patience = ("--set", "kafka.request_timeout_seconds=30")
        app = str(self.folder.path / "app.yaml")
        self._output.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(["doctor", app, "--set", servers, *patience, *arguments])
        output = self._output.readouterr()
        return Finished(int(stopped.value.code or 0), output.out, output.err)

    def findings(self, *arguments: str) -> dict[str, list[dict[str, Any]]]:
        """By check, what was found; the exit code and the verdict agree."""
        done = self.doctor("--json", *arguments)
        assert "Traceback" not in done.err, done.err
        report = done.json
        assert report["healthy"] is (report["errors"] == 0)
        assert done.exit_code == (0 if report["healthy"] else 1)
        found: dict[str, list[dict[str, Any]]] = {}
        for finding in report["findings"]:
            found.setdefault(finding["check"], []).append(finding)
        return found

    def topics(self) -> set[str]:
        return set(self.cluster.admin.list_topics(timeout=60).topics)


Make = Callable[[str, str], Patient]


@pytest.fixture(scope="module")
def unwell_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaService]:
    cluster = start_kafka(tmp_path_factory.mktemp("unwell"), fast_start=True, properties=UNWELL)
    try:
        yield KafkaService(cluster.bootstrap_servers)
    finally:
        cluster.kill()


@pytest.fixture
def make(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[[str, str], Patient]:
    """Make the patient of a name on a cluster."""
    return lambda servers, name: Patient(servers, name, tmp_path / "user", capfd)


@pytest.fixture
def unwell(unwell_broker: KafkaService, unique_name: Callable[[str], str], make: Make) -> Patient:
    return make(unwell_broker.bootstrap_servers, unique_name("ill"))


@pytest.fixture
def well(kafka: KafkaService, unique_name: Callable[[str], str], make: Make) -> Patient:
    return make(kafka.bootstrap_servers, unique_name("fit"))


def test_what_is_configured_badly_is_found_and_nothing_is_created_by_looking(
    tmp_path: Path, make: Make
) -> None:
    """Brokers create their own topics, and those of the application, when asked carelessly."""
    started = start_kafka(tmp_path / "data", fast_start=True, properties=UNWELL)
    try:
        patient = make(started.bootstrap_servers, "ill")
        found = patient.findings("--set", "worker.transaction_timeout_seconds=25")
        assert patient.topics() == set()
    finally:
        started.kill()
    severities = {check: entries[0]["severity"] for check, entries in found.items()}
    assert (
        severities.items()
        >= {
            "transaction-verification": "error",
            "longest-transaction": "error",
            "session-limits": "error",
            "missing-topics": "error",
            "transactional-id-expiration": "warning",
            "offsets-retention": "warning",
            "expired-transaction-interval": "warning",
            "one-broker": "warning",
            "automatic-topics": "note",
            "readers": "note",
        }.items()
    )
    assert "transaction.max.timeout.ms=20000" in found["longest-transaction"][0]["found"]
    assert found["session-limits"][0]["fix"] == "--set worker.session_timeout_seconds=30"
    unseen = {finding["about"] for finding in found["not-checked"]}
    assert {"permissions on transactional ids", "consumer group ill"} <= unseen


def test_a_processed_application_has_no_error_and_is_not_touched(well: Patient) -> None:
    """Its open transaction is neither ended nor fenced by the question about its permission."""
    well.create_topics()
    well.cluster.feed(well.topic("in"), b'{"n": 1}')
    assert well.folder.run("run-worker", "app.yaml", "--until-caught-up").exit_code == 0
    transactional_id = f"{well.name}:copied:0"
    producer = well.producer(transactional_id, timeout_ms=600_000)
    producer.begin_transaction()
    producer.produce(well.topic("out"), b"open")
    assert producer.flush(60) == 0
    settings = KafkaSettings(bootstrap_servers=well.cluster.bootstrap_servers)
    topics, ends = well.topics(), well.cluster.end(f"{well.name}-control")
    with Wire(settings) as wire:
        before = describe_transaction(wire, transactional_id)
        found = well.findings()
        assert describe_transaction(wire, transactional_id) == before
    assert (well.topics(), well.cluster.end(f"{well.name}-control")) == (topics, ends)
    producer.commit_transaction(60)

    assert transactional_id in found["held-back"][0]["found"]
    assert transactional_id in found["ids-in-use"][0]["about"]
    assert "not-checked" not in found
    done = well.doctor()
    assert done.exit_code == 0
    assert f"{well.name}: " in done.out
    assert " 0 errors, " in done.out


@pytest.mark.exhaustive
def test_a_hanging_transaction_is_found_with_the_command_that_ends_it(unwell: Patient) -> None:
    unwell.create_topics()
    settings = KafkaSettings(bootstrap_servers=unwell.cluster.bootstrap_servers)
    with Wire(settings) as wire:
        write_unannounced(wire, TopicPartition(unwell.topic("in"), 0), b"a delayed frame")
    (finding,) = unwell.findings()["hanging-transactions"]
    assert finding["severity"] == "error"
    assert finding["about"] == f"{unwell.topic('in')}[0]"
    command = finding["fix"].split()
    assert command[:3] == ["eosframework", "txn", "abort"]
    assert unwell.folder.run(*command[1:], "--yes").exit_code == 0
    assert "hanging-transactions" not in unwell.findings()


def test_missing_permissions_are_found_by_name_without_writing_anything(unwell: Patient) -> None:
    unwell.create_topics()
    for kind, name, operation in (
        (ResourceType.TOPIC, unwell.topic("in"), AclOperation.READ),
        (ResourceType.TOPIC, unwell.topic("out"), AclOperation.WRITE),
        (ResourceType.TOPIC, unwell.topic("out"), AclOperation.DESCRIBE_CONFIGS),
        (ResourceType.GROUP, unwell.name, AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, f"{unwell.name}:copied:0", AclOperation.WRITE),
    ):
        deny(unwell.cluster, kind, name, operation)
    found = unwell.findings()
    missing = {finding["about"]: finding for finding in found["topic-and-group-acls"]}
    assert f"Topic {unwell.topic('out')}" in missing, found
    assert missing[f"Topic {unwell.topic('in')}"]["found"] == "Read is not allowed"
    assert missing[f"Topic {unwell.topic('out')}"]["found"] == "Write is not allowed"
    assert missing[f"Group {unwell.name}"]["found"] == "Read is not allowed"
    assert (
        f"--operation Write --topic {unwell.topic('out')}"
        in (missing[f"Topic {unwell.topic('out')}"]["fix"])
    )
    (lacking,) = found["transactional-id-acls"]
    assert (lacking["severity"], lacking["found"]) == ("error", "Write is not allowed")
    assert found["settings-acls"][0]["about"] == f"topic {unwell.topic('out')}"


def test_what_this_principal_may_not_see_is_a_finding_and_never_passed(unwell: Patient) -> None:
    unwell.create_topics()
    for kind, name, operation in (
        (ResourceType.TOPIC, unwell.topic("out"), AclOperation.DESCRIBE),
        (ResourceType.TRANSACTIONAL_ID, "*", AclOperation.DESCRIBE),
        (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS),
        (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE),
    ):
        deny(unwell.cluster, kind, name, operation)
    try:
        found = unwell.findings()
    finally:
        allow_again(unwell.cluster, ResourceType.BROKER, "kafka-cluster")
        allow_again(unwell.cluster, ResourceType.TRANSACTIONAL_ID, "*")
    reasons = {finding["about"]: finding["fix"] for finding in found["not-checked"]}
    assert "grant DescribeConfigs" in reasons["settings of the brokers"]
    assert "Describe on the cluster" in reasons["the controller's clock"]
    assert "Describe on TransactionalId" in reasons["transactional ids"]
    assert "grant Describe" in reasons[f"topic {unwell.topic('out')}"]
    assert found["transaction-verification"][0]["severity"] == "error"
    assert found["transactional-id-acls"][0]["found"] == "Describe is not allowed"


def test_history_that_the_output_would_delete_or_refuse_is_found_before_it_is_lost(
    well: Patient,
) -> None:
    well.create_topics()
    producer = feeder(well.cluster.bootstrap_servers)
    long_ago = 1_357_000_000_000
    producer.produce(well.topic("in"), b"{}", timestamp=long_ago)
    assert producer.flush(60) == 0
    configure(
        well.cluster.admin,
        well.topic("out"),
        {"retention.ms": "604800000", "message.timestamp.before.max.ms": "86400000"},
    )
    found = well.findings()
    (deleted,), (refused,) = found["retention-by-event-time"], found["refused-event-times"]
    assert (deleted["severity"], refused["severity"]) == ("warning", "error")
    for finding in (deleted, refused):
        assert finding["about"] == f"topic {well.topic('out')}"
        assert f"{well.topic('in')} gives records of 2013-01-01" in finding["found"]


def test_a_member_that_is_no_worker_is_found(well: Patient) -> None:
    well.create_topics()
    stranger = Consumer(
        {
            "bootstrap.servers": well.cluster.bootstrap_servers,
            "group.id": well.name,
            "client.id": "stranger",
        }
    )
    stranger.subscribe([well.topic("in")])
    try:
        wait_until(lambda: joined(stranger), "membership")
        (finding,) = well.findings()["group-members"]
    finally:
        stranger.close()
    assert (finding["severity"], "stranger" in finding["found"]) == ("error", True)


def test_the_clock_of_this_host_is_measured_against_the_controllers(
    kafka: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead:
        """A host whose clock is 40 s ahead."""

        @staticmethod
        def time() -> float:
            return time.time() + 40

    with Wire(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)) as wire:
        same = probing.controller_clock(wire)
        monkeypatch.setattr(probing, "time", Ahead)
        other = probing.controller_clock(wire)
    assert abs(same.ahead) <= same.uncertainty + timedelta(seconds=0.1)
    assert abs(other.ahead + timedelta(seconds=40)) <= other.uncertainty + timedelta(seconds=1)


@pytest.mark.exhaustive
def test_a_broker_that_is_down_is_found_on_three_brokers(tmp_path: Path, make: Make) -> None:
    cluster = start_kafka(
        tmp_path / "data",
        nodes=3,
        fast_start=True,
        heap_megabytes=256,
        properties={**SMALL, "default.replication.factor": "3", "min.insync.replicas": "2"},
    )
    try:
        patient = make(cluster.bootstrap_servers, "three")
        topics = [NewTopic(patient.topic(short), 1, 3) for short in ("in", "out")]
        create_topics(patient.cluster.admin, topics)

        def well() -> bool:
            found = set(patient.findings())
            assert not {"topic-replicas", "topic-in-sync"} & found
            return not {"lagging-replicas", "offline-partitions"} & found

        wait_until(well, "three brokers in sync")
        last = cluster.nodes[-1]
        last.kill()

        def seen() -> bool:
            lagging = patient.findings().get("lagging-replicas", [])
            return any("three.in" in finding["about"] for finding in lagging)

        wait_until(seen, "the broker that is down")
    finally:
        cluster.kill()


def test_a_cluster_that_does_not_answer_is_given_up_within_ten_seconds(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        default = ("--set", "kafka.request_timeout_seconds=10")
        done = within(10, lambda: make(server, "nobody").doctor("--json", *default))
    assert done.exit_code == 2
    assert f"no broker at {server} answered within 4 s" in done.error
    assert done.json == {"error": done.error}


def test_a_cluster_that_refuses_connections_is_named(make: Make) -> None:
    done = make("127.0.0.1:1", "nobody").doctor("--set", "kafka.request_timeout_seconds=1")
    assert (done.exit_code, done.out) == (2, "")
    assert "no broker at 127.0.0.1:1 answered within 0.4 s" in done.error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("doctor", "nope.yaml"), "nope.yaml", marks=pytest.mark.exhaustive),
        pytest.param(("doctor",), "Missing argument 'APP'", marks=pytest.mark.exhaustive),
        (("doctor", "broken.yaml"), "broken.yaml"),
        pytest.param(
            ("doctor", "app.yaml", "--set", "worker.nope=1"),
            "there is no such setting",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            ("doctor", "app.yaml", "--set", "kafka.properties.nope=1"),
            "librdkafka has no property 'nope'",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_an_application_that_cannot_be_loaded_gets_one_message(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    folder = Folder(tmp_path, "127.0.0.1:1")
    folder.write("app.yaml", TOPOLOGY.replace("NAME", "nobody"))
    folder.write("broken.yaml", "application: [")
    done = folder.run(*arguments)
    assert (done.exit_code, done.out) == (2, "")
    assert message in done.error


def joined(consumer: Consumer) -> bool:
    consumer.poll(0.1)
    return bool(consumer.assignment())


def allow_again(cluster: Cluster, kind: ResourceType, name: str) -> None:
    """Take back all that was denied on a resource."""
    anything = AclBindingFilter(
        kind,
        name,
        ResourcePatternType.LITERAL,
        None,  # pyright: ignore[reportArgumentType]  (matches anyone, says the library)
        None,  # pyright: ignore[reportArgumentType]  (matches any host)
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    for future in cluster.admin.delete_acls([anything]).values():
        wait_until_known(cluster.admin, future.result(60), there=False)


def deny(cluster: Cluster, kind: ResourceType, name: str, operation: AclOperation) -> None:
    """Deny one operation and allow the others."""
    for chosen, permission in (
        (AclOperation.ALL, AclPermissionType.ALLOW),
        (operation, AclPermissionType.DENY),
    ):
        acl = AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", chosen, permission
        )
        for future in cluster.admin.create_acls([acl]).values():
            future.result(60)
        wait_until_known(cluster.admin, [acl])
