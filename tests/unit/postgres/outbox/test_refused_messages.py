"""A message that cannot be sent is set aside alone, or ends the relay by its name."""

from __future__ import annotations

from collections.abc import Callable, Set

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.config import OutboxRefusal
from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    OutcomeUnknown,
    RunError,
    TransactionAborted,
    TransactionFatal,
)
from eosframework.postgres.outbox.relay_position import Destination
from eosframework.transactions.ports import Output
from tests.unit.postgres.outbox.memory import REGISTRY, World, output_of

FAIL = OutboxRefusal.FAIL
VALUES = [str(number) for number in range(12)]
SOME = st.sets(st.sampled_from(VALUES), max_size=5)


def refusing(values: Set[str]) -> Callable[[Output], DataRejected | None]:
    return lambda output: DataRejected("refused") if (output[1] or b"").decode() in values else None


@given(
    unreadable=SOME,
    at_produce=SOME,
    at_delivery=SOME,
    lost=st.lists(st.sampled_from(["set_aside", "look", "read", "holds"]), max_size=4),
    commits=st.lists(
        st.tuples(
            st.sampled_from([OutcomeUnknown("lost"), TransactionAborted("no")]), st.booleans()
        ),
        max_size=3,
    ),
    batch_rows=st.integers(1, 8),
)
def test_each_message_is_sent_or_set_aside_once_and_in_order(
    unreadable: Set[str],
    at_produce: Set[str],
    at_delivery: Set[str],
    lost: list[str],
    commits: list[tuple[OutcomeUnknown | TransactionAborted, bool]],
    batch_rows: int,
) -> None:
    world = World()
    world.table.publish(*VALUES)
    world.table.unreadable = set(unreadable)
    world.table.faults = lost
    world.broker.commit_faults += commits
    world.broker.produce_fault = refusing(at_produce)
    world.broker.deliver_fault = refusing(at_delivery)
    relay = world.caught_up(world.relay(batch_rows=batch_rows))
    bad = unreadable | at_produce | at_delivery
    if not any(committed for _, committed in commits):
        assert world.values == [value for value in VALUES if value not in bad]
        assert sorted(world.table.set_aside) == sorted(bad)
        assert relay.counts.refused == len(bad)
    assert sorted(world.values + world.table.set_aside) == sorted(VALUES)


@pytest.mark.parametrize("how", ["unreadable", "produce", "delivery"])
def test_where_the_policy_is_to_fail_it_is_named_and_what_is_before_it_sent(how: str) -> None:
    world = World()
    world.table.publish(*VALUES)
    if how == "unreadable":
        world.table.unreadable = {"6"}
    else:
        setattr(
            world.broker, "produce_fault" if how == "produce" else "deliver_fault", refusing({"6"})
        )
    for _ in range(2):
        with pytest.raises(RunError, match="row 7 cannot be sent"):
            world.caught_up(world.relay(on_refused=FAIL))
        assert (world.values, world.table.set_aside) == (VALUES[:6], [])


def test_a_topic_is_looked_up_again_before_a_message_is_refused() -> None:
    world = World()
    refusals = world.relay()._refusals
    large = output_of("x" * 100)
    world.destinations.takes = Destination(most_bytes=50)
    assert len(refusals.found([large], [(1, 0)], 1000)) == 1
    world.destinations.takes = Destination(most_bytes=500)
    assert refusals.found([large], [(1, 0)], 1000) == []


def test_a_message_is_refused_by_what_its_topic_takes() -> None:
    world = World()
    world.table.publish("small", "x" * 100, "small too")
    world.destinations.takes = Destination(most_bytes=50)
    world.caught_up()
    assert (world.values, world.table.set_aside) == (["small", "small too"], ["x" * 100])
    [(_, reason)] = world.table.refused
    assert "topic orders takes 50" in reason


def test_a_position_that_kafka_refuses_is_no_message_s_fault() -> None:
    world = World()
    world.table.publish(*VALUES)
    world.broker.deliver_fault = lambda output: (
        DataRejected("no such topic") if output[0] == REGISTRY else None
    )
    with pytest.raises(RunError, match="refuses a record of shard 0"):
        world.caught_up()
    assert world.table.set_aside == []


def test_brokers_that_do_not_describe_a_topic_cost_no_message() -> None:
    world = World()
    relay = world.relay()
    world.destinations.faults = [ClusterUnreachable("away"), ClusterUnreachable("away")]
    world.table.publish(*VALUES)
    world.caught_up(relay)
    assert world.destinations.faults == []
    assert world.values == VALUES


def test_a_topic_that_is_closed_while_the_relay_runs_is_found_out() -> None:
    world = World()
    world.table.publish("a")
    closed = TransactionFatal("may not write")
    world.broker.commit_faults.append((closed, False))

    def close(output: Output) -> None:
        world.destinations.no_topics = {"orders"}

    world.broker.produce_fault = close
    world.caught_up()
    assert (world.values, world.table.set_aside) == ([], ["a"])
    assert world.broker.commit_faults == []


def test_the_relay_s_own_topic_and_the_brokers_take_no_message() -> None:
    refusals = World().relay()._refusals
    for topic in (REGISTRY, "__consumer_offsets", "", "..", "a b", "x" * 250, "a\n"):
        output: Output = (topic, *output_of("a")[1:])
        [found] = refusals.found([output], [(1, 0)], 10)
        assert "topic" in found.reason, topic
