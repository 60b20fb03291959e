"""The worker's consumer against a real broker: rebalances, positions, leaving."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.errors import AssignmentLapsed, InstanceFenced, PositionLost, Retriable
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.group import GroupSettings, member_id
from eosframework.kafka.consumer.input_log import KafkaInputLog
from eosframework.kafka.inspect.vendor import consumer_protocol
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import Position, TopicPartition
from tests.conftest import KafkaService
from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import wait_until
from tests.support.servers.kafka_admin import NewPartitions, NewTopic
from tests.support.servers.topics import create_topics

Join = Callable[..., "Member"]


class Member:
    """A group member that starts every partition at `start`."""

    def __init__(self, log: KafkaInputLog, start: int) -> None:
        self.log = log
        self.start = start
        self.owned: set[TopicPartition] = set()
        self.failure: Exception | None = None
        self.during: Callable[[], None] | None = None
        self.callbacks: list[str] = []

    def assigned(self, partitions: list[TopicPartition]) -> list[Position]:
        if self.failure is not None:
            raise self.failure
        self.callbacks.append(f"assigned {len(partitions)}")
        if (during := self.during) is not None:
            self.during = None
            during()
        self.owned |= set(partitions)
        return [Position(p.topic, p.partition, self.start) for p in partitions]

    def revoked(self, partitions: list[TopicPartition]) -> None:
        self.callbacks.append(f"gone {len(partitions)}")
        self.owned -= set(partitions)

    lost = revoked

    def asked(self) -> bytes:
        """What librdkafka reports of the membership now."""
        return self.log._consumer.consumer_group_metadata()

    def owns(self, count: int) -> bool:
        self.log.fetch(10, 0.05)
        return len(self.owned) == count


@pytest.fixture
def topic(kafka: KafkaService, topic_name: str) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    create_topics(admin, [NewTopic(topic_name, 2, 1)])
    producer = feeder(kafka.bootstrap_servers)
    for number in range(20):
        producer.produce(topic_name, str(number).encode(), partition=number % 2)
    assert producer.flush(60) == 0
    return topic_name


@pytest.fixture
def cut_topic(kafka: KafkaService, topic: str) -> str:
    """The topic, whose logs begin at offset 7."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    deleted = admin.delete_records([KafkaPartition(topic, 0, 7), KafkaPartition(topic, 1, 7)])
    for answer in deleted.values():
        answer.result(60)
    return topic


@pytest.fixture
def join(kafka: KafkaService, topic: str) -> Iterator[Join]:
    members: list[Member] = []

    def join_one(instance: str | None = None, *, start: int = 0, **client: Any) -> Member:
        # Partitions are handed over by a leave: the end of a session would be waited for longer.
        group = GroupSettings(
            topic,
            instance,
            session_timeout_seconds=600,
            heartbeat_interval_seconds=0.2,
            max_poll_interval_seconds=600,
        )
        servers = {"bootstrap.servers": kafka.bootstrap_servers}
        admin = ClusterAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
        log = KafkaInputLog({**servers, **client}, group, admin=admin)
        member = Member(log, start)
        log.subscribe([topic], member)
        members.append(member)
        return member

    yield join_one
    for member in members:
        member.log.close(leave=False)


def test_new_partitions_wait_until_they_are_resumed_and_are_read_to_their_end(
    join: Join, topic: str
) -> None:
    member = join()
    wait_until(lambda: member.owns(2), "an assignment")
    assert not member.log.fetch(100, 0.3).messages
    member.log.resume(list(member.owned))
    offsets: dict[TopicPartition, list[int]] = {p: [] for p in member.owned}
    ends: dict[TopicPartition, int] = {}

    def read_to_the_end() -> bool:
        fetched = member.log.fetch(100, 0.1)
        for partition, messages in fetched.messages.items():
            offsets[partition] += [message.offset() for message in messages]
        ends.update(fetched.ends)
        return len(ends) == 2

    wait_until(read_to_the_end, "the end")
    assert all(found == list(range(10)) for found in offsets.values())
    assert set(ends.values()) == {10}


