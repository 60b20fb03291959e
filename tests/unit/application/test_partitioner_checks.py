"""A sample of keys shows producers that use another partitioner than murmur2."""

from __future__ import annotations

import textwrap
import zlib
from collections.abc import Callable, Iterable

from hypothesis import given
from hypothesis import strategies as st

from eosframework.application.partitioner_checks import FEWEST_KEYS, KeySample, misplaced_keys
from eosframework.kafka.client.partitioner import partition_of
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.walk import copartitioned_topics
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve

SOURCES = """\
application: app
sources:
  orders: {topic: orders, key: string, value: json}
  clicks: {topic: clicks, key: string, value: json}
  planes: {topic: planes, key: string, value: json, table: true}
  models: {topic: models, key: string, value: json, table: true}
  airports: {topic: airports, key: string, value: json, global: true}
streams:
"""
BY = "by: 'builtins:max'"
PLANES = f"out: {{from: orders, steps: [join: {{with: planes, {BY}}}], to: out}}"


def graph_of(streams: str) -> Graph:
    return resolve(read_yaml(SOURCES + textwrap.indent(streams, "  "), "app.yaml"))


def meeting(streams: str) -> list[list[str]]:
    parts = graph_of(streams).sub_topologies
    return [sorted(topics) for part in parts for topics in copartitioned_topics(part)]


def crc32(key: bytes, partitions: int) -> int:
    return zlib.crc32(key) % partitions


def by_hand(key: bytes, partitions: int) -> int:
    return (partition_of(key, partitions) + 1) % partitions


def sample(
    topic: str, place: Callable[[bytes, int], int], keys: Iterable[bytes], partitions: int = 8
) -> KeySample:
    return KeySample(topic, partitions, frozenset((key, place(key, partitions)) for key in keys))


def judged(streams: str, *samples: KeySample) -> dict[str, bool]:
    """By topic with keys elsewhere, whether its partitioner is foreign."""
    found = misplaced_keys(graph_of(streams), {one.topic: one for one in samples})
    return {one.sample.topic: one.is_foreign for one in found}


KEYS = [f"key {number}".encode() for number in range(100)]


def test_topics_meet_where_two_reach_one_store() -> None:
    assert meeting(PLANES) == [["orders", "planes"]]
    within = f"join: {{with: clicks, {BY}, within: 1m}}"
    assert meeting(f"out: {{from: orders, steps: [{within}], to: out}}") == [["clicks", "orders"]]
    tables = f"out: {{from: planes, steps: [join: {{with: models, {BY}}}], to: out}}"
    assert meeting(tables) == [["models", "planes"]]
    assert meeting("out: {from: [orders, clicks], steps: [count: {}], to: out}") == [
        ["clicks", "orders"]
    ]


def test_topics_that_share_no_store_do_not_meet() -> None:
    assert meeting("out: {from: [orders, clicks], to: out}") == []
    assert meeting("out: {from: orders, steps: [count: {}], to: out}") == []
    by = "join: {with: airports, by: 'builtins:max', key: 'builtins:str'}"
    assert meeting(f"out: {{from: orders, steps: [{by}], to: out}}") == []
    merged = "out: {from: [orders, clicks], to: out}\nown: {from: orders, steps: [count: {}]}"
    assert meeting(merged) == []


def test_a_topic_behind_a_repartition_topic_does_not_meet_the_others_and_that_one_does() -> None:
    steps = f"[group_by: {{by: 'builtins:str', key: string}}, join: {{with: planes, {BY}}}]"
    streams = f"out: {{from: orders, steps: {steps}, to: out}}"
    ((own, other),) = meeting(streams)
    assert (own.endswith("-repartition"), other) == (True, "planes")
    # No external topic agrees with the application's own if CRC32 placed its keys.
    assert judged(streams, sample("planes", crc32, KEYS)) == {"planes": True}
    assert judged(streams, sample("planes", partition_of, KEYS)) == {}


def test_a_topic_of_another_partitioner_is_found_with_an_example() -> None:
    samples = [sample("orders", crc32, KEYS), sample("planes", partition_of, KEYS)]
    assert judged(PLANES, *samples) == {"orders": True}
    (found,) = misplaced_keys(graph_of(PLANES), {one.topic: one for one in samples})
    assert "of 100 sampled keys (CRC32 does: librdkafka's default)" in found.found
    assert "for example key 'key " in found.found
    assert found.others == ("planes",)
    assert "partitioner=murmur2_random in the producers of orders" in found.fix


def test_topics_that_crc32_placed_all_of_them_meet_as_they_should() -> None:
    assert judged(PLANES, *(sample(topic, crc32, KEYS) for topic in ("orders", "planes"))) == {}
    # What the other one has is not known, and Kafka's own clients would place it by murmur2.
    assert judged(PLANES, sample("orders", crc32, KEYS)) == {"orders": True}
    few = sample("planes", crc32, KEYS[: FEWEST_KEYS - 1])
    assert judged(PLANES, sample("orders", crc32, KEYS), few) == {"orders": True}
    own = [sample(topic, by_hand, KEYS) for topic in ("orders", "planes")]
    assert judged(PLANES, *own) == {"orders": True, "planes": True}


def test_few_keys_and_a_single_partition_decide_nothing() -> None:
    assert judged(PLANES, sample("orders", by_hand, KEYS[: FEWEST_KEYS - 1])) == {}
    assert judged(PLANES, sample("orders", by_hand, KEYS[:FEWEST_KEYS])) == {"orders": True}
    assert judged(PLANES, sample("orders", crc32, KEYS, 1)) == {}


def test_markers_that_were_placed_by_hand_are_told_of_and_no_reason_to_refuse() -> None:
    keys = sample("orders", partition_of, KEYS)
    marked = KeySample("orders", 8, keys.keys | {(b"end", number) for number in range(8)})
    assert judged(PLANES, marked) == {"orders": False}


@given(st.sets(st.binary(min_size=1), min_size=FEWEST_KEYS), st.integers(2, 64))
def test_keys_that_murmur2_placed_are_never_foreign(keys: set[bytes], partitions: int) -> None:
    found = [sample(topic, partition_of, keys, partitions) for topic in ("orders", "planes")]
    assert judged(PLANES, *found) == {}


@given(st.integers(2, 64), st.integers())
def test_a_hundred_keys_that_crc32_placed_are_always_foreign(partitions: int, salt: int) -> None:
    keys = [b"%d/%d" % (salt, number) for number in range(100)]
    placed = sample("orders", crc32, keys, partitions)
    assert judged(PLANES, placed, sample("planes", partition_of, keys, partitions)) == {
        "orders": True
    }
