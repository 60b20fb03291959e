from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from eosframework.application.control_topic import ControlState, ControlTopic, interpret
from eosframework.application.leases import given_ids, id_entries, refuse_moved_ids, task_names
from eosframework.application.start_positions import StartPositions
from eosframework.config import Start
from eosframework.errors import (
    ClusterUnreachable,
    DatabaseUnusable,
    Retriable,
    RunError,
    StartRefused,
)
from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.records import Position
from eosframework.txnid import DerivedIds, TransactionalId
from tests.support.applications.graphs import graph_of

GRAPH = graph_of("flights", {"late": (["raw"], ["late"])})
NAMES = task_names(GRAPH, {"raw": 2})
LEASED = [TransactionalId("flights", "late", n, id_) for n, id_ in enumerate(["TX/A", "TX B"])]
STARTED = {"application": {"cluster_id": "c", "version": 1}}
NOTED = id_entries(LEASED, ControlState())


class AwayIds(DerivedIds):
    def ids(self, tasks: Sequence[TransactionalId]) -> list[TransactionalId]:
        raise DatabaseUnusable("could not connect")


@dataclass
class Pages:
    """A control topic that shows one state after the other."""

    pages: list[dict[str, Any]]
    topic: str = "flights-control"
    state: ControlState = field(default_factory=ControlState)

    def refresh(self) -> ControlState:
        if not self.pages:
            raise ClusterUnreachable("no broker answered")
        self.state = interpret(self.pages.pop(0))
        return self.state

    settled = refresh


def ledger(start: dict[str, Any], *pages: dict[str, Any], members: Sequence[str] = ()) -> Any:
    control_topic = cast("ControlTopic", Pages(list(pages), state=interpret(start)))
    group = GroupDescription(tuple(members), None, tuple(None for _ in members))
    return StartPositions("flights", control_topic, Start.EARLIEST, members=lambda: group)


def test_noted_leases_are_written_once_and_derived_ids_never() -> None:
    assert NOTED
    assert id_entries(LEASED, interpret(NOTED)) == {}
    assert id_entries(NAMES, ControlState()) == {}


def test_an_unavailable_database_is_not_needed_where_the_control_topic_has_every_id() -> None:
    assert given_ids(AwayIds(), NAMES, interpret(NOTED)) == LEASED
    with pytest.raises(DatabaseUnusable):
        given_ids(AwayIds(), NAMES, interpret(id_entries(LEASED[:1], ControlState())))


def test_leases_that_were_noted_before_a_release_are_void() -> None:
    """A start that was suspended before its note writes it after the release."""
    released = interpret({**NOTED, "released": {"at": 1}})
    with pytest.raises(DatabaseUnusable):
        given_ids(AwayIds(), NAMES, released)
    swapped = [TransactionalId("flights", "late", n, str(LEASED[1 - n])) for n in range(2)]
    refuse_moved_ids(swapped, released)
    again = id_entries(swapped, released)
    assert given_ids(AwayIds(), NAMES, interpret({**released.entries, **again})) == swapped


def test_an_id_that_was_moved_without_a_release_is_refused() -> None:
    swapped = [TransactionalId("flights", "late", n, str(LEASED[1 - n])) for n in range(2)]
    refuse_moved_ids(LEASED, interpret(NOTED))
    with pytest.raises(StartRefused, match=r"TX B is leased to late/0.*as the id of late/1"):
        refuse_moved_ids(swapped, interpret(NOTED))


def test_a_control_topic_whose_broker_was_just_lost_is_read_again_later() -> None:
    new = Position("raw", 0, None)
    with pytest.raises(Retriable, match="no broker answered"):
        ledger(NOTED).starting_positions([new], cast("Any", None))


def test_a_worker_whose_ids_were_released_since_its_start_takes_nothing_over() -> None:
    ledger(NOTED, NOTED).confirm_start()
    with pytest.raises(RunError, match="leased ids of application 'flights' were released"):
        ledger(NOTED, {**NOTED, "released": {"at": 1}}).confirm_start()


@pytest.mark.parametrize("mark", [{"released": {"at": 1}}, {"reset": {"done_at": 1}}])
def test_a_mark_that_a_start_reads_after_it_got_its_ids_ends_the_worker(
    mark: dict[str, Any],
) -> None:
    """The start reads the control topic once more after it has written its entries."""
    later = {**NOTED, **mark}
    page = cast("ControlTopic", Pages([later], state=interpret(later)))
    judged = StartPositions("flights", page, Start.EARLIEST, judged=interpret(NOTED))
    with pytest.raises(RunError, match="after this worker had started"):
        judged.confirm_start()


def test_a_worker_that_was_no_member_while_its_application_was_reset_takes_nothing_over() -> None:
    before, reset = ({**STARTED, "reset": {"done_at": moment}} for moment in (1, 2))
    ledger(before, before).confirm_start()
    for page in (reset, {**STARTED, "reset": {"begun_at": 2}}):
        with pytest.raises(RunError, match="was reset after this worker had started"):
            ledger(before, page).confirm_start()
    with pytest.raises(Retriable, match="no broker answered"):
        ledger(before).confirm_start()


def test_a_takeover_ends_beside_a_member_that_is_no_worker() -> None:
    ledger(STARTED, members=["eosframework-consumer.worker", "mine.worker"]).confirm_members()
    with pytest.raises(RunError, match=r"client.id kcat is a member .* and is no worker"):
        ledger(STARTED, members=["eosframework-consumer.worker", "kcat"]).confirm_members()
