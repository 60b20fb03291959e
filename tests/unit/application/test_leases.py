from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from eosframework.application.control_topic import ControlState, ControlTopic, interpret
from eosframework.application.leases import (
    given_ids,
    id_entries,
    refuse_changing_ids,
    refuse_moved_ids,
    refuse_other_ids,
    task_names,
)
from eosframework.application.start_positions import StartPositions
from eosframework.config import Ids, Start
from eosframework.errors import (
    ClusterUnreachable,
    DatabaseUnusable,
    Retriable,
    RunError,
    StartRefused,
)
from eosframework.records import Position, TopicPartition
from eosframework.txnid import DerivedIds, TransactionalId
from tests.support.applications.graphs import graph_of

GRAPH = graph_of("flights", {"late": (["raw"], ["late"])})
NAMES = task_names(GRAPH, {"raw": 2})
LEASED = [TransactionalId("flights", "late", n, id_) for n, id_ in enumerate(["TX/A", "TX B"])]
STARTED = {"application": {"cluster_id": "c", "version": 1}}
WRITTEN = id_entries(GRAPH, LEASED, ControlState())
BY_TASK = {LEASED[1]: [TopicPartition("raw", 1)]}


class AwayIds(DerivedIds):
    def ids(self, tasks: Sequence[TransactionalId]) -> list[TransactionalId]:
        raise DatabaseUnusable("could not connect")


@dataclass
class Pages:
    """A registry that shows one state after the other."""

    pages: list[dict[str, Any]]
    topic: str = "flights-control"
    state: ControlState = field(default_factory=ControlState)

    def refresh(self) -> ControlState:
        if not self.pages:
            raise ClusterUnreachable("no broker answered")
        self.state = interpret(self.pages.pop(0))
        return self.state

    settled = refresh


def ledger(start: dict[str, Any], *pages: dict[str, Any]) -> StartPositions:
    registry = cast("ControlTopic", Pages(list(pages), state=interpret(start)))
    return StartPositions("flights", registry, Start.EARLIEST)


def test_what_is_written_of_leases_reads_back() -> None:
    registered = interpret(WRITTEN)
    assert registered.leased == {TopicPartition("raw", n): (LEASED[n],) for n in range(2)}
    assert registered.ids is Ids.LEASED
    assert id_entries(GRAPH, LEASED, registered) == {}


def test_derived_ids_leave_no_trace_but_after_leased_ones() -> None:
    assert id_entries(GRAPH, NAMES, ControlState()) == {}
    back = id_entries(GRAPH, NAMES, interpret(WRITTEN))
    assert interpret({**WRITTEN, **back}).ids is Ids.DERIVED


def test_a_database_that_is_away_is_not_needed_where_the_registry_knows_every_id() -> None:
    assert given_ids(AwayIds(), NAMES, interpret(WRITTEN)) == LEASED
    partly = {key: value for key, value in WRITTEN.items() if "raw/1" not in key}
    with pytest.raises(DatabaseUnusable):
        given_ids(AwayIds(), NAMES, interpret(partly))


@pytest.mark.parametrize(("ids", "before"), [(Ids.DERIVED, WRITTEN), (Ids.LEASED, {})])
def test_ids_from_elsewhere_wait_until_no_worker_runs(ids: Ids, before: dict[str, Any]) -> None:
    registered = interpret({**STARTED, **before})
    with pytest.raises(StartRefused, match="Stop all workers first"):
        refuse_changing_ids(ids, registered, ["eosframework-consumer"])
    refuse_changing_ids(ids, registered, [])
    refuse_changing_ids(registered.ids, registered, ["eosframework-consumer"])


def test_an_id_that_was_moved_behind_the_registrys_back_is_refused() -> None:
    swapped = [TransactionalId("flights", "late", n, str(LEASED[1 - n])) for n in range(2)]
    refuse_moved_ids(GRAPH, LEASED, interpret(WRITTEN))
    with pytest.raises(StartRefused, match=r"TX B is leased to late\[0\].*as the id of late\[1\]"):
        refuse_moved_ids(GRAPH, swapped, interpret(WRITTEN))


def test_ids_that_were_released_while_a_worker_started_refuse_its_start() -> None:
    refuse_other_ids(LEASED, LEASED)
    with pytest.raises(StartRefused, match=r"TX/A .* was released while"):
        refuse_other_ids(LEASED, list(reversed(LEASED)))


def test_a_registry_whose_broker_was_just_lost_is_read_again_later() -> None:
    new = Position("raw", 0, None)
    with pytest.raises(Retriable, match="no broker answered"):
        ledger(WRITTEN).starting_positions([new], cast("Any", None))


def test_a_task_whose_id_was_released_since_the_start_is_not_taken_over() -> None:
    released = {key: value for key, value in WRITTEN.items() if "TX B" not in key}
    with pytest.raises(RunError, match=r"TX B of raw\[1\] was released"):
        ledger(WRITTEN, released).confirm_ids(BY_TASK)
    ledger(WRITTEN, WRITTEN).confirm_ids(BY_TASK)


def test_a_lease_that_an_open_transaction_hides_is_waited_for() -> None:
    watching = ledger(STARTED, STARTED, WRITTEN, STARTED)
    with pytest.raises(Retriable, match="does not show yet"):
        watching.confirm_ids(BY_TASK)
    watching.confirm_ids(BY_TASK)
    with pytest.raises(RunError, match="was released"):
        watching.confirm_ids(BY_TASK)


def test_a_registry_that_cannot_be_read_is_asked_again() -> None:
    with pytest.raises(Retriable, match="no broker answered"):
        ledger(WRITTEN).confirm_ids(BY_TASK)


def test_derived_ids_need_no_look_at_the_registry() -> None:
    ledger(STARTED).confirm_ids({NAMES[0]: [TopicPartition("raw", 0)]})


def test_a_worker_that_was_no_member_while_its_application_was_reset_takes_nothing_over() -> None:
    before, reset = ({**STARTED, "reset": {"done_at": moment}} for moment in (1, 2))
    ledger(before, before).confirm_start()
    for page in (reset, {**STARTED, "reset": {"begun_at": 2}}):
        with pytest.raises(RunError, match="was reset after this worker had started"):
            ledger(before, page).confirm_start()
    with pytest.raises(Retriable, match="no broker answered"):
        ledger(before).confirm_start()
