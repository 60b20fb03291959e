"""Rows of Structured Streaming and of batch DataFrames go to PostgreSQL once."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from pydantic import SecretStr

from eosframework.config import BackfillSettings, DatabaseSettings, Settings
from eosframework.spark import both, table_sink
from tests.support.applications.spark_sinks import SinkWorld

pytest.importorskip("pyspark")
from pyspark.errors import StreamingQueryException


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

    made = sink()
    for _ in range(2):
        made.close()
        made = sink()
        world.run(made)
        for file in (world.checkpoint / "commits").glob("*1*"):
            file.unlink()  # Spark offers the last batch again
    assert world.counts() == Counter(range(350))
    found = ask(database, "SELECT n, key FROM numbers ORDER BY n")
    assert found == [(n, f"k{n % 7}") for n in range(350)]
    assert not list(world.checkpoint.glob("eosframework-stages/*/*"))

    first, world.checkpoint = world.checkpoint, world.checkpoint.with_name("another")
    with pytest.raises(StreamingQueryException, match="two queries use the sink"):
        world.run(table_sink("numbers", dsn=database, shards=2))
    world.checkpoint = first
    world.feed(350, 400)
    world.run(made)
    made.close()
    assert world.counts() == Counter(range(400)), "the refused query has not fenced the other one"


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


ROWS = 3000


@pytest.mark.exhaustive
def test_a_killed_python_worker_doubles_no_row_and_by_hand_it_does(
    world: SinkWorld, database: str, tmp_path: Path
) -> None:
    """1. a Python worker is killed in the middle of its shard, between two database transactions
    2. the twin copies by hand, in one transaction for each task; a worker is killed after its
    commit, before Spark knows of it"""
    ask(database, "CREATE TABLE numbers (n bigint, key text)")
    ask(database, "CREATE TABLE twin (n bigint, key text)")
    world.feed(0, ROWS)
    settings = Settings(
        database=DatabaseSettings(dsn=SecretStr(database), batch_rows=20),
        backfill=BackfillSettings(commit_interval_seconds=0.3, stall_seconds=1),
    )
    killed: list[int] = []
    done = threading.Event()

    def kill() -> None:
        while not done.wait(0.005) and not killed:
            [[written]] = ask(database, "SELECT count(*) FROM numbers")
            if not 0 < written < ROWS:
                continue
            for process in writers(database):
                with suppress(psutil.Error):
                    process.kill()
                    killed.append(process.pid)

    small_batches = "spark.sql.execution.arrow.maxRecordsPerBatch"
    world.spark.conf.set(small_batches, "50")
    killer = threading.Thread(target=kill)
    killer.start()
    sink = table_sink("numbers", application=world.name, shards=2, settings=settings)
    try:
        world.run(sink)
    finally:
        done.set()
        killer.join()
        sink.close()
        world.spark.conf.unset(small_batches)
    assert killed, "no worker was killed in the middle of a shard"
    found = ask(database, "SELECT n, key FROM numbers ORDER BY n")
    assert found == [(n, f"k{n % 7}") for n in range(ROWS)]

    marker = tmp_path / "killed"

    def copy(rows: Iterable[Any]) -> None:
        with psycopg.connect(database) as connection:
            with connection.cursor().copy("COPY twin (n, key) FROM STDIN") as into:
                for row in rows:
                    into.write_row(row)
            connection.commit()
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    world.spark.range(ROWS).selectExpr("id", "concat('k', id % 7)").foreachPartition(copy)
    assert marker.exists()
    counts = Counter(n for (n,) in ask(database, "SELECT n FROM twin"))
    assert set(counts) == set(range(ROWS))
    assert counts.total() > ROWS, "the twin doubles rows"


def writers(dsn: str) -> list[psutil.Process]:
    """The Python workers of Spark that are connected to a database, found by their ports."""
    ports = {
        row[0]
        for row in ask(
            dsn,
            "SELECT client_port FROM pg_stat_activity "
            "WHERE application_name LIKE 'eosframework sink%'",
        )
    }
    below = [p for p in psutil.Process().children(recursive=True) if "pyspark.daemon" in _line(p)]
    return [p for p in below if ports & _ports(p)]


def _line(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _ports(process: psutil.Process) -> set[int]:
    with suppress(psutil.Error):
        return {c.laddr.port for c in process.net_connections("tcp") if c.laddr}
    return set()
