"""Attempts at a batch of a table sink that is given up write nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from eosframework.errors import EosError, InstanceFenced
from eosframework.records import TopicPartition
from eosframework.spark import table_sink
from eosframework.spark.sinks.sink_entry import BatchIdentity, Decision, SinkBatch
from eosframework.spark.sinks.table.columns import SparkRow, position_of
from eosframework.spark.sinks.table.driver import _attempt

BATCH = BatchIdentity(query="q", number=0, range="r")
SHARD = TopicPartition("sink/kept", 0)


def rows_in(dsn: str) -> list[int]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM kept ORDER BY n").fetchall()]


def row(batch: SinkBatch, n: int) -> SparkRow:
    return SparkRow(SHARD, position_of(batch.sequence) + n, {"n": n})


@pytest.mark.parametrize("claims", ["before", "after"])
def test_an_attempt_of_a_batch_that_is_given_up_writes_no_row(database: str, claims: str) -> None:
    """The attempt claims its shard before, or after another driver gives the batch up."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (n bigint)")
    [options] = table_sink("kept", dsn=database, shards=2).parts
    options_of_table: Any = options
    first: Any = options.own(BATCH)
    batch = first.accept(BATCH, "file:/none")

    def give_up() -> SinkBatch:
        second: Any = options.own(BATCH)
        assert second.decide(BATCH) is Decision.RESUME
        assert second.give_up()
        return second.accept(BATCH, "file:/another")

    def rows() -> Iterator[tuple[TopicPartition, list[SparkRow]]]:
        yield SHARD, [row(batch, 0)]
        if claims == "before":
            again.append(give_up())
        yield SHARD, [row(batch, 1)]

    again: list[SinkBatch] = []
    if claims == "before":
        with pytest.raises(EosError, match="shard 0 of sink 'kept'"):
            _attempt(options_of_table, batch, SHARD, 0, rows())
    else:
        again.append(give_up())
        _attempt(options_of_table, batch, SHARD, 0, rows())  # for it the shard is complete
        with pytest.raises(InstanceFenced):
            first.complete(batch, 2)
    assert rows_in(database) == []

    [opened] = again
    whole = iter([(SHARD, [row(opened, n) for n in range(3)])])
    assert _attempt(options_of_table, opened, SHARD, 0, whole) == 3
    assert rows_in(database) == [0, 1, 2]
