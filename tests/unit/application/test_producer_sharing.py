"""Members of a group agree on how many partitions share a producer, or do not process."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eosframework.application.control_topic import ControlState, ControlTopic, interpret
from eosframework.application.leases import task_names
from eosframework.application.producer_sharing import (
    refuse_other_sharing,
    require_same_sharing,
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
from eosframework.kafka.admin.metadata import GroupDescription
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


def group(**numbers: int) -> GroupDescription:
    """A group with members of these instance names and numbers."""
    clients = [sharing_client_id("eosframework-consumer", number) for number in numbers.values()]
    return GroupDescription(tuple(clients), None, tuple(numbers))


def ledger(entries: dict[str, Any], members: Any = GroupDescription) -> StartPositions:
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
    running = group(a=4, b=4)
    refuse_other_sharing(4, running)
    refuse_other_sharing(8, GroupDescription())
    with pytest.raises(StartRefused) as refused:
        refuse_other_sharing(8, running)
    assert str(refused.value) == (
        "worker.partitions_per_producer=8 in the settings of this process, and 4 in those of "
        "worker 'a', worker 'b', in the same group: a partition would have two owners. Give all of "
        "them the same worker.partitions_per_producer (--config, --set); or, to change it, stop "
        "all workers first (one that was killed counts until worker.session_timeout_seconds have "
        "passed)"
    )
    with pytest.raises(StartRefused, match="and 1 in those of worker 'eosframework-consumer'"):
        refuse_other_sharing(8, GroupDescription(("eosframework-consumer",), None, (None,)))


def test_a_cutover_is_named_as_one_and_not_as_a_worker() -> None:
    running = group(**{"cutover.history": 1})
    with pytest.raises(StartRefused, match=r"and 1 in those of the cutover of job 'history', in"):
        refuse_other_sharing(2, running)
    with pytest.raises(RunError, match="Start this process again once the cutover has ended"):
        require_same_sharing(2, running)
    refuse_other_sharing(1, running)


def test_two_that_start_at_once_with_other_numbers_take_nothing_over() -> None:
    members = group(a=2, b=1)
    with pytest.raises(RunError, match="nothing was processed here"):
        ledger(STARTED, lambda: members).former_ids(by_task(2))
    ledger(STARTED, lambda: group(a=2)).former_ids(by_task(2))


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
    members = group(a=now)
    assert ledger(written([*numbers, now]), lambda: members).former_ids(by_task(now)) == former


def test_nothing_is_remembered_where_partitions_never_shared() -> None:
    assert not [key for key in written([1, 1]) if key.startswith("sharing")]


@pytest.mark.parametrize("other", [{"ids": "leased"}, {"guarantee": "at_least_once"}])
def test_what_cannot_share_is_refused_by_name(other: dict[str, str]) -> None:
    with pytest.raises((ConfigurationError, ValueError), match="partitions_per_producer=2 needs"):
        Settings.model_validate({"worker": {"partitions_per_producer": 2, **other}})
