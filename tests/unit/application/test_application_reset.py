"""Ids that a reset fences, and starts that an unfinished reset refuses."""

from __future__ import annotations

import pytest

from eosframework.application.application_reset import refuse_unfinished_reset
from eosframework.application.control_topic import interpret
from eosframework.application.fencing import all_but_owners, cutovers
from eosframework.errors import StartRefused
from tests.support.applications.graphs import graph_of

GRAPH = graph_of("flights", {"late": (["raw"], ["late"])})


def test_every_id_that_has_no_entry_of_ownership_is_fenced() -> None:
    control = interpret(
        {
            "topic/raw": {"topic_id": "id", "partitions": 1},
            "backfill/history": {},
            "backfill/history/ends/raw": [1],
            "backfill/history/task/late/3": {},
            "relay/orders": {},
        }
    )
    assert cutovers(GRAPH, control) == {"flights:backfill.history:0"}
    others = {"flights:backfill.history.late:3", "flights:replay.dead_letters:0"}
    assert all_but_owners(GRAPH, control) == cutovers(GRAPH, control) | others


def test_nothing_starts_before_a_reset_is_through() -> None:
    refuse_unfinished_reset("flights", interpret({"reset": {"done_at": 1}}))
    with pytest.raises(StartRefused, match="eosframework reset APP"):
        refuse_unfinished_reset("flights", interpret({"reset": {"begun_at": 1}}))
