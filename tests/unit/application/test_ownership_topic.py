"""An ownership topic that is another one now, and the access that it needs."""

from __future__ import annotations

import pytest

from eosframework.application.control_topic import ControlState, interpret
from eosframework.application.needed_access import ownership_access, worker_access
from eosframework.application.ownership_topic import ownership_entry, refuse_lost_ownership
from eosframework.config import Settings
from eosframework.errors import StartRefused
from tests.support.applications.graphs import graph_of

GRAPH = graph_of("flights", {"late": (["raw"], ["late"])})


def test_an_ownership_topic_that_was_made_anew_is_refused() -> None:
    known = interpret(ownership_entry("id-1"))
    refuse_lost_ownership(known, "id-1", "flights-ownership")
    refuse_lost_ownership(ControlState(), None, "flights-ownership")
    for found in ("id-2", None):
        with pytest.raises(StartRefused, match="ids that may still write are unknown") as error:
            refuse_lost_ownership(known, found, "flights-ownership")
        assert "id-1" in str(error.value)
        assert "eosframework apply APP" in str(error.value)


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        ({"ids": "worker"}, True),
        ({"ids": "partition"}, True),
        ({"ids": "leased"}, True),
        ({"guarantee": "at_least_once"}, False),
    ],
)
def test_a_worker_with_transactions_needs_access_to_the_topic(
    worker: dict[str, str], expected: bool
) -> None:
    settings = Settings.model_validate({"worker": worker})
    access = worker_access(GRAPH, settings, ["raw"], ["late"])
    assert (ownership_access("flights") in access) is expected
