"""Rows that a sink cannot write are found before the first row of their batch is written."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from eosframework import dead_letter
from eosframework.config import DatabaseSettings, Settings
from eosframework.engine.failures.failure_headers import HEADER_BATCH
from eosframework.errors import EosError, InstanceFenced, StartRefused
from eosframework.operations.dead_letters.dead_letter import DeadLetter
from eosframework.spark import both, table_sink
from eosframework.spark.sinks.kafka.driver import KafkaSinkDriver
from eosframework.spark.sinks.kafka.shard_attempt import ShardClients, ShardRows
from eosframework.spark.sinks.kafka.shards import ShardTask
from eosframework.spark.sinks.sink_api import Sink
from eosframework.spark.sinks.sink_entry import BatchIdentity, Decision
from tests.support.applications.spark_sinks import SinkWorld
from tests.support.servers.topics import configure

pytest.importorskip("pyspark")
from pyspark.errors import StreamingQueryException

MOST = 2000
"""Largest batch that the topic takes, in bytes."""

HEADERS = "array(named_struct('key', 'h', 'value', CAST('x' AS binary)))"


def letters_in(world: SinkWorld, topic: str) -> list[tuple[DeadLetter, dict[str, Any]]]:
    """The dead letters of a topic, with their rows."""
    found = [(DeadLetter.parse(m), m) for m in world.read(topic)]
    for letter, message in found:
        assert letter is not None
        assert (HEADER_BATCH, b"batch ") in [(n, v[:6]) for n, v in message.headers()]
    return [(letter, json.loads(m.value())) for letter, m in found if letter is not None]


def is_taken(world: SinkWorld, topic: str, value: bytes, key: bytes) -> bool:
    """Whether brokers take a record with one header, sent by a client that limits nothing."""
    producer = Producer({"bootstrap.servers": world.servers, "message.max.bytes": 100_000})
    errors: list[Any] = []
    producer.produce(
        topic, value, key, headers=[("h", b"x")], on_delivery=lambda e, _: errors.append(e)
    )
    assert producer.flush(30) == 0
    return errors[0] is None  # an error compared with None raises later


def test_refused_rows_of_a_topic_are_dead_letters_and_a_restart_decides_the_same(
    world: SinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. the driver ends after the rows of a staged batch are written, before it is complete
    2. the topic would now take a row that it did not  3. a restart completes the batch
    4. a small batch, which needs no stage, has a refused row, too."""
    topic, dead = f"{world.name}.limited", f"{world.name}.dead"
    limits = {"max.message.bytes": str(MOST), "message.timestamp.after.max.ms": "3600000"}
    world.create(topic, limits)
    world.create(dead)
    rows = world.rows().selectExpr(
        "n",
        "IF(n IN (1, 205), NULL, key) AS key",
        # All lengths about the limit: brokers are the judge of which one is too large.
        "CASE WHEN n BETWEEN 100 AND 160 THEN repeat('v', int(1800 + n)) ELSE 'v' END AS value",
        "timestamp_millis(IF(n = 2, 253402300799000, 1700000000000 + n)) AS at",
        f"CASE WHEN n = 3 THEN array(NULL) WHEN n = 4 THEN NULL ELSE {HEADERS} END AS headers",
        "CASE WHEN n = 5 THEN 3 WHEN n = 6 THEN 5000000000 ELSE n % 3 END AS part",
    )
    options: dict[str, Any] = {
        "topic": topic,
        "value": "value",
        "timestamp": "at",
        "headers": "headers",
        "partition": "part",
        "shards": 2,
    }
    world.feed(0, 200)
    options["on_error"] = dead_letter(dead)
    with monkeypatch.context() as patched:
        patched.setattr(KafkaSinkDriver, "complete", lambda *_: 1 / 0)
        with pytest.raises(StreamingQueryException, match="division by zero"):
            world.run(world.sink(**options), rows)
    written = len(world.read(topic)), len(world.read(dead))
    assert sum(written) == 200, "the driver ended after the rows were written"
    largest = max((m for m in world.read(topic)), key=lambda m: len(m.value()))
    admin = AdminClient({"bootstrap.servers": world.servers})
    configure(admin, topic, {"max.message.bytes": "1000000"})
    world.feed(200, 210)
    sink = world.sink(**options)
    world.run(sink, rows)
    found = letters_in(world, dead)
    refused = Counter(row["n"] for _, row in found)
    first_too_large = len(largest.value()) + 1 - 1800
    assert refused == Counter([1, 2, 3, 5, 6, 205, *range(first_too_large, 161)])
    assert 100 < first_too_large < 160
    assert len(world.read(topic)) + refused.total() == 210
    configure(admin, topic, limits)
    value, key = largest.value(), largest.key()
    assert is_taken(world, topic, value, key)
    assert not is_taken(world, topic, value + b"v", key), "brokers take no more"

    errors = {row["n"]: letter.error for letter, row in found}
    assert errors[1] == "ValueError: the row has null in its key column 'key'"
    assert "outside message.timestamp.after.max.ms" in errors[2]
    assert "a header without a key of text in column 'headers'" in errors[3]
    assert "has part=5000000000; expected a partition from 0 to before 3" in errors[6]
    assert f"bytes; topic {topic} takes {MOST}" in errors[first_too_large]
    assert {letter.step for letter, _ in found} == {"kafka_out"}
    assert {letter.origin.topic for letter, _ in found} == {"sink.out"}
    places = Counter((letter.origin, letter.origin_offset) for letter, _ in found)
    assert set(places.values()) == {1}, "each has a place of its own"

    [last] = sink.progress
    assert (last.rows, last.dead_letters) == (10, 1)
    assert world.staged() == 1, "the second batch was one transaction of the driver"


