"""Only a worker that the coordinator names is an owner, by a description that is a second old."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from eosframework.application.monitoring.owners import CONFIRMED_SECONDS, Owner, Owners
from eosframework.application.monitoring.shared_answers import AskingThread, SharedAnswer
from eosframework.errors import ClusterUnreachable, RunError, StoreNotReady
from eosframework.kafka.admin.metadata import GroupDescription, GroupMember
from eosframework.records import TopicPartition

SOURCES = {"counted": ["left", "right"]}


def member(name: str, member_id: str, *partitions: TopicPartition) -> GroupMember:
    return GroupMember(name, "127.0.0.1", partitions, member_id)


def both(*numbers: int) -> Iterable[TopicPartition]:
    return (TopicPartition(topic, n) for topic in ("left", "right") for n in numbers)


class Group:
    """A group as its coordinator describes it, and a clock."""

    def __init__(self, *members: GroupMember) -> None:
        self.members = members
        self.is_stable = True
        self.addresses = {"two": "b:1"}
        self.asked = 0
        self.read = 0
        self.time = 100.0
        self.owners = Owners(
            "one", SOURCES, self._describe, self._read, lambda job: job(), lambda: self.time
        )

    def _describe(self) -> GroupDescription:
        self.asked += 1
        return GroupDescription(members=self.members, is_stable=self.is_stable)

    def _read(self) -> dict[str, str]:
        self.read += 1
        return dict(self.addresses)

    def confirms(self, member_id: str, *partitions: int) -> bool:
        try:
            self.owners.confirm(member_id, "counted", partitions)
        except StoreNotReady:
            return False
        return True


def test_a_member_is_confirmed_for_what_it_is_assigned_and_asked_for_once_a_second() -> None:
    group = Group(member("one", "m1", *both(0, 1)), member("two", "m2", *both(2)))
    assert group.confirms("m1", 0, 1)
    assert group.confirms("m1", 0)
    assert group.asked == 1
    group.time += CONFIRMED_SECONDS + 0.01
    assert group.confirms("m1", 0)
    assert group.asked == 2
    assert not group.confirms("m1", 0, 2)
    assert not group.confirms("m2", 0)
    assert not group.confirms("", 0)


def test_a_worker_that_lost_its_partition_is_confirmed_for_a_second_at_most() -> None:
    group = Group(member("one", "m1", *both(0)))
    assert group.confirms("m1", 0)
    group.members = (member("two", "m2", *both(0)),)
    group.time += CONFIRMED_SECONDS
    assert group.confirms("m1", 0)
    group.time += 0.01
    assert not group.confirms("m1", 0)


def test_a_refusal_is_never_one_of_an_old_description() -> None:
    group = Group(member("two", "m2", *both(0)))
    assert not group.confirms("m1", 0)
    group.members = (member("one", "m1", *both(0)),)
    group.time += 0.01
    assert group.confirms("m1", 0)
    group.is_stable = False
    group.time += 2
    assert not group.confirms("m1", 0)
    with pytest.raises(StoreNotReady, match="no worker has partition 0"):
        group.owners.owner("counted", 0)
    group.is_stable = True
    group.time += 0.01
    assert group.owners.owner("counted", 0) == Owner("one", None)


def test_a_task_whose_sources_are_with_two_members_has_no_owner() -> None:
    left, right = both(0)
    group = Group(member("one", "m1", left), member("two", "m2", right))
    assert not group.confirms("m1", 0)
    group.time += 0.01
    group.members = (member("one", "m1", left),)  # the other topic has fewer partitions
    assert group.confirms("m1", 0)


def test_addresses_are_read_once_until_one_is_missing_or_was_wrong() -> None:
    group = Group(member("two", "m2", *both(0)), member("three", "m3", *both(1)))
    assert group.owners.owner("counted", 0) == Owner("two", "b:1")
    group.time += 60
    assert group.owners.owner("counted", 0) == Owner("two", "b:1")
    assert group.read == 1
    assert group.owners.owner("counted", 1) == Owner("three", None)
    group.addresses = {"two": "b:2", "three": "c:1"}
    assert group.owners.owner("counted", 1) == Owner("three", None)
    assert group.read == 2
    group.time += CONFIRMED_SECONDS + 0.01
    assert group.owners.owner("counted", 1) == Owner("three", "c:1")
    group.addresses = {"two": "b:3"}
    group.time += 1
    assert group.owners.owner("counted", 0, since=group.time) == Owner("two", "b:3")


def test_threads_that_ask_at_the_same_time_share_a_request() -> None:
    held, asked, got = threading.Event(), list[int](), list[int]()
    thread = AskingThread()

    def ask() -> int:
        held.wait(10)
        asked.append(1)
        return len(asked)

    answer = SharedAnswer(ask, thread.run)
    waiting = [threading.Thread(target=lambda: got.append(answer.since(0, 10))) for _ in range(5)]
    for each in waiting:
        each.start()
    held.set()
    for each in waiting:
        each.join()
    thread.stop()
    assert (asked, got) == ([1], [1] * 5)


def test_a_request_without_an_answer_in_time_and_one_that_fails_are_errors() -> None:
    thread, held = AskingThread(), threading.Event()

    def ask() -> int:
        held.wait(10)
        raise RunError("denied")

    answer = SharedAnswer(ask, thread.run)
    with pytest.raises(ClusterUnreachable, match=r"no answer in 0\.05 s"):
        answer.since(0, 0.05)
    held.set()
    with pytest.raises(RunError, match="denied"):
        answer.since(0, 10)
    thread.stop()