def test_offsets_that_a_transaction_holds_name_the_command_that_finds_it(
    kafka: KafkaService, topic: str, unique_name: Callable[[str], str]
) -> None:
    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap_servers}
    holder = Producer({**servers, "transactional.id": unique_name("holder")})
    holder.init_transactions(60)
    holder.begin_transaction()
    membership = Consumer({**servers, "group.id": topic}).consumer_group_metadata()
    holder.send_offsets_to_transaction([KafkaPartition(topic, 0, 5)], membership, 60)
    log = KafkaInputLog(servers, GroupSettings(topic), request_timeout_seconds=1)
    try:
        with pytest.raises(Retriable, match="txn hanging --topic __consumer_offsets"):
            log.committed([TopicPartition(topic, 0)])
    finally:
        log.close(leave=False)
        holder.abort_transaction(60)


def test_the_first_record_after_a_resume_waits_for_no_sleeping_thread(join: Join) -> None:
    member = join()
    wait_until(lambda: member.owns(2), "an assignment")
    partitions = sorted(member.owned)
    took: list[float] = []
    for _ in range(3):
        member.log.pause(partitions)
        # After the last long poll (0.5 s) the thread of the broker finds nothing to fetch, and
        # sleeps for a second.
        assert not member.log.fetch(100, 0.8).messages
        member.log.seek([Position(*partition, 1) for partition in partitions])
        began = time.monotonic()
        member.log.resume(partitions)
        assert member.log.fetch(1, 10).messages
        took.append(time.monotonic() - began)
    assert sorted(took)[1] < 0.3, took  # 0.95 s without the seek that wakes it


def test_a_resume_after_records_were_read_repeats_none_of_them(join: Join) -> None:
    member = join()
    wait_until(lambda: member.owns(2), "an assignment")
    partitions = sorted(member.owned)
    member.log.seek([Position(*partition, 1) for partition in partitions])
    member.log.resume(partitions)
    offsets: dict[TopicPartition, list[int]] = {p: [] for p in partitions}

    def read(limit: int) -> bool:
        for partition, messages in member.log.fetch(limit, 0.1).messages.items():
            offsets[partition] += [message.offset() for message in messages]
        return sum(map(len, offsets.values())) >= 6

    wait_until(lambda: read(1), "six records")
    member.log.pause(partitions)
    member.log.resume(partitions)
    wait_until(lambda: read(100) and all(9 in found for found in offsets.values()), "the rest")
    assert all(found == list(range(1, 10)) for found in offsets.values()), offsets


def test_a_position_that_is_gone_is_named_with_what_the_log_still_holds(
    join: Join, cut_topic: str
) -> None:
    member = join(start=3)

    def read() -> None:
        wait_until(lambda: member.owns(2), "an assignment")
        member.log.resume(list(member.owned))
        wait_until(lambda: member.owns(0), "a position")

    with pytest.raises(PositionLost, match=r"3, is not in the log \(the log holds 7 to 10\)"):
        read()


def test_a_position_that_was_given_up_is_not_missed(join: Join, cut_topic: str) -> None:
    """librdkafka delivers the error of a fetch after the partition was lost, or moved."""
    member = join(start=3)
    log, consumer = member.log, member.log._consumer
    found: list[Message] = []

    def complete() -> bool:
        found.extend(consumer.consume(2, 0.1))
        log.resume(list(member.owned))
        return {message.partition() for message in found} == {0, 1}

    wait_until(complete, "an error of each partition")
    told = {(error.code(), m.offset()) for m in found if (error := m.error()) is not None}
    assert told == {(KafkaError._AUTO_OFFSET_RESET, 3)}

    log._note_starts([Position(cut_topic, number, 7) for number in (0, 1)])
    assert log._without_errors(found, {}, {}) == []
    log._note_starts([Position(cut_topic, number, 3) for number in (0, 1)])
    with pytest.raises(PositionLost):
        log._without_errors(found, {}, {})
    assert log._rebalancing is not None
    log._rebalancing.lost(consumer, [KafkaPartition(cut_topic, number) for number in (0, 1)])
    assert log._without_errors(found, {}, {}) == []


