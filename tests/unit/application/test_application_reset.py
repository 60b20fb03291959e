"""Ids that a reset fences, and starts that an unfinished reset refuses."""

from __future__ import annotations

import pytest

from eosframework.application.application_reset import refuse_unfinished_reset
from eosframework.application.control_topic import interpret
from eosframework.application.fencing import all_ids, live_ids
from eosframework.errors import StartRefused
from tests.support.applications.graphs import graph_of

GRAPH = graph_of("flights", {"late": (["raw"], ["late"])})


def test_every_id_under_which_it_ever_wrote_is_fenced() -> None:
    registered = interpret(
        {
            "topic/raw": {"topic_id": "id", "partitions": 1},
            "topic/gone": {"topic_id": "id", "partitions": 2},
            "owner/raw/late": {},
            "owner/raw/early": {},
            "owner/gone/early": {},
            "leased/raw/0/TX 7": {"application": "flights", "sub_topology": "late"},
            "backfill/history": {},
            "backfill/history/ends/raw": [1],
            "backfill/history/task/late/3": {},
            "relay/orders": {},
        }
    )
    live = (
        "TX 7",
        "flights:backfill.history:0",
        "flights:early:0",
        "flights:early:1",
        "flights:late:0",
        "flights:late:1",
    )
    assert live_ids(GRAPH, registered, {"raw": 2}) == live
    others = ("flights:backfill.history.late:3", "flights:replay.dead_letters:0")
    assert all_ids(GRAPH, registered, {"raw": 2}) == tuple(sorted([*live, *others]))


def test_ids_that_are_leased_are_fenced_without_derived_ones_that_no_worker_has_recorded() -> None:
    leased = {
        "ids": {"from": "leased"},
        "topic/raw": {"topic_id": "id", "partitions": 2},
        "leased/raw/0/TX 7": {"application": "flights", "sub_topology": "late"},
    }
    assert live_ids(GRAPH, interpret(leased), {"raw": 2}) == ("TX 7",)
    before = {"owner/raw/early": {}, "sharing/2": {}}
    assert live_ids(GRAPH, interpret(leased | before), {"raw": 2}) == (
        "TX 7",
        "flights:early:0",
        "flights:early:0..1",
        "flights:early:1",
    )


def test_nothing_starts_before_a_reset_is_through() -> None:
    refuse_unfinished_reset("flights", interpret({"reset": {"done_at": 1}}))
    with pytest.raises(StartRefused, match="eosframework reset APP"):
        refuse_unfinished_reset("flights", interpret({"reset": {"begun_at": 1}}))
