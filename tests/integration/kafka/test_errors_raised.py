"""Rows of the failure taxonomy, raised for real by a broker that is provoked to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework import errors
from eosframework.config import KafkaSettings
from eosframework.embedded import start_kafka
from eosframework.kafka.inspect.coordinators import describe_transaction
from eosframework.kafka.inspect.formats import TxnState
from eosframework.kafka.inspect.wire import Wire
from eosframework.kafka.taxonomy import Call, classify, exception_for, table
from tests.integration.kafka import test_forgotten_ids  # noqa: F401 - raises some of the rows
from tests.support.applications.pipeline import wait_until
from tests.support.faults.errors_raised import (
    RAISED,
    Seen,
    error_from_poll,
    error_of,
    raises,
    raises_one_of,
)
from tests.support.faults.provocateur import Provocateur, join, next_offset
from tests.support.servers.kafka_admin import AclOperation, ResourceType

pytestmark = pytest.mark.kafka

PROVOKED = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "broker.session.timeout.ms": "600000",  # its controller stands still with it (KAFKA-20734)
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provocateur]:
    directory = tmp_path_factory.mktemp("provoked")
    cluster = start_kafka(directory, fast_start=True, properties=PROVOKED)
    yield Provocateur(cluster)
    cluster.kill()


@raises(
    ("_FENCED", "commit"),
    ("_FENCED", "abort"),
    ("_FENCED", "begin"),
    ("_FENCED", "send_offsets"),
    ("_FENCED", "init"),
    ("_FATAL", "produce"),
)
def test_a_fenced_producer_gets_fenced_from_every_call_and_fatal_from_produce(
    broker: Provocateur,
) -> Seen:
    topic = broker.topic()
    zombie = broker.begun("fenced")
    zombie.produce(topic, b"x")
    zombie.flush()
    broker.producer("fenced").init_transactions(60)
    group = broker.consumer().consumer_group_metadata()
    seen: Seen = [
        (error_of(zombie.commit_transaction), "commit"),
        (error_of(zombie.abort_transaction), "abort"),
        (error_of(zombie.begin_transaction), "begin"),
        (error_of(zombie.send_offsets_to_transaction, next_offset(topic), group), "send_offsets"),
        (error_of(zombie.init_transactions), "init"),
        (error_of(zombie.produce, topic, b"y"), "produce"),
    ]
    assert not seen[-1][0].args[0].fatal()
    assert classify(seen[0][0], Call.COMMIT).raises == "TaskFenced"
    return seen


@raises(("_FENCED", "produce"))
def test_flush_of_a_fenced_producer_with_callbacks_raises_something_no_except_matches(
    broker: Provocateur,
) -> Seen:
    topic = broker.topic()
    zombie = broker.begun("callbacks")
    zombie.produce(topic, b"x")
    zombie.flush()
    broker.producer("callbacks").init_transactions(60)
    zombie.produce(topic, b"y", on_delivery=lambda error, message: None)
    error = error_of(zombie.flush)
    raised = exception_for(error, Call.PRODUCE, transactional_id="callbacks")
    assert isinstance(raised, errors.TaskFenced)
    return [(error, "produce")]


@raises(("_FENCED", "commit"))
def test_a_transaction_that_outlasts_its_timeout_looks_like_a_fenced_one(
    broker: Provocateur,
) -> Seen:
    topic = broker.topic()
    slow = broker.begun("slow", transaction_timeout_ms=6000, socket_timeout_ms=6000)
    slow.produce(topic, b"x")
    slow.flush()
    with Wire(KafkaSettings(bootstrap_servers=broker.cluster.bootstrap_servers)) as wire:
        wait_until(
            lambda: describe_transaction(wire, "slow").state is TxnState.COMPLETE_ABORT,
            "the broker's end of the transaction",
        )
    return [(error_of(slow.commit_transaction), "commit")]


@raises(
    ("MSG_SIZE_TOO_LARGE", "commit"),
    ("INVALID_RECORD", "commit"),
    ("INVALID_TIMESTAMP", "commit"),
    ("RECORD_LIST_TOO_LARGE", "commit"),
)
def test_outputs_the_broker_rejects_are_told_from_other_failures(broker: Provocateur) -> Seen:
    in_a_month = round((time.time() + 30 * 86400) * 1000)
    rejected = [
        ({"topic": broker.topic(max_message_bytes="1000"), "value": b"x" * 5000}, {}),
        ({"topic": broker.topic(cleanup_policy="compact"), "value": b"no key"}, {}),
        ({"topic": broker.topic(), "value": b"x", "timestamp": in_a_month}, {}),
        (
            {
                "topic": broker.topic(max_message_bytes="4000000", segment_bytes="1048576"),
                "value": b"x" * 2_000_000,
            },
            {"message_max_bytes": 4_000_000},
        ),
    ]
    seen: Seen = []
    for record, properties in rejected:
        producer = broker.begun(**properties)
        producer.produce(**record)
        error = error_of(producer.commit_transaction)
        assert isinstance(
            exception_for(error, Call.COMMIT, transactional_id="id"), errors.DataRejected
        )
        seen.append((error, "commit"))
        producer.abort_transaction()
    return seen


@raises(("MSG_SIZE_TOO_LARGE", "produce"), ("_QUEUE_FULL", "produce"))
def test_what_librdkafka_itself_rejects_comes_out_of_produce(broker: Provocateur) -> Seen:
    topic = broker.topic()
    producer = broker.begun(queue_buffering_max_messages=1)
    return [
        (error_of(producer.produce, topic, b"x" * 2_000_000), "produce"),
        (error_of(lambda: [producer.produce(topic, b"x") for _ in range(100)]), "produce"),
    ]


@raises(("_INCONSISTENT", "commit"))
@pytest.mark.parametrize("cause", ["partition", "topic", "name"])
def test_an_output_partition_or_topic_that_does_not_exist_is_a_rejected_output(
    broker: Provocateur, cause: str
) -> Seen:
    producer = broker.begun(topic_metadata_propagation_max_ms=300)
    if cause == "partition":
        # 1. produce asks for the new topic's metadata. 2. On a busy machine they come before it
        # chooses the partition. 3. It refuses the record at once, which is a rejected output, too.
        while refused := error_of(producer.produce, broker.topic(), b"x", None, 99):
            assert classify(refused, Call.PRODUCE).data
    else:
        producer.produce("missing" if cause == "topic" else "not a name", b"x")
    error = error_of(producer.commit_transaction)
    assert classify(error, Call.COMMIT).data
    return [(error, "commit")]


@raises(
    ("_STATE", "begin"),
    ("_STATE", "produce"),
    ("_STATE", "commit"),
    ("_STATE", "abort"),
    ("_STATE", "send_offsets"),
    ("_STATE", "init"),
)
def test_calls_out_of_order_are_the_programs_fault(broker: Provocateur) -> Seen:
    topic = broker.topic()
    producer = broker.producer()
    group = broker.consumer().consumer_group_metadata()
    seen: Seen = [(error_of(producer.begin_transaction), "begin")]
    producer.init_transactions(60)
    seen += [
        (error_of(producer.produce, topic, b"x"), "produce"),
        (error_of(producer.commit_transaction), "commit"),
        (error_of(producer.abort_transaction), "abort"),
        (error_of(producer.send_offsets_to_transaction, next_offset(topic), group), "send_offsets"),
        (error_of(producer.init_transactions), "init"),
    ]
    producer.close()
    seen.append((error_of(producer.produce, topic, b"x"), "produce"))
    return seen


@raises(("INVALID_TRANSACTION_TIMEOUT", "init"), ("_NOT_CONFIGURED", "init"))
def test_a_producer_that_cannot_be_inited_as_configured_says_so(broker: Provocateur) -> Seen:
    plain = Producer({"bootstrap.servers": broker.cluster.bootstrap_servers})
    return [
        (error_of(broker.producer(transaction_timeout_ms=1_000_000).init_transactions, 60), "init"),
        (error_of(plain.init_transactions, 60), "init"),
    ]


@raises(("ILLEGAL_GENERATION", "send_offsets"), ("UNKNOWN_MEMBER_ID", "send_offsets"))
def test_offsets_polled_under_an_earlier_membership_are_refused(broker: Provocateur) -> Seen:
    topic, group = broker.topic(partitions=2), broker.name("group")
    first, second = broker.consumer(group), broker.consumer(group)
    earlier: Any = join(first, topic)
    second.subscribe([topic])

    def shared() -> bool:
        first.poll(0.1)
        second.poll(0.1)
        return bool(second.assignment())

    wait_until(shared, "a rebalance")
    stale = broker.begun()
    stale.produce(topic, b"x")
    refused = error_of(stale.send_offsets_to_transaction, next_offset(topic), earlier)
    latest = first.consumer_group_metadata()
    first.close()
    left = broker.begun()
    left.produce(topic, b"x")
    gone = error_of(left.send_offsets_to_transaction, next_offset(topic), latest)
    second.close()
    return [(refused, "send_offsets"), (gone, "send_offsets")]


@raises(("FENCED_INSTANCE_ID", "send_offsets"), ("_FATAL", "consume"))
def test_an_instance_whose_name_another_member_took_has_to_leave(broker: Provocateur) -> Seen:
    topic, group = broker.topic(), broker.name("group")
    first = broker.consumer(group, group_instance_id="one", auto_offset_reset="earliest")
    membership = join(first, topic)
    second = broker.consumer(group, group_instance_id="one", auto_offset_reset="earliest")
    join(second, topic)
    producer = broker.begun()
    producer.produce(topic, b"x")
    refused = error_of(producer.send_offsets_to_transaction, next_offset(topic), membership)
    reported = error_from_poll(first)
    raised = exception_for(reported, Call.CONSUME, transactional_id=None)
    assert isinstance(raised, errors.InstanceFenced)
    second.close()
    return [(refused, "send_offsets"), (reported, "consume")]


@raises(("OFFSET_METADATA_TOO_LARGE", "send_offsets"), ("UNKNOWN_TOPIC_OR_PART", "send_offsets"))
def test_offsets_the_broker_cannot_store_end_the_transaction(broker: Provocateur) -> Seen:
    topic = broker.topic()
    group = broker.consumer().consumer_group_metadata()
    long = broker.begun()
    nowhere = broker.begun(transaction_timeout_ms=8000, socket_timeout_ms=6000)
    missing = [TopicPartition(topic, 77, 1)]
    return [
        (
            error_of(long.send_offsets_to_transaction, next_offset(topic, 1, "m" * 5000), group),
            "send_offsets",
        ),
        (error_of(nowhere.send_offsets_to_transaction, missing, group), "send_offsets"),
    ]


@raises(
    ("_AUTO_OFFSET_RESET", "consume"),
    ("UNKNOWN_TOPIC_OR_PART", "consume"),
    ("_PARTITION_EOF", "consume"),
    ("INVALID_SESSION_TIMEOUT", "consume"),
)
def test_a_consumer_reports_what_it_cannot_read(broker: Provocateur) -> Seen:
    topic = broker.topic()
    beyond, missing = broker.consumer(), broker.consumer()
    at_end = broker.consumer(enable_partition_eof=True)
    hasty = broker.consumer(session_timeout_ms=100)
    beyond.assign([TopicPartition(topic, 0, 99)])
    missing.subscribe(["missing"])
    at_end.assign([TopicPartition(topic, 0, OFFSET_END)])
    hasty.subscribe([topic])
    consumers = (beyond, missing, at_end, hasty)
    seen: Seen = [(error_from_poll(consumer), "consume") for consumer in consumers]
    assert classify(seen[0][0], Call.CONSUME).raises == "PositionLost"
    for consumer in consumers:
        consumer.close()
    return seen


@raises(("_MAX_POLL_EXCEEDED", "consume"))
def test_a_consumer_that_was_not_polled_in_time_is_told(broker: Provocateur) -> Seen:
    topic, group = broker.topic(), broker.name("group")
    consumer = broker.consumer(
        group,
        max_poll_interval_ms=8000,
        session_timeout_ms=8000,
        heartbeat_interval_ms=200,
        auto_offset_reset="earliest",
    )
    join(consumer, topic)
    admin = AdminClient({"bootstrap.servers": broker.cluster.bootstrap_servers})

    def nobody_is_there() -> bool:
        return not admin.describe_consumer_groups([group])[group].result(60).members

    wait_until(nobody_is_there, "the member's leave")
    return [(error_from_poll(consumer), "consume")]


@raises(
    ("_TIMED_OUT", "commit"),
    ("_CONFLICT", "abort"),
    ("_CONFLICT", "begin"),
    ("_CONFLICT", "send_offsets"),
    ("_STATE", "produce"),
    ("_TIMED_OUT", "send_offsets"),
    ("_TIMED_OUT", "abort"),
    ("_CONFLICT", "commit"),
    ("_TIMED_OUT", "init"),
    ("_TIMED_OUT", "committed"),
)
def test_a_hung_broker_leaves_calls_open_that_only_the_same_call_ends(broker: Provocateur) -> Seen:
    topic = broker.topic()
    consumer = broker.consumer()
    group = consumer.consumer_group_metadata()
    # send_offsets lasts for the socket timeout, whatever its own; a longer one than that ends it
    # with another error. No transaction may expire meanwhile, however slow the machine is.
    waits: dict[str, Any] = {"socket_timeout_ms": 1000, "transaction_timeout_ms": 600_000}
    committing, sending, aborting = (broker.begun(**waits) for _ in range(3))
    for producer in (committing, sending, aborting):
        producer.produce(topic, b"x")
        producer.flush()
    starting = broker.producer()
    offsets = next_offset(topic)
    with broker.hung():
        seen: Seen = [
            (error_of(committing.commit_transaction, 1), "commit"),
            (error_of(committing.abort_transaction, 1), "abort"),
            (error_of(committing.begin_transaction), "begin"),
            (error_of(committing.send_offsets_to_transaction, offsets, group, 1), "send_offsets"),
            (error_of(committing.produce, topic, b"x"), "produce"),
            (error_of(sending.send_offsets_to_transaction, offsets, group, 1), "send_offsets"),
            (error_of(aborting.abort_transaction, 1), "abort"),
            (error_of(aborting.commit_transaction, 1), "commit"),
            (error_of(starting.init_transactions, 1), "init"),
            (error_of(consumer.committed, offsets, 1), "committed"),
        ]
    assert error_of(committing.commit_transaction, 60) is None
    assert error_of(aborting.abort_transaction, 60) is None
    assert error_of(starting.init_transactions, 60) is None
    return seen


@raises_one_of(("_TIMED_OUT", "commit"), ("_INCONSISTENT", "commit"))
def test_an_expired_record_fails_the_commit_and_asks_for_an_abort(broker: Provocateur) -> Seen:
    topic = broker.topic()
    # What is delivered before the broker hangs must not expire on a busy machine.
    producer = broker.begun(message_timeout_ms=8000, socket_timeout_ms=8000)
    producer.produce(topic, b"x")
    producer.flush()
    with broker.hung():
        producer.produce(topic, b"y")
        error = error_of(producer.commit_transaction, 60)
    assert error.args[0].txn_requires_abort()
    return [(error, "commit")]


@raises(("_TIMED_OUT", "committed"))
def test_a_transaction_in_doubt_holds_the_committed_offset_back(broker: Provocateur) -> Seen:
    topic = broker.topic()
    consumer = broker.consumer()
    producer = broker.begun()
    group = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction(next_offset(topic), group)
    error = error_of(consumer.committed, next_offset(topic), 1)
    producer.commit_transaction()
    assert consumer.committed(next_offset(topic), 60)[0].offset == 1
    return [(error, "committed")]


@raises(
    ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "init"),
    ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "commit"),
    ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "send_offsets"),
)
def test_an_id_that_may_not_be_used_is_named_with_the_acl(broker: Provocateur) -> Seen:
    topic = broker.topic()
    group = broker.consumer().consumer_group_metadata()
    committing, sending = broker.begun("revoked-0"), broker.begun("revoked-1")
    for producer in (committing, sending):
        producer.produce(topic, b"x")
        producer.flush()
    for name in ("denied", "revoked-0", "revoked-1"):
        broker.deny(ResourceType.TRANSACTIONAL_ID, name, AclOperation.ALL)
    denied = error_of(broker.producer("denied").init_transactions, 60)
    message = str(exception_for(denied, Call.INIT, transactional_id="denied"))
    assert "TransactionalId resource denied" in message
    return [
        (denied, "init"),
        (error_of(committing.commit_transaction), "commit"),
        (
            error_of(sending.send_offsets_to_transaction, next_offset(topic), group),
            "send_offsets",
        ),
    ]


@raises(
    ("TOPIC_AUTHORIZATION_FAILED", "commit"),
    ("TOPIC_AUTHORIZATION_FAILED", "consume"),
    ("GROUP_AUTHORIZATION_FAILED", "consume"),
    ("GROUP_AUTHORIZATION_FAILED", "send_offsets"),
)
def test_topics_and_groups_that_may_not_be_used_are_a_matter_of_configuration(
    broker: Provocateur,
) -> Seen:
    open_topic, unreadable, unwritable = broker.topic(), broker.topic(), broker.topic()
    producer = broker.begun()
    producer.produce(unwritable, b"x")
    producer.commit_transaction()
    broker.deny(ResourceType.TOPIC, unreadable, AclOperation.READ)
    broker.deny(ResourceType.TOPIC, unwritable, AclOperation.WRITE)
    broker.deny(ResourceType.GROUP, "denied", AclOperation.READ)
    producer.begin_transaction()
    producer.produce(unwritable, b"y")
    seen: Seen = [(error_of(producer.commit_transaction), "commit")]
    for consumer, topic in (
        (broker.consumer(), unreadable),
        (broker.consumer("denied"), open_topic),
    ):
        consumer.subscribe([topic])
        seen.append((error_from_poll(consumer), "consume"))
        consumer.close()
    sending = broker.begun()
    group = broker.consumer("denied").consumer_group_metadata()
    error = error_of(sending.send_offsets_to_transaction, next_offset(open_topic), group)
    return [*seen, (error, "send_offsets")]


def test_the_documentation_marks_exactly_what_is_raised_here() -> None:
    marked = {(row.name, call) for row in table().failures.values() for call in row.raised}
    assert marked == RAISED
