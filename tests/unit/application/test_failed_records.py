"""Failed records: named until their partition is committed beyond them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eosframework.application.control_topic import ControlTopic, interpret
from eosframework.application.failed_records import (
    MESSAGE_CHARACTERS,
    failed_records,
    record_failure,
)
from eosframework.errors import ClusterUnreachable, RecordFailed
from eosframework.records import TopicPartition

PLACE = TopicPartition("orders.in", 3)
ERROR = RecordFailed(f"record {PLACE}@17 failed in step 'cents': KeyError: 'x'", offset=17)


class Topic:
    """Takes entries, or fails as an unreachable cluster does."""

    def __init__(self, error: Exception | None = None) -> None:
        self.entries: dict[str, Any] = {}
        self._error = error

    def write(self, entries: dict[str, Any]) -> None:
        if self._error is not None:
            raise self._error
        self.entries |= entries


def recorded(error: RecordFailed, topic: Topic) -> dict[str, Any]:
    record_failure(cast("ControlTopic", topic), error, "shop.one")
    return topic.entries


@pytest.mark.parametrize(("committed", "is_named"), [(None, True), (17, True), (18, False)])
def test_a_failure_counts_until_the_partition_is_committed_beyond_it(
    committed: int | None, is_named: bool
) -> None:
    control = interpret(recorded(ERROR, Topic()))
    found = list(failed_records(control, {PLACE: committed}))
    assert [failure.record for failure in found] == [f"{PLACE}@17"] * is_named
    assert all("KeyError: 'x'" in f.error and f.instance == "shop.one" for f in found)
    assert not list(failed_records(control, {})), "another topology reads the topic no more"


def test_a_later_failure_replaces_the_earlier_one_and_its_text_is_bounded() -> None:
    topic = Topic()
    recorded(ERROR, topic)
    recorded(RecordFailed(f"record {PLACE}@19 failed: " + "x" * 10_000, offset=19), topic)
    [failure] = failed_records(interpret(topic.entries), {PLACE: 19})
    assert failure.offset == 19
    assert len(failure.error) == MESSAGE_CHARACTERS


def test_a_cluster_that_does_not_take_it_hides_no_failure() -> None:
    assert recorded(ERROR, Topic(ClusterUnreachable("no broker answered"))) == {}
    assert recorded(RecordFailed("the database refuses a row", offset=1), Topic()) == {}
