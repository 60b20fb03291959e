"""What a reconciliation finds and does, on ports in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from eosframework.errors import DataRejected, OutcomeUnknown, RunError, StartRefused
from eosframework.postgres.outbox.reconciliation import Reconciler, described
from eosframework.postgres.outbox.relay_position import SentMessages
from tests.support.memory.scripted_kafka import MemoryOutputs
from tests.unit.postgres.outbox.memory import MemorySource, World

TEN = [str(number) for number in range(10)]


class MemorySentLog:
    """A SentLog over what the broker made visible."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.removed_before: dict[str, int] = {}

    def sent(self, since_by_topic: Mapping[str, int]) -> SentMessages:
        return SentMessages(frozenset(self.world.values), self.removed_before)


class Case:
    """A world in which a relay has sent ten messages, and its reconciler."""

    def __init__(self, *, shards: int = 1) -> None:
        self.world = World(shards=shards)
        self.world.table.publish(*TEN)
        self.world.caught_up(self.world.relay(keep_seconds=1000))
        self.sent_log = MemorySentLog(self.world)

    def reconciler(self, *, shards: int = 1) -> Reconciler:
        self.world.shards = shards
        self.source = MemorySource(self.world.table, self.world.clock, shards=shards)
        self.source.connect()
        return Reconciler(
            "relay",
            shards,
            self.source,
            MemoryOutputs(self.world.broker),
            self.world.journal,
            self.sent_log,
            self.world.destinations,
            wait=self.world.clock.pass_,
        )

    def settled(self, *, uncertain: bool = False, shards: int = 1) -> None:
        self.reconciler(shards=shards).settle(uncertain=uncertain)
        self.source.close()


def test_after_a_promotion_exactly_what_kafka_lacks_is_sent() -> None:
    case = Case()
    table = case.world.table
    table.origin = replace(table.origin, timeline=2)
    del table.rows[7:]
    table.last = 7
    table.publish("new")
    with pytest.raises(StartRefused):
        case.world.caught_up()
    comparison = case.reconciler().compare()
    assert (comparison.by, comparison.sent, comparison.missing) == ("kafka", 7, {"orders": 1})
    assert [shown["id"] for shown in described(comparison.first)] == ["new"]
    assert case.world.values == TEN
    case.source.close()
    case.settled()
    assert case.world.values == [*TEN, "new"]
    table.publish("x")
    case.world.caught_up()
    assert case.world.values == [*TEN, "new", "x"]


def test_a_changed_number_of_shards_is_told_by_the_positions() -> None:
    case = Case(shards=2)
    case.world.table.publish("a", lane=1)
    comparison = case.reconciler(shards=3).compare()
    assert (comparison.by, comparison.missing) == ("position", {"orders": 1})
    case.source.close()
    case.settled(shards=3)
    case.world.table.publish("b", lane=2)
    case.world.caught_up()
    assert case.world.values == [*TEN, "a", "b"]


def test_what_may_have_been_removed_is_sent_only_if_told_so() -> None:
    for uncertain, expected in ((False, TEN[1:]), (True, [*TEN[1:], "0"])):
        case = Case()
        case.world.table.origin = replace(case.world.table.origin, timeline=2)
        case.world.broker.visible = [o for o in case.world.broker.visible if o[1] != b"0"]
        case.sent_log.removed_before = {"orders": 100}
        comparison = case.reconciler().compare()
        assert comparison.uncertain == {"orders": 1}
        case.source.close()
        case.settled(uncertain=uncertain)
        assert case.world.values == expected


def test_a_relay_that_runs_is_in_the_way() -> None:
    case = Case()
    running = MemorySource(case.world.table, case.world.clock)
    running.connect()
    assert running.lock_shard(0)
    with pytest.raises(StartRefused, match="runs and holds shard 0"):
        case.reconciler().compare()


def test_what_was_not_finished_can_be_repeated() -> None:
    case = Case()
    case.world.table.origin = replace(case.world.table.origin, timeline=2)
    case.world.table.publish("new")
    case.world.broker.commit_faults += [(OutcomeUnknown("lost"), True)]
    with pytest.raises(RunError, match="repeat it"):
        case.settled()
    case.source.close()
    with pytest.raises(StartRefused):
        case.world.caught_up()
    case.settled()
    case.world.caught_up()
    assert case.world.values == [*TEN, "new"]


def test_a_relay_of_another_name_is_replaced_once_it_runs_no_more() -> None:
    case = Case()
    case.world.table.names = {"former"}
    case.world.table.publish("new")
    case.world.table.rivals_held = {("former", 0)}
    with pytest.raises(StartRefused, match="'former' runs on the same database"):
        case.settled()
    case.source.close()
    case.world.table.rivals_held = set()
    case.settled()
    assert case.world.values == [*TEN, "new"]
    assert case.world.table.names == set()


def test_a_shard_that_only_the_database_knows_is_held_as_well() -> None:
    """Its relay sleeps in its first commit, so Kafka shows no position of it."""
    case = Case()
    case.world.table.shards_taken = 2
    other = MemorySource(case.world.table, case.world.clock, shards=2)
    other.connect()
    assert other.lock_shard(1)
    with pytest.raises(StartRefused, match="runs and holds shard 1"):
        case.settled()
    other.close()
    case.source.close()
    case.settled()
    assert case.world.values == TEN


def test_messages_that_cannot_be_sent_are_set_aside_and_the_others_sent() -> None:
    world = Case()
    world.world.table.publish(*"abcdef")
    world.world.table.unreadable = {"b"}
    world.world.broker.deliver_fault = lambda output: (
        DataRejected("refused") if output[1] == b"e" else None
    )
    comparison = world.reconciler().settle(uncertain=False)
    assert (world.world.values[10:], sorted(world.world.table.set_aside)) == (
        list("acdf"),
        ["b", "e"],
    )
    assert comparison.refused == 2
