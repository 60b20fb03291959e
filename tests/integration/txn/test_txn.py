"""`eosframework txn` against real brokers: seen, traced through both outcomes, aborted."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError
from eosframework.kafka.inspect.coordinators import active_producers, describe_transaction
from eosframework.kafka.inspect.ending import TakeOver, perform, plan_by_producer
from eosframework.kafka.inspect.hanging import Health, find_open
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition as Partition
from tests.conftest import KafkaService
from tests.support.applications.pipeline import WorkerProcess, read_committed, wait_until
from tests.support.applications.totals import Totals
from tests.support.faults.hanging import write_unannounced
from tests.support.fixtures import VERIFICATION
from tests.support.processes.waiting import within
from tests.support.servers.acls import wait_until_known
from tests.support.servers.kafka_admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.support.servers.topics import create_topics

Run = Callable[..., tuple[int, str, str]]


def data(result: tuple[int, str, str]) -> dict[str, Any]:
    assert result[0] == 0, result
    return orjson.loads(result[1])


def create(service: KafkaService, name: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": service.bootstrap_servers})
    create_topics(admin, [NewTopic(name, partitions, 1)])


def producer(service: KafkaService, transactional_id: str, timeout_ms: int = 600_000) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": service.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
        }
    )
    made.init_transactions(60)
    return made


def open_transaction(made: Producer, topic: str, value: bytes = b"open") -> None:
    made.begin_transaction()
    made.produce(topic, value, partition=0)
    assert made.flush(60) == 0


@contextmanager
def verified(service: KafkaService) -> Generator[None]:
    """Let the brokers verify transactions meanwhile: no worker starts without."""
    admin = AdminClient({"bootstrap.servers": service.bootstrap_servers})
    set_on_brokers(admin, VERIFICATION, "true")
    try:
        yield
    finally:
        set_on_brokers(admin, VERIFICATION, None)


def set_on_brokers(admin: AdminClient, name: str, value: str | None) -> None:
    """Change a setting of every broker; None: back to what its file says."""
    what = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    for broker in admin.list_topics(timeout=30).brokers:
        entry = ConfigEntry(name, value, incremental_operation=what)
        changed = ConfigResource(
            ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry]
        )
        for future in admin.incremental_alter_configs([changed]).values():
            future.result(30)


@pytest.fixture
def application(unique_name: Callable[[str], str]) -> str:
    return unique_name("shop")


def test_an_open_transaction_is_listed_with_its_owner_and_described_with_its_lag(
    kafka: KafkaService, topic_name: str, application: str, run: Run
) -> None:
    create(kafka, topic_name)
    ours, foreign = f"{application}:late:3", f"{application}/foreign"
    made, other = producer(kafka, ours), producer(kafka, foreign)
    open_transaction(made, topic_name)
    open_transaction(other, topic_name)
    made.produce(topic_name, b"more")
    made.flush(60)

    listed = data(run(kafka, "list", "--state", "ongoing", "--json"))["transactions"]
    by_id = {entry["transactional_id"]: entry for entry in listed}
    owner = {
        "application": application,
        "sub_topology": "late",
        "partition": 3,
        "instance": None,
    }
    assert by_id[ours].items() >= {"state": "Ongoing", "owner": owner, "coordinator": 1}.items()
    assert by_id[foreign]["owner"] is None
    lines = run(kafka, "list")[1].splitlines()
    assert any(foreign in line and line.endswith("foreign") for line in lines)
    only = data(run(kafka, "list", application, "--json"))["transactions"]
    assert [entry["transactional_id"] for entry in only] == [ours]

    described = data(run(kafka, "describe", ours, "--json"))
    assert described["timeout_seconds"] == 600
    assert 0 < described["open_seconds"] < 600
    (partition,) = described["partitions"]
    assert partition == {
        "topic": topic_name,
        "partition": 0,
        "last_stable_offset": 0,
        "high_watermark": 3,
        "held_back": 3,
    }
    for entry in (made, other):
        entry.abort_transaction(60)

    def ended() -> bool:
        after = data(run(kafka, "describe", ours, "--json"))
        return (after["state"], after["open_since"]) == ("CompleteAbort", None)

    # The coordinator answers when the abort is decided; markers and completion follow.
    wait_until(ended, "the end of the abort")


def test_the_trace_tells_states_markers_and_offsets_of_a_commit_and_of_an_abort(
    kafka: KafkaService, topic_name: str, application: str, run: Run
) -> None:
    create(kafka, topic_name, partitions=2)
    transactional_id, group = f"{application}:sums:0", f"{application}.group"
    source = f"{application}.input"
    create(kafka, source)
    made = producer(kafka, transactional_id)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    membership = consumer.consumer_group_metadata()
    for position, end in ((5, made.commit_transaction), (9, made.abort_transaction)):
        made.begin_transaction()
        for partition in (0, 1, 1):
            made.produce(topic_name, b"value", partition=partition)
        made.flush(60)
        positions = [TopicPartition(source, 0, position)]
        made.send_offsets_to_transaction(positions, membership, 60)
        end(60)
    open_transaction(made, topic_name)
    consumer.close()

    traced = data(run(kafka, "trace", transactional_id, "--json"))
    committed, aborted, still_open = traced["transactions"]
    names = [[change["state"] for change in t["states"]] for t in traced["transactions"]]
    assert names[0][0] == "Empty"
    assert names[0][-2:] == ["PrepareCommit", "CompleteCommit"]
    assert names[1][-2:] == ["PrepareAbort", "CompleteAbort"]
    assert set(names[2]) == {"Ongoing"}
    for transaction, commits, offsets in ((committed, True, (1, 2)), (aborted, False, (3, 5))):
        assert transaction["committed"] is commits
        assert transaction["missing_markers"] == []
        markers = {(m["topic"], m["partition"]): m for m in transaction["markers"]}
        assert {m["committed"] for m in markers.values()} == {commits}
        assert markers[topic_name, 0]["offset"] == offsets[0]
        assert markers[topic_name, 1]["offset"] == offsets[1]
        times = [change["time"] for change in transaction["states"]]
        assert times == sorted(times)
        assert all(times[-2] <= m["time"] <= times[-1] for m in markers.values())
        joined = [p["topic"] for c in transaction["states"] for p in c["joined"]]
        assert sorted(joined) == ["__consumer_offsets", topic_name, topic_name]
    written = {(w["partition"], w["first_offset"], w["last_offset"]) for w in aborted["written"]}
    assert written == {(0, 2, 2), (1, 3, 4)}
    assert committed["offsets"] == [{"group": group, "topic": source, "partition": 0, "offset": 5}]
    assert aborted["offsets"][0]["offset"] == 9
    assert (still_open["committed"], still_open["markers"]) == (None, [])

    text = run(kafka, "trace", transactional_id, "--last", "2")[1]
    for expected in ("PrepareAbort", f"marker ABORT   {topic_name}[1] at offset 5", "still open"):
        assert expected in text
    assert "COMMIT" not in text
    made.abort_transaction(60)


def test_a_healthy_transaction_is_neither_hanging_nor_aborted_unless_forced(
    kafka: KafkaService, topic_name: str, application: str, run: Run
) -> None:
    create(kafka, topic_name)
    transactional_id = f"{application}:late:0"
    made = producer(kafka, transactional_id)
    open_transaction(made, topic_name)
    found = data(run(kafka, "hanging", "--topic", topic_name, "--json"))
    assert found["hanging"] == []
    (healthy,) = found["healthy"]
    assert healthy["transaction"]["transactional_id"] == transactional_id

    code, _, error = run(kafka, "abort", transactional_id, "--yes")
    assert code == 2
    assert "is healthy" in error
    assert "--force" in error
    by_producer = ("--topic", topic_name, "--partition", "0", "--producer-id")
    code, _, error = run(kafka, "abort", *by_producer, str(healthy["producer_id"]), "--yes")
    assert (code, "is healthy" in error) == (2, True)

    code, out, _ = run(kafka, "abort", transactional_id, "--force", "--yes")
    assert code == 0
    assert "InitProducerId" in out
    with pytest.raises(KafkaException):
        made.commit_transaction(60)
    after = data(run(kafka, "describe", transactional_id, "--json"))
    assert after["open_since"] is None
    assert after["timeout_seconds"] == 600
    code, _, error = run(kafka, "abort", transactional_id, "--yes")
    assert (code, "nothing to abort" in error) == (2, True)


@pytest.mark.slow
def test_a_hanging_transaction_is_found_and_aborted_and_its_readers_go_on(
    unprotected: KafkaService, topic_name: str, run: Run
) -> None:
    create(unprotected, topic_name)
    partition = Partition(topic_name, 0)
    with Wire(KafkaSettings(bootstrap_servers=unprotected.bootstrap_servers)) as wire:
        hanging_id = write_unannounced(wire, partition, b"hanging")
    plain = Producer({"bootstrap.servers": unprotected.bootstrap_servers})
    plain.produce(topic_name, b"behind it")
    assert plain.flush(60) == 0
    assert read_committed(unprotected.bootstrap_servers, topic_name) == []

    found = data(run(unprotected, "hanging", "--json"))
    (hanging,) = (one for one in found["hanging"] if one["topic"] == topic_name)
    assert (
        hanging.items()
        >= {
            "topic": topic_name,
            "producer_id": hanging_id,
            "health": "unknown",
            "start_offset": 0,
            "last_stable_offset": 0,
            "held_back": 2,
            "transaction": None,
        }.items()
    )
    text = run(unprotected, "hanging", "--topic", topic_name)[1]
    command = text.partition("eosframework txn ")[2].split()
    assert command[0] == "abort"

    code, out, error = run(unprotected, *command)
    assert (code, "no answer on stdin" in error) == (2, True)
    assert f"abort marker for producer {hanging_id}" in out
    code, out, _ = run(unprotected, *command, "--yes")
    assert (code, "aborted: " in out) == (0, True)

    values = [m.value() for m in read_committed(unprotected.bootstrap_servers, topic_name)]
    assert values == [b"behind it"]
    left = data(run(unprotected, "hanging", "--json"))["hanging"]
    assert topic_name not in [one["topic"] for one in left]
    code, _, error = run(unprotected, *command, "--yes")
    assert (code, "has no open transaction" in error) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["first", pytest.param("second", marks=pytest.mark.exhaustive)])
def test_a_worker_refuses_to_run_while_a_transaction_hangs_in_a_changelog(
    unprotected: KafkaService, application: str, run: Run, tmp_path: Path, state: str
) -> None:
    """What was committed behind it cannot be read, by whoever has a store of it or none."""
    servers = unprotected.bootstrap_servers
    totals = Totals(servers, application, tmp_path / "totals", partitions=1)
    changelog = Partition(f"{application}-totals.aggregate-changelog", 0)

    def work(directory: str, **options: Any) -> WorkerProcess:
        settings = [
            f"state.directory={tmp_path / directory}",
            "worker.session_timeout_seconds=6",
            "worker.transaction_timeout_seconds=3",
        ]
        return totals.start_worker(instance="one", settings=settings, **options)

    def feed(count: int) -> None:
        totals.feed(count)
        outputs = f"{application}.totals"
        wait_until(lambda: len(totals.read(outputs)) == totals.fed, "the records that were fed")

    try:
        with verified(unprotected):
            worker = work("first")
            feed(200)
        with Wire(KafkaSettings(bootstrap_servers=servers)) as wire:
            write_unannounced(wire, changelog, b"hanging", key=b"7")
            (hanging,) = find_open(wire, [changelog.topic]).hanging
        with verified(unprotected):
            feed(200)
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0, worker.log[-3000:]
            refused = work(state, until_caught_up=True)
            assert refused.wait() == 1, refused.log[-3000:]
        assert f"hangs in its changelog {changelog} at offset {hanging.start_offset}" in refused.log
        assert "state_rebuilt" not in refused.log
        assert f"eosframework txn hanging --topic {changelog.topic}" in refused.log

        text = run(unprotected, "hanging", "--topic", changelog.topic)[1]
        command = text.partition("eosframework txn ")[2].splitlines()[0].split()
        assert run(unprotected, *command, "--yes")[0] == 0
        totals.feed(200)
        with verified(unprotected):
            healthy = work(state, until_caught_up=True)
            assert healthy.wait() == 0, healthy.log[-3000:]
        assert "state_rebuilt" not in healthy.log
        assert totals.findings() == []
    finally:
        totals.stop()


def test_a_partition_its_coordinator_has_forgotten_hangs_although_the_id_is_known(
    unprotected: KafkaService, topic_name: str, application: str
) -> None:
    create(unprotected, topic_name, partitions=2)
    made = producer(unprotected, f"{application}:late:0")
    with Wire(KafkaSettings(bootstrap_servers=unprotected.bootstrap_servers)) as wire:
        known = describe_transaction(wire, f"{application}:late:0")
        write_unannounced(
            wire,
            Partition(topic_name, 1),
            b"a delayed frame",
            producer=(known.producer_id, known.producer_epoch),
        )
        open_transaction(made, topic_name)
        found = {o.partition.partition: o for o in find_open(wire, [topic_name]).open_transactions}
        assert found[0].health is Health.HEALTHY
        assert found[1].health is Health.UNKNOWN
        assert found[1].described is not None
        made.commit_transaction(60)
        (left,) = find_open(wire, [topic_name]).hanging
        assert left.partition.partition == 1


def test_a_transaction_past_its_timeout_is_overdue_and_aborted_unforced(
    kafka: KafkaService, topic_name: str, application: str
) -> None:
    create(kafka, topic_name)
    transactional_id = f"{application}:late:0"
    made = producer(kafka, transactional_id)
    open_transaction(made, topic_name)
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    later = datetime.now(UTC) + timedelta(seconds=900)
    with Wire(settings) as wire:
        (overdue,) = find_open(wire, [topic_name], now=later).hanging
        assert overdue.health is Health.OVERDUE
        (same,) = (
            told
            for told in find_open(wire, now=later).hanging
            if told.partition.topic == topic_name
        )
        assert same.described is not None
        assert same.described.transactional_id == transactional_id
        plan = plan_by_producer(wire, overdue.partition, overdue.producer.producer_id, now=later)
        assert isinstance(plan, TakeOver)
        assert "aborted: " in perform(wire, settings, plan)
        with pytest.raises(ConfigurationError, match="ended meanwhile; nothing was done"):
            perform(wire, settings, plan)
        assert find_open(wire, [topic_name], now=later).hanging == ()


def test_an_expired_transaction_is_not_called_hanging_while_its_coordinator_works(
    kafka: KafkaService, topic_name: str, application: str
) -> None:
    create(kafka, topic_name)
    made = producer(kafka, f"{application}:late:0", timeout_ms=6_000)
    open_transaction(made, topic_name)
    with Wire(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)) as wire:
        assert find_open(wire, [topic_name]).hanging == ()
        wait_until(
            lambda: active_producers(wire, [Partition(topic_name, 0)])[0].start_offset is None,
            "the coordinator's abort",
        )


@pytest.mark.parametrize(
    "arguments",
    [("describe", "nobody"), ("trace", "nobody"), ("abort", "nobody", "--yes")],
    ids=lambda arguments: arguments[0],
)
def test_an_unknown_id_is_said_to_be_unknown(
    kafka: KafkaService, application: str, run: Run, arguments: tuple[str, ...]
) -> None:
    producer(kafka, f"{application}:late:0")
    code, out, error = run(kafka, *arguments)
    assert (code, out) == (2, "")
    assert "'nobody'" in error
    assert "eosframework txn list" in error


@pytest.fixture
def denied(unprotected: KafkaService) -> Iterator[Callable[..., None]]:
    """Deny operations to everybody, until the test ends."""
    admin = AdminClient({"bootstrap.servers": unprotected.bootstrap_servers})
    made: list[AclBindingFilter] = []

    def deny(kind: ResourceType, name: str, operation: AclOperation) -> None:
        everybody = (ResourcePatternType.LITERAL, "User:*", "*")
        denial = (kind, name, *everybody, operation, AclPermissionType.DENY)
        made.append(AclBindingFilter(*denial))
        for future in admin.create_acls([AclBinding(*denial)]).values():
            future.result(60)
        wait_until_known(admin, [AclBinding(*denial)])

    yield deny
    for future in admin.delete_acls(made).values() if made else ():
        future.result(60)
    wait_until_known(admin, made, there=False)


def test_a_lack_of_authority_is_not_taken_for_an_empty_cluster_or_a_hanging_transaction(
    unprotected: KafkaService, topic_name: str, run: Run, denied: Callable[..., None]
) -> None:
    create(unprotected, topic_name)
    producer(unprotected, "someone")
    with Wire(KafkaSettings(bootstrap_servers=unprotected.bootstrap_servers)) as wire:
        hanging_id = write_unannounced(wire, Partition(topic_name, 0), b"hanging")
    denied(ResourceType.TRANSACTIONAL_ID, "*", AclOperation.DESCRIBE)
    place = ("--topic", topic_name, "--partition", "0", "--producer-id", str(hanging_id))
    for arguments in (
        ("list",),
        ("describe", "someone"),
        ("hanging", "--topic", topic_name),
        ("abort", *place, "--yes"),
    ):
        code, out, error = run(unprotected, *arguments)
        assert (code, out) == (2, ""), arguments
        assert "allow it Describe on TransactionalId" in error
    denied(ResourceType.TOPIC, "__transaction_state", AclOperation.READ)
    code, _, error = run(unprotected, "trace", "someone")
    assert code == 2
    assert "allow it Describe on Topic __transaction_state" in error


@pytest.mark.parametrize("listening", [True, False], ids=["silent", "refusing"])
@pytest.mark.parametrize(
    "arguments",
    [
        "list",
        pytest.param("describe x", marks=pytest.mark.exhaustive),
        pytest.param("trace x", marks=pytest.mark.exhaustive),
        pytest.param("hanging", marks=pytest.mark.exhaustive),
        "abort x --yes",
        pytest.param("list --json", marks=pytest.mark.exhaustive),
    ],
)
def test_a_cluster_that_does_not_answer_is_given_up_within_the_deadline(
    listening: bool, arguments: str, run: Run
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1] if listening else 1}"
        deadline = ("--set", "kafka.request_timeout_seconds=1")
        asked = (KafkaService(server), *arguments.split(), *deadline)
        code, out, error = within(5, lambda: run(*asked))
    message = f"no broker at {server} answered within 0.6 s (last"
    # The clients of earlier tests still write to stderr that their broker is gone.
    (told,) = (line for line in error.splitlines() if not line.startswith("%"))
    assert code == 2
    assert told.startswith(f"error: {message}")
    if "--json" in arguments:
        assert orjson.loads(out)["error"].startswith(message)
    else:
        assert out == ""


@pytest.mark.exhaustive
def test_a_cluster_that_does_not_answer_is_given_up_within_ten_seconds_by_default(
    run: Run,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        service = KafkaService(f"127.0.0.1:{silent.getsockname()[1]}")
        code, out, error = within(10, lambda: run(service, "list"))
    assert (code, out) == (2, "")
    assert "answered within 6 s" in error
