"""The expectations of recorded ownership of its topic, in memory and on real Kafka."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eosframework.application.ownership_topic import SETTINGS, OwnershipTopic
from eosframework.config import KafkaSettings
from eosframework.errors import RunError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.testing.memory_kafka import MemoryOwnership
from eosframework.transactions.ownership import OwnershipLog
from tests.support.processes.waiting import wait_until

Open = Callable[[], OwnershipLog]
"""Opens the same topic once more, as another process does."""


@pytest.fixture(params=["memory", "kafka"])
def opened(request: pytest.FixtureRequest, unique_name: Callable[[str], str]) -> Iterator[Open]:
    if request.param == "memory":
        only = MemoryOwnership()
        yield lambda: only
        return
    kafka: Any = request.getfixturevalue("kafka")
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    name = unique_name("ownership")
    made = OwnershipTopic(name, settings, ClusterAdmin(settings))
    assert made.ensure() == made.ensure()
    yield lambda: OwnershipTopic(name, settings, ClusterAdmin(settings))


def test_an_acknowledged_entry_is_read_by_every_process(opened: Open) -> None:
    one, other = opened(), opened()
    assert dict(other.read()) == {}
    one.write({b"a": b"1", b"b": b"2"})
    assert {key: value for key, (_, value) in other.read().items()} == {b"a": b"1", b"b": b"2"}


def test_offsets_are_the_order_in_which_entries_were_acknowledged(opened: Open) -> None:
    one, other = opened(), opened()
    one.write({b"z": b"1"})
    other.write({b"m": b"2"})
    one.write({b"a": b"3"})
    offsets = {key: offset for key, (offset, _) in opened().read().items()}
    assert offsets[b"z"] < offsets[b"m"] < offsets[b"a"]


def test_a_removed_entry_is_gone_for_those_that_read_before_and_for_later_ones(
    opened: Open,
) -> None:
    one, other = opened(), opened()
    one.write({b"a": b"1", b"b": b"2"})
    before = {key: offset for key, (offset, _) in other.read().items()}
    one.write({b"a": None, b"never": None})
    for log in (other, opened()):
        assert {key: offset for key, (offset, _) in log.read().items()} == {b"b": before[b"b"]}


def test_nothing_to_write_is_no_request(opened: Open) -> None:
    opened().write({})
    assert dict(opened().read()) == {}


def test_a_topic_that_was_made_anew_ends_its_readers(
    kafka: Any, unique_name: Callable[[str], str]
) -> None:
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    name, admin = unique_name("ownership"), ClusterAdmin(settings)
    topic_id = OwnershipTopic(name, settings, admin).ensure()
    log = OwnershipTopic(name, settings, admin, recorded_id=lambda: topic_id)
    log.write({b"a": b"1"})
    assert list(log.read()) == [b"a"]
    found = admin.describe_topics([log.topic])[log.topic]
    assert SETTINGS.items() <= dict(found.values or {}).items()
    admin.delete_topics([log.topic])
    wait_until(lambda: not admin.describe_topics([log.topic])[log.topic].exists, "its end")
    with pytest.raises(RunError, match=re.escape(f"found id none, expected {topic_id}")):
        log.read()
    OwnershipTopic(name, settings, admin).ensure()
    with pytest.raises(RunError, match="the ids that may still write are unknown"):
        log.read()
