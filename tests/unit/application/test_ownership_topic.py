"""Who asks for entries of ownership, who must know them, and a topic that is another one now."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

from eosframework.application.control_topic import ControlState, ControlTopic, interpret
from eosframework.application.fencing import live_ids
from eosframework.application.leases import id_entries, task_names
from eosframework.application.needed_access import ownership_access, worker_access
from eosframework.application.ownership_stop import refuse_unfinished_stop
from eosframework.application.ownership_topic import (
    entries,
    refuse_lost_ownership,
    refuse_members_with_blocks,
    refuse_silent_members,
    stopping_entries,
    unrecorded_ids,
)
from eosframework.application.start_positions import StartPositions, former_ids
from eosframework.config import Ids, Settings, Start
from eosframework.errors import ConfigurationError, RunError, StartRefused
from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.kafka.consumer.group import (
    has_blocks,
    recording_client_id,
    records_ownership,
)
from eosframework.records import TopicPartition
from eosframework.txnid import TransactionalId
from tests.support.applications.graphs import graph_of

GRAPH = graph_of("flights", {"late": (["raw"], ["late"])})
NAMES = task_names(GRAPH, {"raw": 2})
STARTED = {"application": {"cluster_id": "c", "version": 1}, "owner/raw/late": {}}
ASKED = STARTED | entries("id-1", fenced=True)
NEW, OLD = recording_client_id("eosframework-consumer"), "eosframework-consumer"
BY_TASK = {TransactionalId.make("flights", "late", 0): [TopicPartition("raw", 0)]}


class Page:
    """A control topic whose entries were read to their end."""

    topic = "flights-control"

    def __init__(self, found: dict[str, Any]) -> None:
        self.entries = dict(found)

    @property
    def state(self) -> ControlState:
        return interpret(self.entries)

    def refresh(self) -> ControlState:
        return self.state

    def write(self, found: dict[str, Any]) -> None:
        self.entries |= found


def ledger(page: Page, *clients: str, own_id: bool = True) -> StartPositions:
    return StartPositions(
        "flights",
        cast("ControlTopic", page),
        Start.EARLIEST,
        members=lambda: GroupDescription(clients, None, tuple(None for _ in clients)),
        has_own_id=own_id,
    )


def test_the_request_is_read_back_and_ids_stay_derived() -> None:
    state = interpret(ASKED)
    assert state.ids is Ids.DERIVED
    assert state.ownership is not None
    assert (state.ownership.topic_id, state.ownership.fenced) == ("id-1", True)
    assert interpret(STARTED).ownership is None
    assert "ids" not in id_entries(GRAPH, NAMES, state)


def test_versions_that_record_nothing_refuse_the_source_of_ids_and_show_the_way_back() -> None:
    """They read the entry with the sources that they know, and show 80 characters of it."""
    with pytest.raises(ValueError, match="recorded"):
        Ids(cast("dict[str, str]", ASKED["ids"])["from"])
    assert '"eosframework ids stop-recording APP"' in f"{orjson.dumps(ASKED['ids'])!r:.80}"


def test_no_worker_starts_while_the_end_of_recording_is_not_complete() -> None:
    refuse_unfinished_stop(interpret(STARTED))
    refuse_unfinished_stop(interpret(ASKED))
    for fenced in (False, True):
        with pytest.raises(StartRefused, match="finish it: eosframework ids stop-recording APP"):
            refuse_unfinished_stop(interpret(ASKED | stopping_entries("id-1", fenced=fenced)))


def test_after_recording_versions_that_record_nothing_find_a_source_that_they_know() -> None:
    after = unrecorded_ids(ASKED)
    assert Ids(cast("dict[str, str]", after["ids"])["from"]) is Ids.DERIVED
    assert unrecorded_ids(STARTED) == {}
    assert unrecorded_ids({"ids": {"from": "leased"}}) == {}


def test_a_worker_that_started_while_ids_were_recorded_takes_nothing_over_afterwards() -> None:
    ended = {key: value for key, value in ASKED.items() if key != "ownership"}
    for later in (ended, ASKED | stopping_entries("id-1", fenced=False)):
        page = Page(ASKED)
        positions = ledger(page, NEW)
        positions.confirm_start()
        page.entries = later
        with pytest.raises(RunError, match=r"stop-recording` was run after this worker had start"):
            positions.confirm_start()
    page = Page(STARTED)
    positions = ledger(page, NEW)
    page.entries = ASKED
    positions.confirm_start()


def test_an_ownership_topic_that_was_made_anew_is_refused() -> None:
    refuse_lost_ownership(interpret(ASKED), "id-1", "flights-ownership")
    refuse_lost_ownership(interpret(STARTED), None, "flights-ownership")
    for found in ("id-2", None):
        with pytest.raises(StartRefused, match="ids that may still write are unknown") as error:
            refuse_lost_ownership(interpret(ASKED), found, "flights-ownership")
        assert "id-1" in str(error.value)
        assert "eosframework apply APP" in str(error.value)


def test_a_member_that_records_nothing_is_refused() -> None:
    refuse_silent_members(GroupDescription((NEW, NEW), None, ("a", "b")))
    with pytest.raises(StartRefused, match=r"worker 'b' .*Upgrade all workers first"):
        refuse_silent_members(GroupDescription((NEW, OLD), None, ("a", "b")))


def test_a_takeover_ends_beside_a_member_that_records_nothing_and_its_ids_are_fenced_later() -> (
    None
):
    page = Page(ASKED)
    assert ledger(page, NEW).former_ids(BY_TASK) == []
    with pytest.raises(RunError, match="records no entries"):
        ledger(page, NEW, OLD).former_ids(BY_TASK)
    assert page.state.ownership is not None
    assert not page.state.ownership.fenced


@pytest.mark.parametrize(("producers", "expected"), [("worker", True), ("partition", False)])
def test_a_worker_with_an_id_of_its_own_needs_access_to_the_topic(
    producers: str, expected: bool
) -> None:
    settings = Settings.model_validate({"worker": {"producers": producers}})
    access = worker_access(GRAPH, settings, ["raw"], ["late"])
    assert (ownership_access("flights") in access) is expected


def test_leased_ids_of_before_are_inited_and_derived_ones_are_not() -> None:
    leased = {"leased/raw/0/TX-1": {"application": "flights", "sub_topology": "late"}}
    assert ledger(Page(ASKED | leased), NEW).former_ids(BY_TASK) == ["TX-1"]


@pytest.mark.parametrize("before", [NEW, OLD])
def test_a_member_with_blocks_of_an_earlier_version_is_refused_whatever_it_records(
    before: str,
) -> None:
    blocks = f"{before}.3-partitions-per-producer"
    assert has_blocks(blocks)
    assert records_ownership(blocks) is (before == NEW)
    refuse_members_with_blocks(GroupDescription((NEW, OLD), None, ("a", "b")))
    with pytest.raises(StartRefused) as refused:
        refuse_members_with_blocks(GroupDescription((NEW, blocks, blocks), None, ("a", "b", "c")))
    assert str(refused.value) == (
        "worker 'b', worker 'c' in the same group runs an earlier version of eosframework with "
        "worker.partitions_per_producer, which this version does not have: a partition would have "
        "two owners. Stop all workers of that version first; one that was killed counts until "
        "worker.session_timeout_seconds have passed"
    )


@pytest.mark.parametrize(
    ("numbers", "former"),
    [
        ([], []),
        ([1], []),
        ([2], ["flights:late:0..1"]),
        ([1, 2, 4], ["flights:late:0..1", "flights:late:0..3"]),
    ],
)
def test_ids_of_blocks_of_earlier_versions_are_fenced(
    numbers: list[int], former: list[str]
) -> None:
    page = Page(STARTED | {f"sharing/{number}": {} for number in numbers})
    assert former_ids(page.state, BY_TASK) == former
    assert ledger(page, NEW, own_id=False).former_ids(BY_TASK) == former
    assert set(former) <= set(live_ids(GRAPH, page.state, {"raw": 2})), "S2, before own ids"


def test_beside_ids_of_blocks_those_of_single_partitions_are_fenced() -> None:
    """An earlier version had an entry for single partitions as well; this one writes none."""
    control = interpret({**STARTED, "owner/raw/early": {}, "sharing/2": {}})
    expected = ["flights:early:0", "flights:early:0..1", "flights:late:0..1"]
    assert former_ids(control, BY_TASK) == expected


@pytest.mark.parametrize("other", [{"ids": "leased"}, {"guarantee": "at_least_once"}])
def test_a_worker_with_one_producer_is_refused_with_settings_that_cannot_share(
    other: dict[str, Any],
) -> None:
    with pytest.raises((ValueError, ConfigurationError), match="producers=worker needs"):
        Settings.model_validate({"worker": {"producers": "worker", **other}})