def test_what_a_listener_raises_comes_out_of_fetch_and_nothing_is_assigned(join: Join) -> None:
    member = join()
    member.failure = LookupError("mine")
    with pytest.raises(LookupError, match="mine"):
        wait_until(lambda: member.owns(2), "never")
    assert not member.log.fetch(100, 0.3).messages


def test_a_fetch_tells_the_membership_that_holds_since_the_last_rebalance(
    kafka: KafkaService, join: Join, topic: str
) -> None:
    first = join()
    wait_until(lambda: first.owns(2), "an assignment")
    before = first.log.fetch(1, 0).membership
    second = join()
    wait_until(lambda: first.owns(1) and second.owns(1), "one partition each")
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{topic}-0"}
    )
    producer.init_transactions(60)
    kept = [KafkaPartition(*partition, 1) for partition in first.owned]
    producer.begin_transaction()
    producer.send_offsets_to_transaction(kept, first.log.fetch(1, 0).membership, 60)
    producer.commit_transaction(60)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction(kept, before, 60)
    assert refused.value.args[0].code() == KafkaError.ILLEGAL_GENERATION
    producer.abort_transaction(60)


def sent_under(kafka: KafkaService, topic: str, membership: Any) -> int | None:
    """The error code of offsets sent under a membership; None: they are committed."""
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{topic}-0"}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    try:
        producer.send_offsets_to_transaction([KafkaPartition(topic, 0, 1)], membership, 60)
    except KafkaException as error:
        producer.abort_transaction(60)
        return error.args[0].code()
    producer.commit_transaction(60)
    return None


