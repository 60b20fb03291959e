"""librdkafka's statistics are summed over clients, and over replaced ones."""

from __future__ import annotations

from typing import Any

import orjson

from eosframework.kafka.client.statistics import INTERVAL_SECONDS, ClientStatistics, Ends
from eosframework.records import TopicPartition


class Output:
    """An output whose producer has these statistics."""

    def __init__(self, name: str, **broker: Any) -> None:
        content = {"name": name, "msg_size": 10, "brokers": {"b1": broker, "b2": {}}}
        self.statistics: str | None = orjson.dumps(content).decode()


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.statistics = ClientStatistics(lambda: self.now)

    def look(self) -> Any:
        self.now += INTERVAL_SECONDS
        return self.statistics.look()


def test_counts_go_on_where_a_producer_is_replaced() -> None:
    world = World()
    first = Output("rdkafka#producer-1", disconnects=3, req_timeouts=1)
    world.statistics.watch(first)
    producers = world.look().clients["producer"]
    assert (producers.disconnects, producers.timeouts) == (3, 1)
    first.statistics = Output("rdkafka#producer-2", disconnects=1).statistics
    assert world.look().clients["producer"].disconnects == 4
    assert world.look().clients["producer"].disconnects == 4


def test_producers_are_added_up_and_the_slowest_broker_tells_the_round_trip() -> None:
    world = World()
    outputs = [Output(f"rdkafka#producer-{n}", rtt={"p99": n * 1000}) for n in (1, 5, 2)]
    for output in outputs:
        world.statistics.watch(output)
    producers = world.look().clients["producer"]
    assert producers.round_trip_seconds == 0.005
    assert producers.queued_bytes == 30
    for output in outputs:
        output.statistics = Output("rdkafka#producer-9").statistics
    assert world.look().clients["producer"].round_trip_seconds == 0.005, "the last that was seen"


def test_an_output_that_is_gone_is_no_longer_looked_at() -> None:
    world = World()
    output = Output("rdkafka#producer-1", disconnects=3)
    world.statistics.watch(output)
    assert world.look().clients["producer"].disconnects == 3
    del output
    assert "producer" not in world.look().clients


def test_a_consumer_tells_the_ends_of_the_partitions_that_it_fetched() -> None:
    world = World()
    partitions = {
        "0": {"partition": 0, "ls_offset": 5, "hi_offset": 9, "fetchq_size": 100},
        "1": {"partition": 1, "ls_offset": -1001, "hi_offset": -1001, "fetchq_size": 0},
        "-1": {"partition": -1, "ls_offset": 0, "hi_offset": 0, "fetchq_size": 0},
    }
    content = {
        "name": "rdkafka#consumer-1",
        "brokers": {},
        "cgrp": {"rebalance_cnt": 2},
        "topics": {"in": {"topic": "in", "partitions": partitions}},
    }
    properties = world.statistics.consumer_properties()
    properties["stats_cb"](orjson.dumps(content).decode())
    seen = world.look()
    assert seen.ends == {TopicPartition("in", 0): Ends(5, 9)}
    assert seen.rebalances == 2
    assert seen.clients["consumer"].queued_bytes == 100


def test_within_an_interval_nothing_is_read_again() -> None:
    world = World()
    assert world.look() is world.statistics.look()
