"""What a relay decides, on ports in memory; tests/faults shows that it holds on real ones."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest

from eosframework.config import OutboxRefusal
from eosframework.errors import (
    ClusterUnreachable,
    InstanceFenced,
    OutcomeUnknown,
    RunError,
    StartRefused,
    TaskFenced,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
)
from eosframework.postgres.outbox.relay_position import Origin, RelayPosition, position_key
from eosframework.postgres.outbox.sharding import fair_share, lane_of
from eosframework.transactions.ports import Output
from tests.unit.postgres.outbox.memory import REGISTRY, World

TEN = [str(number) for number in range(10)]


def test_everything_is_sent_once_and_a_successor_sends_only_what_is_new() -> None:
    world = World()
    world.table.publish(*TEN)
    world.caught_up()
    world.table.publish("x")
    world.caught_up()
    assert world.values == [*TEN, "x"]


def test_the_position_is_part_of_every_transaction() -> None:
    world = World()
    world.table.publish(*TEN)
    world.caught_up()
    assert world.broker.visible[-1][0] == REGISTRY
    assert world.position().through == 10


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("error", [OutcomeUnknown("lost"), TransactionAborted("no")])
def test_a_doubtful_commit_is_read_not_guessed(error: TransactionError, committed: bool) -> None:
    world = World()
    world.table.publish(*TEN)
    world.broker.commit_faults.append((error, committed))
    told = world.caught_up().view()
    assert world.values == TEN
    assert told.measured.written == {"orders": 10}
    assert told.counts.unknown_outcomes == isinstance(error, OutcomeUnknown)


def test_a_second_name_is_refused_and_one_that_sent_nothing_is_forgotten() -> None:
    world = World()
    world.destinations.no_topics = {"orders"}
    world.table.publish(*TEN)
    with pytest.raises(RunError, match="does not exist"):
        world.caught_up(world.relay(name="typo", on_refused=OutboxRefusal.FAIL))
    assert world.table.names == set()
    world.destinations.no_topics = set()
    world.caught_up()
    with pytest.raises(StartRefused, match="relayed under the name"):
        world.caught_up(world.relay(name="typo"))
    assert world.values == TEN
    world.caught_up()
    assert world.table.names == {"relay"}


def test_recovery_waits_for_a_cluster_that_is_away() -> None:
    world = World()
    world.table.publish(*TEN)
    world.broker.commit_faults.append((OutcomeUnknown("lost"), True))
    world.broker.recycle_faults += [OutcomeUnknown("away"), OutcomeUnknown("still away")]
    world.caught_up()
    assert world.values == TEN


def test_a_full_queue_delays_messages_and_neither_loses_nor_doubles_one() -> None:
    world = World()
    world.table.publish(*TEN)
    full = ["0", "1", "3", "9", "9"]

    def refuse(output: Output) -> Exception | None:
        value = (output[1] or b"").decode()
        if value not in full:
            return None
        full.remove(value)
        return BufferError("queue full")

    world.broker.produce_fault = refuse
    world.caught_up()
    assert world.values == TEN
    assert full == []


def test_transactions_grow_behind_a_backlog_and_shrink_when_it_is_gone() -> None:
    world = World()
    world.table.read_seconds = 0.03
    world.table.publish(*(str(n) for n in range(181)))
    relay = world.relay()
    world.caught_up(relay)
    # Reads of four messages at 0.03 s each that begin within 0.1, 0.2, 0.4, 0.5 and again 0.1 s.
    assert transactions(world) == [16, 28, 56, 68, 13]


def test_a_shard_with_a_backlog_leaves_others_their_part_of_a_transaction() -> None:
    world = World(shards=2)
    world.table.read_seconds = 0.01
    for lane in (0, 1):
        world.table.publish(*(str(n) for n in range(100)), lane=lane)
    world.caught_up()
    assert transactions(world)[:2] == [20, 20]


def transactions(world: World) -> list[int]:
    """How many messages each transaction held, the last one's position apart."""
    counts = [0]
    for output in world.broker.visible:
        if output[0] == REGISTRY:
            counts.append(0)
        else:
            counts[-1] += 1
    return [count for count in counts if count]


def test_what_no_broker_would_accept_ends_the_relay() -> None:
    world = World()
    world.table.publish("a")
    world.broker.commit_faults.append((TransactionFatal("fix it"), False))
    with pytest.raises(RunError, match="fix it"):
        world.caught_up()


def test_a_fenced_relay_that_still_holds_its_shard_goes_on() -> None:
    world = World()
    world.table.publish(*TEN)
    world.broker.commit_faults.append((TaskFenced("expired"), False))
    world.caught_up()
    assert world.values == TEN


def test_a_rival_on_another_database_ends_the_relay() -> None:
    world = World()
    world.table.publish(*TEN)
    world.broker.commit_faults += [(TaskFenced("rival"), False)] * 3
    with pytest.raises(InstanceFenced, match="another database"):
        world.caught_up()


def test_a_fenced_relay_that_lost_its_shard_stands_by() -> None:
    world = World()
    world.table.publish(*TEN)
    relay = world.relay()
    world.broker.commit_faults.append((TaskFenced("successor"), False))
    world.table.faults.append("holds")
    successor = world.relay()
    started: list[bool] = []

    def meanwhile() -> None:
        if not started:
            started.append(True)
            world.caught_up(successor)

    world.clock.on_pass = meanwhile
    world.caught_up(relay)
    assert world.values == TEN
    assert relay.counts.messages == 0


