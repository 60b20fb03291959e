"""Members of a group agree on how many partitions share a producer, or do not process."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eosframework.application.control_topic import ControlState, ControlTopic, interpret
from eosframework.application.leases import task_names
from eosframework.application.producer_sharing import (
    refuse_other_sharing,
    shared_by,
    sharing_entries,
)
from eosframework.application.start_positions import StartPositions, former_ids
from eosframework.config import Settings, Start
from eosframework.errors import (
    ClusterUnreachable,
    ConfigurationError,
    Retriable,
    RunError,
    StartRefused,
)
from eosframework.kafka.consumer.group import sharing_client_id
from eosframework.records import TopicPartition
from eosframework.txnid import DerivedIds
from tests.support.applications.graphs import graph_of

GRAPH = graph_of("flights", {"late": (["raw"], ["late"])})
NAMES = task_names(GRAPH, {"raw": 4})
STARTED = {"application": {"cluster_id": "c", "version": 1}, "owner/raw/late": {}}


class Page:
    """A registry whose entries were read to their end."""

    topic = "flights-control"

    def __init__(self, entries: dict[str, Any]) -> None:
        self.state = interpret(entries)

    def refresh(self) -> ControlState:
        return self.state

    settled = refresh


def ledger(entries: dict[str, Any], members: Any = tuple) -> StartPositions:
    registry = cast("ControlTopic", Page(entries))
    return StartPositions("flights", registry, Start.EARLIEST, members=members)


def by_task(together: int) -> dict[Any, list[TopicPartition]]:
    tasks = DerivedIds(together).ids(NAMES)
    return {task: [TopicPartition("raw", task.partition)] for task in tasks[:2]}


def written(numbers: list[int]) -> dict[str, Any]:
    """The registry after starts with these numbers, one after the other."""
    entries: dict[str, Any] = {}
    for number in numbers:
        entries = {**entries, **sharing_entries(number, interpret(entries)), **STARTED}
    return entries


@pytest.mark.parametrize("number", [1, 2, 64])
def test_a_client_id_tells_how_many_partitions_share_a_producer(number: int) -> None:
    assert shared_by(sharing_client_id("eosframework-consumer", number)) == number


def test_workers_that_count_otherwise_are_refused_while_others_run() -> None:
    running = [sharing_client_id("eosframework-consumer", number) for number in (4, 4)]
    refuse_other_sharing(4, running)
    refuse_other_sharing(8, [])
    with pytest.raises(StartRefused, match="run with 4: a partition would have two owners"):
        refuse_other_sharing(8, running)
    with pytest.raises(StartRefused, match="run with 1"):
        refuse_other_sharing(8, ["eosframework-consumer"])


def test_two_that_start_at_once_with_other_numbers_take_nothing_over() -> None:
    members = [sharing_client_id("eosframework-consumer", n) for n in (2, 1)]
    with pytest.raises(RunError, match="nothing was processed here"):
        ledger(STARTED, lambda: members).former_ids(by_task(2))
    ledger(STARTED, lambda: members[:1]).former_ids(by_task(2))


def test_members_that_cannot_be_asked_are_asked_again() -> None:
    def away() -> Any:
        raise ClusterUnreachable("no broker answered")

    with pytest.raises(Retriable, match="no broker answered"):
        ledger(STARTED, away).former_ids(by_task(2))
    ledger(STARTED, away).former_ids(by_task(1))


@pytest.mark.parametrize(
    ("numbers", "now", "former"),
    [
        ([1], 1, []),
        ([1], 2, ["flights:late:0", "flights:late:1"]),
        ([2], 2, []),
        ([2], 1, ["flights:late:0..1"]),
        ([1, 2, 4], 1, ["flights:late:0..1", "flights:late:0..3"]),
        ([4, 2], 2, ["flights:late:0..3"]),
    ],
)
def test_a_takeover_fences_ids_of_every_number_there_was(
    numbers: list[int], now: int, former: list[str]
) -> None:
    assert former_ids(interpret(written([*numbers, now])), by_task(now)) == former
    members = [sharing_client_id("eosframework-consumer", now)]
    assert ledger(written([*numbers, now]), lambda: members).former_ids(by_task(now)) == former


def test_nothing_is_remembered_where_partitions_never_shared() -> None:
    assert not [key for key in written([1, 1]) if key.startswith("sharing")]


@pytest.mark.parametrize("other", [{"ids": "leased"}, {"guarantee": "at_least_once"}])
def test_what_cannot_share_is_refused_by_name(other: dict[str, str]) -> None:
    with pytest.raises((ConfigurationError, ValueError), match="partitions_per_producer=2 needs"):
        Settings.model_validate({"worker": {"partitions_per_producer": 2, **other}})