def test_a_topic_that_grows_during_a_takeover_leaves_the_membership_of_the_takeover(
    kafka: KafkaService, join: Join, topic: str
) -> None:
    """librdkafka joins again inside the callback, and reports the new generation at once."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    member = join(**{"topic.metadata.refresh.interval.ms": 200})
    codes: list[int | None] = []

    def grow() -> None:
        member.log.confirm_assignment([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        for answer in admin.create_partitions([NewPartitions(topic, 4)]).values():
            answer.result(60)
        wait_until(lambda: member.asked() != member.log.membership(), "the new generation")
        assert member_id(member.asked()) == member_id(member.log.membership())
        codes.append(sent_under(kafka, topic, member.log.membership()))

    member.during = grow
    wait_until(lambda: member.owns(4), "the assignment of the new generation")
    assert codes == [KafkaError.ILLEGAL_GENERATION]
    assert member.callbacks == ["assigned 2", "gone 2", "assigned 4"]
    assert member.log.membership() == member.asked()


def test_partitions_of_an_earlier_generation_are_not_confirmed(
    kafka: KafkaService, join: Join, topic: str
) -> None:
    admin = ClusterAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    first, lapsed = join(), list[str]()

    def rebalance() -> None:
        second = join()

        def waits() -> bool:
            return second.owns(0) and len(admin.describe_group(topic).members) == 2

        wait_until(waits, "a member that waits for the first one")
        try:
            first.log.confirm_assignment([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        except AssignmentLapsed as error:
            lapsed.append(str(error))
            raise

    first.during = rebalance
    wait_until(lambda: first.owns(1), "a share")
    assert lapsed == [f"group {topic} has another assignment by now"]


def test_offsets_of_a_member_whose_generation_is_over_are_refused_by_an_empty_group(
    kafka: KafkaService, join: Join, topic: str
) -> None:
    """A JoinGroup of the member arrives late, so that librdkafka hears of an illegal generation.

    From a static member brokers accept offsets without a generation while the group is empty.
    """
    member = join("one")
    wait_until(lambda: member.owns(2), "an assignment")
    membership = member.log.membership()
    name = topic.encode()
    subscription = struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, 0)
    request = consumer_protocol.JoinGroupRequest
    range_ = request.JoinGroupRequestProtocol(name="range", metadata=subscription)
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    with Wire(settings) as wire:
        joined = wire.send(
            request(
                group_id=topic,
                session_timeout_ms=600_000,
                rebalance_timeout_ms=600_000,
                member_id=member_id(membership),
                group_instance_id="one",
                protocol_type="consumer",
                protocols=[range_],
            )
        )
        assert joined.error_code == 0, joined
        wait_until(lambda: not member_id(member.asked()), "the end of the membership")
        leave = consumer_protocol.LeaveGroupRequest
        one = leave.MemberIdentity(member_id=member_id(membership), group_instance_id="one")
        assert wire.send(leave(group_id=topic, members=[one])).error_code == 0
    without_generation = member.asked()
    assert member.log.membership() == membership
    assert sent_under(kafka, topic, membership) == KafkaError.UNKNOWN_MEMBER_ID
    assert sent_under(kafka, topic, without_generation) is None, "it is to be kept from brokers"


def test_a_static_member_that_leaves_hands_its_partitions_over_at_once(join: Join) -> None:
    first, second = join("one"), join("two")
    wait_until(lambda: all([first.owns(1), second.owns(1)]), "a share each")
    first.log.close(leave=True)
    assert not first.owned
    wait_until(lambda: second.owns(2), "the rest")


def test_a_second_worker_with_the_same_instance_name_fences_the_first(join: Join) -> None:
    first = join("one")
    wait_until(lambda: first.owns(2), "an assignment")
    second = join("one")
    with pytest.raises(InstanceFenced):
        wait_until(lambda: all([second.owns(2), first.owns(0)]), "never")


def fenced(join: Join) -> Member:
    """Make a member that another of its name has fenced, and that was not told so by a fetch."""
    first = join("one")
    wait_until(lambda: first.owns(2), "an assignment")
    second = join("one")
    wait_until(lambda: second.owns(2), "the partitions")
    wait_until(lambda: not first.log._consumer.assignment(), "the fence")
    return first


def test_a_fenced_member_that_closes_before_it_was_told_just_closes(join: Join) -> None:
    fenced(join).log.close(leave=True)


def test_a_fenced_member_that_seeks_before_it_was_told_is_told_why_it_cannot(join: Join) -> None:
    member = fenced(join)
    with pytest.raises(InstanceFenced):
        member.log.seek([Position(p.topic, p.partition, 1) for p in member.owned])


def test_a_marker_that_was_read_and_removed_is_passed(
    kafka: KafkaService, join: Join, topic: str
) -> None:
    """As after an abort: the worker rewinds to a position before the marker."""
    servers = kafka.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"last", partition=0)
    producer.commit_transaction(60)
    member = join(start=10)
    wait_until(lambda: member.owns(2), "an assignment")
    member.log.resume(sorted(member.owned))
    place, ends = TopicPartition(topic, 0), dict[TopicPartition, int]()

    def read_to_the_end() -> bool:
        ends.update(member.log.fetch(100, 0.1).ends)
        return ends.get(place) == 12

    wait_until(read_to_the_end, "the end after the marker")
    admin = AdminClient({"bootstrap.servers": servers})
    for answer in admin.delete_records([KafkaPartition(topic, 0, 12)]).values():
        answer.result(60)
    member.log.seek([Position(*place, 11)])
    assert not member.log.fetch(100, 1).messages
    feeding = feeder(servers)
    feeding.produce(topic, b"next", partition=0)
    assert feeding.flush(60) == 0
    found: list[int | None] = []

    def arrived() -> bool:
        found.extend(m.offset() for m in member.log.fetch(100, 0.1).messages.get(place, ()))
        return bool(found)

    wait_until(arrived, "the next record")
    assert found == [12]
