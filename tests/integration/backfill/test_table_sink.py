"""Rows of Structured Streaming and of batch DataFrames go to PostgreSQL once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from eosframework.spark import both, table_sink
from tests.support.applications.spark_sinks import SinkWorld

pytest.importorskip("pyspark")
from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    pass


def ask(dsn: str, sql: Any) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


def test_both_sinks_have_each_row_once_and_the_last_batch_is_skipped(
    world: SinkWorld, database: str
) -> None:
    ask(database, "CREATE TABLE numbers (n bigint, key text)")
    world.feed(0, 300)
    world.feed(300, 350)

    def sink() -> Any:
        return both(world.sink(shards=2), table_sink("numbers", dsn=database, shards=2))

    for _ in range(2):
        made = sink()
        world.run(made)
        made.close()
        for file in (world.checkpoint / "commits").glob("*1*"):
            file.unlink()  # Spark offers the last batch again
    assert world.counts() == Counter(range(350))
    found = ask(database, "SELECT n, key FROM numbers ORDER BY n")
    assert found == [(n, f"k{n % 7}") for n in range(350)]
    assert not list(world.checkpoint.glob("eosframework-stages/*/*"))


@pytest.mark.exhaustive
def test_a_row_replaces_the_one_with_its_keys_and_a_job_is_written_once(
    world: SinkWorld, database: str
) -> None:
    ask(
        database, "CREATE TABLE totals (key text PRIMARY KEY, total numeric(12, 2), at timestamptz)"
    )
    sink = table_sink("totals", dsn=database, mode="upsert", keys=["key"], shards=3)
    for job, factor in (("one", 1), ("two", 10), ("one", 100), ("two", 100)):
        rows = world.spark.sql(
            f"SELECT concat('k', id) AS key, CAST(id * {factor} AS decimal(12, 2)) AS total, "
            "timestamp_millis(1700000000000) AS at FROM range(50)"
        )
        sink.write(rows, job=job, directory=str(world.checkpoint))
    found = ask(database, "SELECT key, total::int FROM totals")
    assert dict(found) == {f"k{n}": n * 10 for n in range(50)}


@pytest.mark.exhaustive
def test_what_a_table_cannot_take_ends_the_query_with_one_message(
    world: SinkWorld, database: str
) -> None:
    world.feed(0, 20)
    plain = world.rows()
    asked: dict[str, tuple[Any, Any]] = {
        "has no table missing": (table_sink("missing", dsn=database), plain),
        "no unique constraint on": (
            table_sink("numbers", dsn=database, mode="upsert", keys=["n"]),
            plain,
        ),
        "has null in its key column 'key'": (
            table_sink("keyed", dsn=database, mode="upsert", keys=["key"], name="nulls"),
            plain.selectExpr("n", "CAST(NULL AS string) AS key"),
        ),
        "have no column 'key', which is a key": (
            table_sink("keyed", dsn=database, mode="upsert", keys=["key"], name="absent"),
            plain.select("n"),
        ),
    }
    ask(database, "CREATE TABLE numbers (n bigint, key text)")
    ask(database, "CREATE TABLE keyed (n smallint, key text PRIMARY KEY)")
    for number, (expected, (sink, rows)) in enumerate(asked.items()):
        world.checkpoint = world.checkpoint.with_name(f"checkpoint{number}")
        with pytest.raises(StreamingQueryException) as failed:
            world.run(sink, rows)
        lines = str(failed.value).splitlines()
        assert any(
            line.startswith("eosframework.errors.") and expected in line for line in lines
        ), str(failed.value)
    assert ask(database, "SELECT count(*) FROM keyed") == [(0,)]