def execute(dsn: str, sql: Any, *values: Any) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql, values or None)
        return cursor.fetchall() if cursor.description else []


VALUES = {
    "short": ("'a\\u0000'", "'abcdef'", "'abcde'", "repeat('ü', 5)"),
    "tags": ("array('a', 'b\\u0000')", "array('a', NULL)"),
    "doc": ("named_struct('a', map('x', 'y\\u0000'))", "named_struct('a', map('x', 'y'))"),
    "tiny": ("32768L", "-32769L", "32767L", "-32768L"),
    "amount": (
        "CAST(1000 AS decimal(12, 2))",
        "CAST(999.99 AS decimal(12, 2))",
        "CAST(-1000.01 AS decimal(12, 2))",
    ),
    "day": ("date_from_unix_date(-719163)", "date_from_unix_date(-719162)"),
    "far": ("date_from_unix_date(2145042906)", "date_from_unix_date(2145042905)"),
    "at": ("timestamp_micros(-62135596800000001)", "timestamp_micros(9223372036854775807)"),
}
"""Values of columns on both sides of what PostgreSQL takes."""


@pytest.mark.exhaustive
def test_refused_rows_of_a_table_are_those_that_the_database_refuses(
    world: SinkWorld, database: str
) -> None:
    """One row has one value of interest; which rows are refused is compared with the database."""
    dead = f"{world.name}.dead"
    world.create(dead)
    for table in ("kept", "judge"):
        execute(
            database,
            f"CREATE TABLE {table} (id bigint PRIMARY KEY, must text NOT NULL, short varchar(5), "
            "tags text[], doc jsonb, tiny smallint, amount numeric(5, 2), day date, far date, "
            "at timestamptz)",
        )
    given = [(name, value) for name, values in VALUES.items() for value in values]
    types = {name: f"IF(true, NULL, {values[0]})" for name, values in VALUES.items()}
    selects = [f"SELECT {len(given)}L AS id, CAST(NULL AS string) AS must, {_of(types)}"]
    for n, (name, value) in enumerate(given):
        selects.append(f"SELECT {n}L AS id, 'm' AS must, {_of({**types, name: value})}")
    rows = world.spark.sql(" UNION ALL ".join(selects))
    options: dict[str, Any] = {"dsn": database, "application": world.name, "shards": 2}

    sink_of(world, **options, on_error=dead_letter(dead)).write(
        rows, job="dead", directory=str(world.checkpoint)
    )
    letters = letters_in(world, dead)
    refused = Counter(row["id"] for _, row in letters)
    kept = Counter(n for (n,) in execute(database, "SELECT id FROM kept"))
    assert refused + kept == Counter(range(len(given) + 1)), "each is in one of them, once"
    assert {letter.step for letter, _ in letters} == {"table_kept"}

    judged = {len(given)}
    for n, (name, value) in enumerate(given):
        [[text]] = world.spark.sql(f"SELECT {_text(name, value)}").collect()
        try:
            execute(database, f"INSERT INTO judge VALUES (%s, 'm', {_place(name)})", n, text)
        except psycopg.Error:
            judged.add(n)
    assert set(refused) == judged

    execute(database, "TRUNCATE kept")
    sink = sink_of(world, **options, on_error="skip", name="skips")
    sink.write(rows, job="skip", directory=str(world.checkpoint))
    assert Counter(n for (n,) in execute(database, "SELECT id FROM kept")) == kept


def write_both(world: SinkWorld, database: str, rows: Any, job: str, shards: int) -> None:
    """Write rows to the table and then to the topic, from one stage."""
    small = {"database": DatabaseSettings(batch_rows=20)}
    settings = settings_of(world).model_copy(update=small)
    given: dict[str, Any] = {"dsn": database, "application": world.name, "settings": settings}
    sink = both(table_sink("kept", shards=shards, **given), world.sink(shards=shards))
    sink.write(rows, job=job, directory=str(world.checkpoint))


def numbers(world: SinkWorld, first: int, last: int) -> Any:
    return world.spark.range(first, last).selectExpr("id AS n", "'k' || id % 7 AS key")


def in_both(world: SinkWorld, database: str) -> list[Counter[int]]:
    return [world.counts(), Counter(n for (n,) in execute(database, "SELECT n FROM kept"))]


