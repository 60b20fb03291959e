"""The audit on a real broker: exact histories, and each kind of damage done on purpose.

The outputs are written here with confluent_kafka's own transactional producer, not by a worker.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.engine.failures.failure_headers import HEADER_STEP
from eosframework.errors import StartRefused
from eosframework.operations.audit import audit_application
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from tests.support.applications.histories import START, Application


def test_an_exact_history_is_clean(application: Application) -> None:
    application.feed(1000)
    application.write(application.outputs_of(range(400)), commit=400)
    application.write(application.outputs_of(range(400, 700)), abort=True)
    application.write(application.outputs_of(range(400, 1000)), commit=1000)
    verdict = application.audit()
    assert verdict.clean, verdict
    assert (verdict.input, verdict.output) == (1000, 2000)


def test_input_that_waits_is_not_lost(application: Application) -> None:
    application.feed(100)
    application.write(application.outputs_of(range(60)), commit=60)
    verdict = application.audit()
    assert verdict.clean, verdict
    assert (verdict.input, verdict.output) == (60, 120)


def test_an_output_that_was_not_written_is_lost_and_its_record_torn(
    application: Application,
) -> None:
    application.feed(100)
    outputs = application.outputs_of(range(100))
    application.write(outputs[:51] + outputs[52:], commit=100)
    assert application.faults() == {"lost": 1, "torn": 1}


def test_a_record_without_outputs_is_lost(application: Application) -> None:
    application.feed(100)
    outputs = application.outputs_of(n for n in range(100) if n != 42)
    application.write(outputs, commit=100)
    verdict = application.audit()
    assert application.faults() == {"lost": 2}
    assert f"{application.name}.in[0]@21" in verdict.details[0].text


def test_outputs_removed_from_the_log_are_lost(application: Application) -> None:
    application.feed(100)
    application.write(application.outputs_of(range(100)), commit=100)
    admin = AdminClient({"bootstrap.servers": application.bootstrap_servers})
    removed = TopicPartition(f"{application.name}.doubled", 0, 3)
    for future in admin.delete_records([removed]).values():
        future.result(60)
    verdict = application.audit()
    assert (verdict.lost, verdict.torn, verdict.duplicated) == (3, 3, 0)
    assert verdict.notes == (
        f"{application.name}.doubled[0] begins at offset 3: earlier records are gone",
    )


def test_an_output_written_again_is_duplicated(application: Application) -> None:
    application.feed(100)
    outputs = application.outputs_of(range(100))
    application.write(outputs, commit=100)
    application.write(outputs[10:13])
    verdict = application.audit()
    assert application.faults() == {"duplicated": 3}
    assert f"repeats {application.name}." in verdict.details[0].text


def test_a_record_from_elsewhere_is_duplicated(application: Application) -> None:
    application.feed(10)
    application.write(application.outputs_of(range(10)), commit=10)
    application.write([(f"{application.name}.doubled", 0, b"0", b'{"n":77}', START, [])])
    assert application.faults() == {"duplicated": 1}


@pytest.mark.parametrize(
    "part",
    [
        "key",
        pytest.param("timestamp", marks=pytest.mark.exhaustive),
        pytest.param("headers", marks=pytest.mark.exhaustive),
    ],
)
def test_an_output_with_another_key_time_or_header_is_not_the_same(
    application: Application, part: str
) -> None:
    application.feed(10)
    outputs = application.outputs_of(range(10))
    topic, partition, key, value, timestamp, headers = outputs[7]
    changed = {
        "key": (topic, partition, b"x", value, timestamp, headers),
        "timestamp": (topic, partition, key, value, timestamp + 1, headers),
        "headers": (topic, partition, key, value, timestamp, [("trace", b"1")]),
    }[part]
    application.write([*outputs[:7], changed, *outputs[8:]], commit=10)
    assert application.faults() == {"lost": 1, "duplicated": 1, "torn": 1}


def test_outputs_in_another_order_are_reordered(application: Application) -> None:
    application.feed(100)
    numbers = [*range(50), 52, 51, 50, *range(53, 100)]
    application.write(application.outputs_of(numbers), commit=100)
    verdict = application.audit()
    assert application.faults() == {"reordered": 2}
    assert f"{application.name}.in[0]@25, comes after" in verdict.details[0].text


def test_outputs_without_their_position_are_torn(application: Application) -> None:
    application.feed(100)
    application.write(application.outputs_of(range(80)), commit=80)
    application.write(application.outputs_of(range(80, 85)))
    assert application.faults() == {"torn": 5}


def test_a_transaction_that_is_still_open_hides_nothing_and_adds_nothing(
    application: Application,
) -> None:
    application.feed(100)
    application.write(application.outputs_of(range(100)), commit=100)
    producer = application.transactional_producer(".open")
    producer.begin_transaction()
    producer.produce(f"{application.name}.doubled", b"unfinished", partition=0)
    producer.flush(60)

    waited: list[str] = []

    def end_it(what: str, done: int, total: int) -> None:
        if what.startswith("waiting for an open transaction") and not waited:
            waited.append(what)
            producer.abort_transaction(60)

    graph = resolve(load_app(str(application.topology)))
    settings = KafkaSettings(bootstrap_servers=application.bootstrap_servers)
    assert audit_application(graph, settings, end_it).clean
    assert waited


@pytest.mark.exhaustive
def test_positions_in_an_open_transaction_are_waited_for(application: Application) -> None:
    application.feed(100)
    application.write(application.outputs_of(range(80)), commit=80)
    producer = application.transactional_producer(".open")
    producer.begin_transaction()
    consumer = Consumer(
        {"bootstrap.servers": application.bootstrap_servers, "group.id": application.name}
    )
    moved = [TopicPartition(f"{application.name}.in", 0, 50)]
    producer.send_offsets_to_transaction(moved, consumer.consumer_group_metadata(), 60)
    consumer.close()
    waited: list[str] = []

    def end_it(what: str, done: int, total: int) -> None:
        if "holds positions" in what and not waited:
            waited.append(what)
            producer.abort_transaction(60)

    graph = resolve(load_app(str(application.topology)))
    settings = KafkaSettings(
        bootstrap_servers=application.bootstrap_servers, request_timeout_seconds=5
    )
    assert audit_application(graph, settings, end_it).clean
    assert waited


def test_outputs_of_input_that_retention_removed_are_untraced(application: Application) -> None:
    application.feed(100)
    application.write(application.outputs_of(range(100)), commit=100)
    admin = AdminClient({"bootstrap.servers": application.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(f"{application.name}.in", 0, 5)]).values():
        future.result(60)
    verdict = application.audit()
    assert verdict.clean, verdict
    assert (verdict.input, verdict.untraced) == (95, 10)


def test_a_dead_letter_for_an_output_that_the_broker_refused_is_what_must_be_there(
    application: Application,
) -> None:
    application.feed(10)
    refused = 6
    outputs = application.outputs_of(n for n in range(10) if n != refused)
    headers = [
        ("__streams.errors.topic", f"{application.name}.in".encode()),
        ("__streams.errors.partition", b"0"),
        ("__streams.errors.offset", b"3"),
        ("__streams.errors.exception", b"DataRejected: too large"),
        (HEADER_STEP, b"output"),
    ]
    letter = (
        f"{application.name}.dead",
        0,
        b"6",
        json.dumps({"n": 6}).encode(),
        START + 6,
        headers,
    )
    application.write([*outputs, letter], commit=10)
    verdict = application.audit()
    assert verdict.clean, verdict
    assert verdict.output == 19


def test_an_application_that_committed_nothing_is_refused(application: Application) -> None:
    application.feed(10)
    with pytest.raises(StartRefused, match="no committed position"):
        application.audit()


def test_the_command_exits_with_1_and_says_what_is_wrong(application: Application) -> None:
    application.feed(10)
    outputs = application.outputs_of(range(10))
    application.write([*outputs, outputs[0]], commit=10)
    command = [sys.executable, "-m", "eosframework", "audit", str(application.topology)]
    command += ["--set", f"kafka.bootstrap_servers={application.bootstrap_servers}"]
    done = subprocess.run(
        [*command, "--json"], capture_output=True, check=False, timeout=180, text=True
    )
    report = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert (report["input"], report["output"], report["duplicated"]) == (10, 21, 1)
    assert report["details"][0]["kind"] == "duplicated"
