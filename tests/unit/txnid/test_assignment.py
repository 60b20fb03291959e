from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.errors import TopologyError
from eosframework.txnid import co_partitioned, tasks

counts = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 5), min_size=1)


@given(counts)
def test_sources_share_a_task_only_with_equal_counts(partitions: dict[str, int]) -> None:
    if len(set(partitions.values())) == 1:
        assert co_partitioned("late", partitions) == next(iter(partitions.values()))
        return
    with pytest.raises(TopologyError, match="not co-partitioned") as raised:
        co_partitioned("late", partitions)
    assert all(f"{topic}={count}" in str(raised.value) for topic, count in partitions.items())


def test_every_partition_has_one_task() -> None:
    found = tasks("flights", "late", {"flights.raw": 3, "weather": 3})
    assert [str(identity) for identity in found] == [
        "flights:late:0",
        "flights:late:1",
        "flights:late:2",
    ]


def test_a_sub_topology_without_source_or_partitions_is_refused() -> None:
    with pytest.raises(TopologyError, match="no source topic"):
        co_partitioned("late", {})
    with pytest.raises(TopologyError, match=r"'empty' .* 0 partitions"):
        co_partitioned("late", {"empty": 0})