@pytest.mark.exhaustive
def test_a_batch_of_which_nothing_is_committed_is_computed_again(
    world: SinkWorld, database: str
) -> None:
    """A constraint refuses the first row; the query starts again with a filter and more shards."""
    execute(database, "CREATE TABLE kept (n bigint CHECK (n <> 0), key text)")
    refused = (
        r"batch 0 of query job a: sink 'kept.a': table kept refuses row 0 of shard 0 \(\{\"n\":0"
    )
    with pytest.raises(EosError, match=refused + ".*computes the batch again, with a filter"):
        write_both(world, database, numbers(world, 0, 50), "a", 1)
    assert in_both(world, database) == [Counter(), Counter()]
    write_both(world, database, numbers(world, 0, 50).filter("n <> 0"), "a", 2)
    assert in_both(world, database) == [Counter(range(1, 50))] * 2


@pytest.mark.exhaustive
def test_a_batch_of_which_rows_are_committed_resumes_from_its_stage(
    world: SinkWorld, database: str
) -> None:
    """A constraint refuses a row in the middle: a filter does not help, a fixed table does."""
    execute(database, "CREATE TABLE kept (n bigint CHECK (n <> 77), key text)")
    for rows in (numbers(world, 0, 100), numbers(world, 0, 100).filter("n <> 77")):
        with pytest.raises(EosError, match=r"refuses row 77 of shard 0 .*from the stage at this"):
            write_both(world, database, rows, "b", 1)
    assert 0 < in_both(world, database)[1].total() < 78, "rows before it are written"
    with pytest.raises(StartRefused, match="incomplete with shards=1, some of its rows are comm"):
        write_both(world, database, rows, "b", 2)
    execute(database, "ALTER TABLE kept DROP CONSTRAINT kept_n_check")
    write_both(world, database, rows, "b", 1)
    assert in_both(world, database) == [Counter(range(100))] * 2


def test_attempts_at_a_batch_that_is_given_up_write_nothing(world: SinkWorld) -> None:
    """Shard 0 is taken before, shard 1 after the batch is given up; a batch with a committed row
    is not given up."""
    [options] = world.sink().parts
    batch = BatchIdentity(query="q", number=0, range="r")

    closed: list[Any] = []

    def opened() -> tuple[Any, list[ShardTask]]:
        driver: Any = options.own(batch)
        spec = driver._spec(driver.accept(batch, "file:/none"))
        clients = ShardClients.of(spec)
        tasks = [ShardTask(spec, spec.attempt(clients, 0)) for _ in range(2)]
        closed.extend([*tasks, driver, clients])
        tasks[0].take([0])
        return driver, tasks

    def rows() -> list[ShardRows]:
        return [ShardRows([(world.topic, b'{"n": 1}', b"k", -1, None, None, 0, None)], [7])]

    _, [taken, late] = opened()
    second: Any = options.own(batch)
    assert second.decide(batch) is Decision.RESUME
    assert second.give_up()
    with pytest.raises(InstanceFenced):
        taken.write(0, rows())
    with pytest.raises(InstanceFenced, match="was given up"):
        late.take([1])
    assert not world.read(world.topic)
    second.close()

    _, [taken, late] = opened()
    assert taken.write(0, rows()) == 1
    ended: Any = options.own(batch)
    ended._mark(ended.last, given_up=True)  # It ends before it looks for committed rows.
    ended.close()
    second = options.own(batch)
    assert not second.give_up()
    late.take([1])
    assert late.write(1, rows()) == 1, "its batch is still open"
    assert world.counts() == Counter({1: 2})
    for one in (second, *closed):
        one.close()


def sink_of(world: SinkWorld, **options: Any) -> Sink:
    """A table sink with the brokers of the world."""
    return table_sink("kept", settings=settings_of(world), **options)


def settings_of(world: SinkWorld) -> Settings:
    """The settings of the world's Kafka sinks."""
    part: Any = world.sink().parts[0]
    return part.settings


def _of(values: dict[str, str]) -> str:
    return ", ".join(f"{value} AS {name}" for name, value in values.items())


def _text(name: str, value: str) -> str:
    """The value as text, in Spark SQL."""
    match name:
        case "tags" | "doc":
            return f"to_json({value})"
        case "day" | "far":
            return f"translate(CAST({value} AS string), '+', '')"
        case "at":
            return f"translate(CAST({value} AS string), '+', '')"
        case _:
            return f"CAST({value} AS string)"


def _place(name: str) -> str:
    """Where the value stands in an INSERT, with what makes its type of the text."""
    made = {
        "tags": "(SELECT array_agg(one) FROM jsonb_array_elements_text(%s::jsonb) AS one)",
        "doc": "%s::jsonb",
        "tiny": "%s::text::smallint",
        "amount": "%s::text::numeric",
        "day": "%s::text::date",
        "far": "%s::text::date",
        "at": "%s::text::timestamptz",
    }
    columns = ["short", "tags", "doc", "tiny", "amount", "day", "far", "at"]
    return ", ".join(made.get(one, "%s") if one == name else "NULL" for one in columns)
