"""Transactions that are decided and lack a marker end as their coordinator's log says."""

from __future__ import annotations

import time
from collections.abc import Callable

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.kafka.inspect.coordinators import describe_transaction
from eosframework.kafka.inspect.formats import StateValue, TxnState
from eosframework.kafka.inspect.hanging import find_open
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition
from tests.conftest import KafkaService
from tests.support.applications.pipeline import read_committed
from tests.support.faults.coordinator_log import write_state, write_transaction
from tests.support.faults.hanging import write_unannounced
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

Run = Callable[..., tuple[int, str, str]]


class Marked:
    """A topic and a producer with real transactions in it."""

    def __init__(self, service: KafkaService, topic: str, transactional_id: str) -> None:
        self.service, self.topic, self.id = service, topic, transactional_id
        self.partition = TopicPartition(topic, 0)
        servers = service.bootstrap_servers
        create_topics(AdminClient({"bootstrap.servers": servers}), [NewTopic(topic, 1, 1)])
        self.made = made = Producer(
            {"bootstrap.servers": servers, "transactional.id": transactional_id}
        )
        made.init_transactions(60)
        for value, end in (
            (b"1", made.commit_transaction),
            (b"2", made.abort_transaction),
            (b"3", made.commit_transaction),
        ):
            made.begin_transaction()
            made.produce(topic, value, partition=0)
            assert made.flush(60) == 0
            end(60)
        with self.wire() as wire:
            known = describe_transaction(wire, transactional_id)
        self.producer = known.producer_id, known.producer_epoch

    def wire(self) -> Wire:
        return Wire(KafkaSettings(bootstrap_servers=self.service.bootstrap_servers))

    def write_open(self) -> None:
        """Write a record of the producer, its fourth, in no transaction that is known."""
        with self.wire() as wire:
            write_unannounced(wire, self.partition, b"open", self.producer, sequence=3)

    def log(self, *, commit: bool) -> None:
        """Log a transaction that contains the topic, as if its marker had been omitted."""
        servers = self.service.bootstrap_servers
        write_transaction(servers, self.id, self.producer, [self.partition], commit=commit)

    @property
    def place(self) -> tuple[str, ...]:
        number = str(self.producer[0])
        return ("--topic", self.topic, "--partition", "0", "--producer-id", number)

    def visible(self) -> list[bytes | None]:
        return [m.value() for m in read_committed(self.service.bootstrap_servers, self.topic)]


@pytest.fixture
def marked(unprotected: KafkaService, topic_name: str, unique_name: Callable[[str], str]) -> Marked:
    return Marked(unprotected, topic_name, unique_name("id"))


@pytest.mark.parametrize(
    "commit",
    [True, pytest.param(False, marks=pytest.mark.exhaustive)],
    ids=["committed", "aborted"],
)
def test_a_missing_marker_is_written_as_the_coordinator_decided(
    marked: Marked, run: Run, commit: bool
) -> None:
    """The producer's earlier transactions of the same epoch had both outcomes."""
    marked.write_open()
    marked.log(commit=commit)
    right, wrong = ("commit", "abort") if commit else ("abort", "commit")
    with marked.wire() as wire:
        (entry,) = find_open(wire, [marked.topic]).hanging
    assert entry.verdict is not None
    assert entry.verdict.is_committed is commit, entry.verdict

    text = run(marked.service, "hanging", "--topic", marked.topic)[1]
    assert f"only its marker is missing: {'committed' if commit else 'aborted'} at" in text
    command = text.partition("end it: eosframework txn ")[2].split()
    assert command == [right, *marked.place]
    for force in ((), ("--force",)):
        code, _, error = run(marked.service, wrong, *marked.place, "--yes", *force)
        assert code == 2
        assert f"must not be {wrong}" in error
        assert f"eosframework txn {right} --topic {marked.topic}" in error
    assert marked.visible() == [b"1", b"3"]

    code, out, _ = run(marked.service, *command, "--yes")
    assert (code, f"{right} marker for producer" in out) == (0, True)
    assert marked.visible() == [b"1", b"3", *([b"open"] if commit else [])]
    assert "no transaction hangs" in run(marked.service, "hanging", "--topic", marked.topic)[1]


def test_records_that_no_transaction_contains_are_aborted(marked: Marked, run: Run) -> None:
    marked.write_open()
    text = run(marked.service, "hanging", "--topic", marked.topic)[1]
    assert "not committed: no transaction of its producer contains these records" in text
    assert run(marked.service, "commit", *marked.place, "--yes")[0] == 2
    assert run(marked.service, "abort", *marked.place, "--yes")[0] == 0
    assert marked.visible() == [b"1", b"3"]


def test_records_of_two_outcomes_are_left_to_the_user_who_is_shown_both(
    marked: Marked, run: Run
) -> None:
    marked.write_open()
    marked.log(commit=True)
    marked.log(commit=False)
    (told,) = orjson.loads(run(marked.service, "hanging", "--topic", marked.topic, "--json")[1])[
        "hanging"
    ]
    assert told["outcome"]["committed"] is None
    assert [entry["committed"] for entry in told["outcome"]["candidates"]] == [True, False]
    for word in ("commit", "abort"):
        code, _, error = run(marked.service, word, *marked.place, "--yes")
        assert code == 2
        for expected in ("committed at", "aborted at", "abort|commit", "--force"):
            assert expected in error
    code, out, _ = run(marked.service, "commit", *marked.place, "--yes", "--force")
    assert (code, "committed: " in out) == (0, True)
    assert marked.visible() == [b"1", b"3", b"open"]


def test_a_forgotten_producer_is_searched_in_the_logs_of_all_coordinators(
    unprotected: KafkaService, topic_name: str, unique_name: Callable[[str], str]
) -> None:
    """Its id has another producer by now, or none."""
    servers = unprotected.bootstrap_servers
    create_topics(AdminClient({"bootstrap.servers": servers}), [NewTopic(topic_name, 1, 1)])
    partition = TopicPartition(topic_name, 0)
    with Wire(KafkaSettings(bootstrap_servers=servers)) as wire:
        producer_id = write_unannounced(wire, partition, b"open")
        name = unique_name("forgotten")
        write_first_state(servers, name, producer_id)
        write_transaction(servers, name, (producer_id, 0), [partition], commit=True)
        (entry,) = find_open(wire, [topic_name]).hanging
    assert (entry.described, entry.verdict and entry.verdict.is_committed) == (None, True)


def write_first_state(servers: str, transactional_id: str, producer_id: int) -> None:
    now_ms = round(time.time() * 1000)
    value = StateValue(producer_id, 0, 60_000, TxnState.EMPTY, (), now_ms, None)
    write_state(servers, transactional_id, value)


def test_an_open_transaction_is_not_aborted_where_it_hides_a_committed_one(
    marked: Marked, run: Run
) -> None:
    """Its marker would decide the records of both."""
    marked.log(commit=True)
    made = marked.made
    made.begin_transaction()
    made.produce(marked.topic, b"next", partition=0)
    assert made.flush(60) == 0
    code, _, error = run(marked.service, "abort", marked.id, "--force", "--yes")
    assert code == 2
    assert "would also abort earlier records" in error
    made.commit_transaction(60)
    assert marked.visible() == [b"1", b"3", b"next"]