@pytest.mark.parametrize("call", ["relays", "hold", "look", "read", "clean"])
def test_a_lost_session_gives_everything_up_and_goes_on_when_the_database_is_back(
    call: str,
) -> None:
    world = World()
    world.table.publish(*TEN)
    world.table.faults += [call, "connect", "connect"]
    world.caught_up()
    world.table.publish("x")
    world.caught_up()
    assert world.values == [*TEN, "x"]


def test_only_what_is_committed_is_removed_and_only_after_a_while() -> None:
    world = World()
    world.table.publish(*TEN)
    world.caught_up(world.relay(keep_seconds=10))
    assert len(world.table.rows) == 10
    relay = world.relay(keep_seconds=0)
    world.table.publish("x")
    world.clock.on_pass = lambda: relay.stop() if not world.table.rows else None
    relay.run()
    assert world.table.rows == []
    assert world.table.cleaned == 11


def test_another_relay_that_moved_the_position_is_an_error() -> None:
    world = World()
    world.table.publish(*TEN)
    moved = RelayPosition("table", 77, 0, Origin("9", 1, "other"), 1, 1)

    def moves(output: Output) -> Exception | None:
        world.broker.produce_fault = lambda _: None
        world.journal.commit(position_key(0), moved.to_entry())
        return None

    world.broker.produce_fault = moves
    world.broker.commit_faults.append((OutcomeUnknown("lost"), False))
    with pytest.raises(InstanceFenced, match="another relay uses outbox"):
        world.caught_up()


def test_relays_share_the_shards_and_take_over_what_is_left() -> None:
    world = World(shards=4)
    for lane in range(4):
        world.table.publish(*TEN, lane=lane)
    first, second = world.relay(), world.relay()
    for _ in range(20):
        first._guarded_turn()
    assert set(world.table.holders.values()) == {first._source}
    for _ in range(20):
        first._guarded_turn()
        second._guarded_turn()
    assert sorted(map(len, (first._shards, second._shards))) == [2, 2]
    world.table.publish("x", lane=3)
    first._source.close()
    first._shards.clear()
    for _ in range(20):
        second._guarded_turn()
    assert len(second._shards) == 4
    assert sorted(world.values) == sorted([*TEN * 4, "x"])


def test_a_share_leaves_nothing_over() -> None:
    for shards in range(1, 20):
        for relays in range(1, 8):
            assert fair_share(shards, relays) * relays >= shards
            assert fair_share(shards, relays) * relays - shards < relays


def test_a_key_has_one_lane() -> None:
    assert lane_of(b"k", 1) == lane_of(b"k", 99)
    assert {lane_of(None, number) for number in range(512)} == set(range(256))
    assert len({lane_of(str(n).encode(), 0) for n in range(5000)}) == 256


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"origin": Origin("8", 1, "shop")}, "restored into a new cluster"),
        ({"origin": Origin("7", 1, "other")}, "restored into a new cluster"),
        ({"origin": Origin("7", 2, "shop")}, "standby was promoted"),
        ({"turn": 0}, "older than the position"),
        ({"last": 5}, "set back"),
    ],
)
def test_a_database_in_another_history_is_refused(change: dict[str, object], reason: str) -> None:
    world = World()
    world.table.publish(*TEN)
    world.caught_up()
    for name, value in change.items():
        setattr(world.table, name, value)
    world.table.publish("x")
    with pytest.raises(StartRefused, match=reason) as refusal:
        world.caught_up()
    assert "relay-outbox reconcile" in str(refusal.value)
    assert world.values == TEN


def test_a_position_that_is_gone_is_refused() -> None:
    world = World()
    world.table.publish(*TEN)
    relay = world.relay()
    world.clock.on_pass = lambda: relay.stop() if not world.table.rows else None
    relay.run()
    world.journal.empty()
    with pytest.raises(StartRefused, match="Kafka has no position"):
        world.caught_up()


def test_another_number_of_shards_is_refused() -> None:
    world = World(shards=2)
    world.table.publish(*TEN)
    world.caught_up()
    world.shards = 3
    with pytest.raises(StartRefused, match=r"outbox\.shards=2"):
        world.caught_up()


def test_a_database_that_changes_while_the_relay_runs_stops_it() -> None:
    world = World()
    world.table.publish(*TEN)
    relay = world.relay()

    def promoted() -> None:
        if len(world.values) == 10:
            world.table.origin = replace(world.table.origin, timeline=2)
            world.table.faults.append("look")

    world.clock.on_pass = promoted
    with pytest.raises(RunError, match="standby was promoted"):
        relay.run()


def test_a_cluster_that_is_away_at_the_start_is_waited_for_as_long_as_an_election_takes() -> None:
    world = World()

    def unreachable(*_: object) -> NoReturn:
        raise ClusterUnreachable("nobody")

    world.journal.settled = unreachable  # type: ignore[method-assign]
    began = world.clock()
    with pytest.raises(ClusterUnreachable):
        world.caught_up()
    assert world.clock() - began >= 60


def test_a_position_reads_back_as_it_was_written() -> None:
    position = RelayPosition("slot", 5, 2, Origin("7", 3, "shop"), 9, 4)
    assert RelayPosition.from_entry(position.to_entry()) == position
    with pytest.raises(StartRefused, match="version 2"):
        RelayPosition.from_entry({**position.to_entry(), "version": 2})
