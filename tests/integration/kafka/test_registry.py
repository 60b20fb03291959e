"""The registry and the start-up guards on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import ControlTopic
from eosframework.application.ownership_topic import ownership_of
from eosframework.application.position_changes import PositionRequest, set_positions
from eosframework.application.provision import apply, plan
from eosframework.application.start_checks import check_start, check_worker_start
from eosframework.application.start_positions import StartPositions
from eosframework.config import Ids, KafkaSettings, Settings, Start, WorkerSettings
from eosframework.embedded import start_kafka
from eosframework.errors import (
    ClusterUnreachable,
    ConfigurationError,
    ControlTopicDamaged,
    Retriable,
    StartRefused,
)
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.client.properties import client_properties
from eosframework.kafka.consumer.read_committed import ReadCommittedConsumer
from eosframework.kafka.inspect.coordinators import list_transactions
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import Graph
from tests.support.applications.graphs import graph_of
from tests.support.applications.pipeline import wait_until
from tests.support.faults.sleepers import Sleeper, claim
from tests.support.processes.waiting import within
from tests.support.servers.kafka_admin import NewPartitions

RECORDS = 10


@dataclass(frozen=True)
class Application:
    """An application with one source topic of two partitions, as a worker would run it."""

    name: str
    settings: Settings
    admin: ClusterAdmin
    graph: Graph
    source: str

    def registry(self) -> ControlTopic:
        return ControlTopic(self.name, self.settings.kafka, self.admin)

    def context(self) -> ApplicationContext:
        return ApplicationContext(self.graph, self.settings, self.admin, self.registry())

    def start(self) -> StartPositions:
        registry = self.registry()
        check_worker_start(ApplicationContext(self.graph, self.settings, self.admin, registry))
        return StartPositions(self.name, registry, Start.EARLIEST)

    def claim(self, partition: int, id_: str) -> None:
        """Add an entry, as a worker does before it inits its id."""
        claim(self.context(), self.source, partition, id_)

    def fill(self) -> None:
        producer = Producer(client_properties(self.settings.kafka, "producer"))
        for number in range(RECORDS):
            producer.produce(self.source, str(number), partition=number % 2)
        assert producer.flush(60) == 0

    def commit(self, ledger: StartPositions, partition: int, offset: int) -> None:
        """One transaction of a task: its marker, its offset."""
        producer = Producer(
            {
                **client_properties(self.settings.kafka, "producer"),
                "transactional.id": f"{self.name}:part:{partition}",
            }
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        marker = ledger.marker("part", TopicPartition(self.source, partition))
        if marker is not None:
            producer.produce(*marker)
        consumer = Consumer(
            {**client_properties(self.settings.kafka, "consumer"), "group.id": self.name}
        )
        producer.send_offsets_to_transaction(
            [KafkaTopicPartition(self.source, partition, offset, metadata="eos1;1;0")],
            consumer.consumer_group_metadata(),
        )
        producer.commit_transaction(60)
        consumer.close()

    def starting_offsets(self, ledger: StartPositions) -> list[int | None]:
        partitions = [TopicPartition(self.source, number) for number in (0, 1)]
        committed = self.admin.committed(self.name, partitions)
        log: Any = Bounds(self.admin)
        return [p.offset for p in ledger.starting_positions(committed, log)]


@dataclass(frozen=True)
class Bounds:
    """The part of an input log that a ledger asks."""

    admin: ClusterAdmin

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {p: bounds[0] for p, bounds in self.admin.log_bounds(partitions).items()}

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {p: bounds[1] for p, bounds in self.admin.log_bounds(partitions).items()}


def application_on(bootstrap_servers: str, name: str) -> Application:
    settings = Settings(kafka=KafkaSettings(bootstrap_servers=bootstrap_servers))
    admin = ClusterAdmin(settings.kafka)
    source = f"{name}.in"
    graph = graph_of(name, {"part": ([source], [f"{name}.out"])})
    admin.create_topics([TopicToCreate(source, 2), TopicToCreate(f"{name}.out", 2)])
    application = Application(name, settings, admin, graph, source)
    application.fill()
    return application


@pytest.fixture
def application(kafka: Any, unique_name: Callable[[str], str]) -> Application:
    return application_on(kafka.bootstrap_servers, unique_name("my-app"))


@pytest.fixture(scope="module")
def forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """An application that has stopped, on a broker that forgets its offset a minute later."""
    forgetful = {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": "1000",
    }
    directory = tmp_path_factory.mktemp("retention")
    with start_kafka(directory, fast_start=True, properties=forgetful) as cluster:
        application = application_on(cluster.bootstrap_servers, "forgotten")
        application.commit(application.start(), 0, 3)
        assert application.starting_offsets(application.start()) == [3, 0]
        yield application


@pytest.mark.usefixtures("forgotten")  # so that its minute passes while other tests run
def test_a_first_start_registers_the_topology_and_reads_from_the_start(application: Application):
    ledger = application.start()
    assert application.starting_offsets(ledger) == [0, 0]
    registered = application.registry().refresh()
    facts = application.admin.describe_topics([application.source])[application.source]
    assert registered.cluster_id == application.admin.cluster_id()
    assert registered.topics[application.source].topic_id == facts.topic_id
    assert registered.topics[application.source].partitions == 2
    ownership = ownership_of(application.context()).found_id()
    assert registered.ownership == ownership is not None


def test_a_committed_partition_goes_on_and_needs_no_second_marker(application: Application):
    first = application.start()
    application.commit(first, 0, 3)
    later = application.start()
    assert application.starting_offsets(later) == [3, 0]
    assert later.marker("part", TopicPartition(application.source, 0)) is None
    assert later.marker("part", TopicPartition(application.source, 1)) is not None


def test_a_marker_of_an_aborted_transaction_marks_nothing(application: Application):
    ledger = application.start()
    producer = Producer(
        {
            **client_properties(application.settings.kafka, "producer"),
            "transactional.id": f"{application.name}:part:0",
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    marker = ledger.marker("part", TopicPartition(application.source, 0))
    assert marker is not None
    producer.produce(*marker)
    producer.flush(60)
    producer.abort_transaction(60)
    assert application.registry().refresh().committed == {}


def test_an_open_transaction_hides_no_entry_that_a_start_depends_on(application: Application):
    """What is written alone is seen behind it; a marker of a commit is waited for."""
    servers = application.settings.kafka.bootstrap_servers
    soon = KafkaSettings(bootstrap_servers=servers, request_timeout_seconds=2)
    impatient = replace(application, settings=Settings(kafka=soon))
    ledger = impatient.start()
    stranger = Producer(
        {
            **client_properties(application.settings.kafka, "producer"),
            "transactional.id": f"{application.name}.stranger",
        }
    )
    stranger.init_transactions(60)
    stranger.begin_transaction()
    stranger.produce(application.registry().topic, b"{}", b"stranger")
    stranger.flush(60)

    application.commit(ledger, 0, 3)
    application.registry().write({"written/a": {"topic_id": "a"}, "written/b": {"topic_id": "b"}})
    application.registry().write({"written/b": None})
    assert application.registry().refresh().written.get("a") == "a"
    assert "b" not in application.registry().refresh().written
    assert application.registry().refresh().committed == {}, "the transaction holds it back"

    admin = AdminClient(client_properties(application.settings.kafka, "admin"))
    admin.delete_consumer_groups([application.name])[application.name].result(60)
    ledger = impatient.start()
    with pytest.raises(Retriable, match="txn hanging --topic"):
        impatient.starting_offsets(ledger)
    stranger.abort_transaction(60)
    with pytest.raises(StartRefused, match="committed offset is gone"):
        impatient.starting_offsets(ledger)


def test_a_worker_sees_what_another_registered_after_it_read(application: Application):
    registry = application.registry()
    registry.ensure()
    assert registry.refresh().written == {}
    application.registry().write({"written/t": {"topic_id": "a"}})
    assert registry.refresh().written == {"t": "a"}


def test_deleted_offsets_are_refused_until_positions_are_set(application: Application):
    ledger = application.start()
    application.commit(ledger, 0, 3)
    application.commit(ledger, 1, 4)
    admin = AdminClient(client_properties(application.settings.kafka, "admin"))
    admin.delete_consumer_groups([application.name])[application.name].result(60)
    with pytest.raises(StartRefused, match=r"in\[0\], .*in\[1\] before"):
        application.start()
    with pytest.raises(StartRefused, match="committed offset is gone"):
        application.starting_offsets(ledger)
    set_to(application, f"{application.source}[0]=3", f"{application.source}[1]=4")
    assert application.starting_offsets(application.start()) == [3, 4]


def test_a_topic_made_again_is_refused_until_positions_are_set(application: Application):
    ledger = application.start()
    application.commit(ledger, 0, 3)
    recreate(application)
    with pytest.raises(StartRefused, match="deleted and created again"):
        application.start()
    with pytest.raises(ConfigurationError, match="missing: 1"):
        set_to(application, f"{application.source}[0]=0")
    with pytest.raises(ConfigurationError, match="means other records"):
        set_to(application, f"{application.source}=committed")
    set_to(application, f"{application.source}=earliest")
    assert application.starting_offsets(application.start()) == [0, 0]


def recreate(application: Application) -> None:
    """Delete the source topic and create it anew, which brokers do not do at once."""
    application.admin.delete_topics([application.source])
    again = [TopicToCreate(application.source, 2)]
    wait_until(
        lambda: application.source in application.admin.create_topics(again), "the topic again"
    )
    application.fill()


def test_a_changed_number_of_partitions_is_refused_until_accepted(application: Application):
    ledger = application.start()
    application.commit(ledger, 0, 3)
    admin = AdminClient(client_properties(application.settings.kafka, "admin"))
    admin.create_partitions([NewPartitions(application.source, 3)])[application.source].result(60)

    def partitions() -> int:
        described = application.admin.describe_topics([application.source])
        return described[application.source].partitions

    wait_until(lambda: partitions() >= 3, "the third partition")
    with pytest.raises(StartRefused, match=r"has 3 partitions.*with 2"):
        application.start()
    set_to(application, f"{application.source}=committed")
    assert application.starting_offsets(application.start()) == [3, 0]


def test_positions_of_a_running_application_are_not_set(application: Application):
    application.start()
    worker = ReadCommittedConsumer(
        {**client_properties(application.settings.kafka, "consumer"), "group.id": application.name}
    )
    worker.subscribe([application.source])
    wait_until(lambda: has_joined(worker), "the worker's partitions")
    with pytest.raises(StartRefused, match=r"1 members .*before its positions are set"):
        set_to(application, f"{application.source}=latest")
    application.start()
    worker.close()


def test_who_sleeps_in_a_commit_is_fenced_before_positions_are_set(application: Application):
    """Also under an id of an earlier topology: the entries name it."""
    application.start()
    server, name = application.settings.kafka.bootstrap_servers, application.name
    application.claim(0, f"{name}:former:0")
    application.claim(1, f"{name}:worker.gone:0")
    ids = [f"{name}:former:0", f"{name}:worker.gone:0"]
    sleepers = [Sleeper(server, id_, f"{name}.out") for id_ in ids]
    set_to(application, f"{application.source}=earliest")
    assert all(sleeper.is_fenced() for sleeper in sleepers)


def test_a_start_that_needs_a_stop_fences_who_sleeps_in_a_commit(application: Application):
    application.start()
    server = application.settings.kafka.bootstrap_servers
    application.claim(0, f"{application.name}:part:0")
    sleeper = Sleeper(server, f"{application.name}:part:0", f"{application.name}.out")
    moved = graph_of(application.name, {"other": ([application.source], [])})
    check_start(replace(application.context(), graph=moved))
    assert sleeper.is_fenced()


def test_a_position_outside_the_log_is_refused_with_its_bounds(application: Application):
    with pytest.raises(ConfigurationError, match="holds 0 to 5"):
        set_to(application, f"{application.source}[0]=6")


def test_members_of_other_programs_are_refused(application: Application):
    stranger = Consumer(
        {
            "bootstrap.servers": application.settings.kafka.bootstrap_servers,
            "group.id": application.name,
            "client.id": "stranger",
        }
    )
    stranger.subscribe([application.source])
    wait_until(lambda: has_joined(stranger), "the stranger's partitions")
    with pytest.raises(StartRefused, match="stranger"):
        application.start()
    stranger.close()


def test_another_application_of_the_same_name_is_refused(application: Application, topic_name: str):
    application.start()
    application.admin.create_topics([TopicToCreate(topic_name, 1)])
    other = graph_of(application.name, {"part": ([topic_name], [])})
    with pytest.raises(StartRefused, match="two applications of one name"):
        check_start(replace(application.context(), graph=other))


def test_a_timeout_above_the_brokers_is_refused(application: Application):
    settings = Settings.model_validate({"worker": {"transaction_timeout_seconds": 1000}})
    with pytest.raises(StartRefused, match=r"=1000 is above .*=900000"):
        check_start(replace(application.context(), settings=settings))


def test_plan_changes_nothing_and_apply_creates_what_is_missing_once(
    kafka: Any, unique_name: Callable[[str], str]
):
    name = unique_name("my-app")
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers=kafka.bootstrap_servers),
        worker=WorkerSettings(ids=Ids.WORKER),
    )
    admin = ClusterAdmin(settings.kafka)
    admin.create_topics([TopicToCreate(f"{name}.in", 3)])
    graph = graph_of(name, {"part": ([f"{name}.in"], [f"{name}.out", f"{name}.dead"])})
    registry = ControlTopic(name, settings.kafka, admin)
    context = ApplicationContext(graph, settings, admin, registry)
    for _ in range(2):
        planned = plan(context)
        assert [topic.name for topic in planned.topics if topic.create] == [
            f"{name}.dead",
            f"{name}.out",
            f"{name}-control",
            f"{name}-ownership",
        ]
        assert planned.transactional_ids == (f"{name}:worker.INSTANCE:0",)
        assert planned.refused is None
    _, created = apply(context)
    own = [f"{name}-control", f"{name}-ownership"]
    assert sorted(created) == [*own, f"{name}.dead", f"{name}.out"]
    found = admin.describe_topics([f"{name}.out"])[f"{name}.out"]
    assert found.partitions == settings.topics.partitions
    assert apply(context)[1] == []
    check_worker_start(context)
    assert ids_of(name, settings) == set(), "no worker has started, so no id needs a fence"


def test_a_registry_that_would_forget_is_refused(application: Application):
    registry = application.registry()
    application.admin.create_topics([TopicToCreate(registry.topic, 1)])
    with pytest.raises(StartRefused, match=r"cleanup\.policy=delete"):
        application.start()


def test_an_unreachable_cluster_is_named_within_the_deadline():
    admin = ClusterAdmin(KafkaSettings(bootstrap_servers="127.0.0.1:1", request_timeout_seconds=1))

    def ask() -> None:
        with pytest.raises(ClusterUnreachable, match=r"127\.0\.0\.1:1 answered within 1 s"):
            admin.cluster_id()

    within(5, ask)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.kafka
def test_a_stop_past_the_offset_retention_is_refused_and_nothing_read_again(
    forgotten: Application,
):
    partition = [TopicPartition(forgotten.source, 0)]

    def expired() -> bool:
        return forgotten.admin.committed(forgotten.name, partition)[0].offset is None

    wait_until(expired, "the end of the offset's retention")
    with pytest.raises(StartRefused, match=r"in\[0\] before, and the committed offset is gone"):
        forgotten.start()
    set_to(forgotten, f"{forgotten.source}[0]=3")
    assert forgotten.starting_offsets(forgotten.start()) == [3, 0]


def has_joined(consumer: Any) -> bool:
    consumer.poll(0.1)
    return bool(consumer.assignment())


def set_to(application: Application, *wishes: str) -> list[Position]:
    wanted = [PositionRequest.parse(text) for text in wishes]
    return set_positions(application.context(), wanted)


DAMAGED = {
    "topic/{source}": [b"", b"[]", b"7", b"{}", b'{"topic_id": 7, "partitions": 2}', b"\xff{"],
    "committed/part/{source}/0": [b"null", b'{"topic_id": null}'],
    "committed/part/{source}": [b'{"topic_id": "x"}'],
    "committed/part/{source}/zero": [b'{"topic_id": "x"}'],
    "leases": [b"{}", b'{"released": null, "ids": {"part": "x"}}'],
    "released": [b"{}"],
    "ownership": [b"{}", b'{"topic_id": 7}'],
    "topology": [b"[]", b'{"version": 2, "parts": 3}'],
    "application": [b'"x"'],
    "reset": [b"[]"],
    "relay.outbox/0": [b"{}", b'{"version": 1, "origin": []}'],
    "backfill/job": [b"7"],
}


def test_an_entry_that_is_damaged_is_named_and_a_foreign_one_is_passed_over(
    application: Application,
) -> None:
    application.start()
    producer = Producer(client_properties(application.settings.kafka, "producer"))

    def write(key: bytes, value: bytes | None) -> int:
        offsets: list[Any] = []
        topic = application.registry().topic
        producer.produce(topic, value, key, on_delivery=lambda _, m: offsets.append(m.offset()))
        assert producer.flush(60) == 0
        return offsets[0]

    with capture_logs() as events:
        for key, value in ((b"\xff\xfe", b"x"), (b"note", b"hello"), (b"", b"\0")):
            write(key, value)
        before = application.registry().refresh()
    passed = [event for event in events if event["event"] == "control_entry_passed_over"]
    assert len(passed) == 3
    assert before.topics.keys() == {application.source}
    for form, values in DAMAGED.items():
        key = form.format(source=application.source).encode()
        good = before.entries.get(key.decode())
        for value in values:
            offset = write(key, value)
            place = f"{application.registry().topic}[0]@{offset}"
            with pytest.raises(ControlTopicDamaged) as caught:
                application.start()
            assert f"cannot be read ({place}, " in str(caught.value)
            assert "last good value" in str(caught.value)
        write(key, None if good is None else orjson.dumps(good))
    assert application.registry().refresh() == before
    application.start()


def ids_of(application: str, settings: Settings) -> set[str]:
    """The transactional ids of an application that the brokers know."""
    with Wire(settings.kafka) as wire:
        known = {listed.transactional_id for listed in list_transactions(wire)}
    return {id_ for id_ in known if id_.startswith(f"{application}:")}
