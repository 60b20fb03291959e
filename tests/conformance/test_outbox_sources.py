"""What the relay expects of an outbox, asked of the table and of the log, on real PostgreSQL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from eosframework.config import DatabaseSettings
from eosframework.errors import DatabaseUnavailable
from eosframework.postgres.database import Database, migrate
from eosframework.postgres.database.outbox.outbox_slot import SlotSource
from eosframework.postgres.database.outbox.outbox_table import TableSource
from eosframework.postgres.outbox import emit, publish
from eosframework.postgres.outbox.relay_position import RelayPosition, fits
from eosframework.postgres.outbox.sharding import lane_of, shard_of
from tests.support.applications.pipeline import wait_until

Source = TableSource | SlotSource

MESSAGE_BYTES = 200_000


@dataclass
class World:
    """A database with an outbox, ways to publish, and sources that read it."""

    dsn: str
    kind: type[Source]
    name: str
    send: Callable[..., None]
    opened: list[Any]

    def source(self, *, shards: int = 1, batch_bytes: int = 2**20) -> Source:
        database = Database(DatabaseSettings(dsn=SecretStr(self.dsn)))
        session: dict[str, Any] = {
            "batch_bytes": batch_bytes,
            "name": self.name,
            "shards": shards,
            "idle_seconds": 600,
            "prepare": lambda: migrate(database),
        }
        if self.kind is TableSource:
            session["message_bytes"] = MESSAGE_BYTES
        source = self.kind(database, **session)
        source.connect()
        self.opened.append(source)
        return source

    def connection(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self.dsn)
        self.opened.append(connection)
        return connection

    def flush(self) -> None:
        """Put all that was committed on disk; the test server does so a moment later."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute("SET synchronous_commit = on")
            connection.execute("SELECT pg_logical_emit_message(true, 'test', '')")

    def publish(self, *values: str, key: str | None = "k") -> None:
        with self.connection() as connection:
            for value in values:
                self.send(connection, "orders", key, value)


@pytest.fixture(params=["table", "slot"])
def world(
    request: pytest.FixtureRequest, database: str, unique_name: Callable[[str], str]
) -> Iterator[World]:
    kind: type[Source] = {"table": TableSource, "slot": SlotSource}[request.param]
    send = {"table": publish, "slot": emit}[request.param]
    made = World(database, kind, unique_name("relay"), send, [])
    yield made
    for opened in made.opened:
        opened.close()


def start(source: Source, shard: int = 0) -> RelayPosition:
    """Where a shard starts that was never relayed."""
    found = source.found(shard)
    number = source.start(shard, found)
    return RelayPosition(found.source, number, 0, found.origin, found.turn, source.shards)


def read_on(
    source: Source, position: RelayPosition, *, shard: int = 0, limit: int = 100
) -> tuple[list[str], RelayPosition]:
    """Look once and read to the end of what is final."""
    source.look()
    values: list[str] = []
    while True:
        batch = source.read(shard, position, limit)
        values += [(output[1] or b"").decode() for output in batch.outputs]
        position = batch.position
        if batch.is_last:
            return values, position


def settle(world: World, source: Source) -> None:
    """Look until nothing waits to become final."""
    world.flush()
    wait_until(lambda: not source.look(), "an end of the transactions")


def read_all(
    world: World, source: Source, position: RelayPosition
) -> tuple[list[str], RelayPosition]:
    """Read everything that was committed behind a position."""
    settle(world, source)
    return read_on(source, position)


def test_what_is_committed_is_read_once_in_order_and_nothing_else_is(world: World) -> None:
    source = world.source()
    at = start(source)
    world.publish("a", "b")
    with world.connection() as rolled_back:
        world.send(rolled_back, "orders", "k", "never")
        rolled_back.rollback()
    world.publish("c")
    values, at = read_all(world, source, at)
    assert values == ["a", "b", "c"]
    assert read_all(world, source, at)[0] == []
    world.publish("d")
    assert read_all(world, source, at)[0] == ["d"]


def test_every_position_on_the_way_is_one_to_go_on_from(world: World) -> None:
    source = world.source()
    at = start(source)
    world.publish(*"abcde")
    world.publish(*"fgh")
    settle(world, source)
    values: list[str] = []
    for _ in range(10):
        batch = source.read(0, at, 3)
        values += [(output[1] or b"").decode() for output in batch.outputs]
        at = batch.position
        fresh = world.source()
        rest, _ = read_all(world, fresh, at)
        assert values + rest == list("abcdefgh")
        if batch.is_last:
            break
    assert values == list("abcdefgh")


def test_everything_of_a_message_comes_back(world: World) -> None:
    source = world.source()
    at = start(source)
    headers = [("h", b"\0\xff"), ("t", "ü"), ("t", None)]
    with world.connection() as connection:
        world.send(connection, "orders", b"\0k", bytes(range(256)), headers)
        world.send(connection, "orders", None, None)
        world.send(connection, "orders", b"", b"")
    before = time.time() * 1000
    settle(world, source)
    full, bare, empty = source.read(0, at, 10).outputs
    assert full[:4] == ("orders", bytes(range(256)), b"\0k", -1)
    assert full[7][:-1] == [("h", b"\0\xff"), ("t", "ü".encode()), ("t", None)]
    assert full[7][-1][0] == "__eos.outbox.id"
    assert abs(before - full[6]) < 60_000
    assert (bare[1], bare[2]) == (None, None)
    assert (empty[1], empty[2]) == (b"", b"")
    assert len({output[7][-1][1] for output in (full, bare, empty)}) == 3


def test_what_nobody_would_read_is_not_emitted(database: str) -> None:
    migrate(Database(DatabaseSettings(dsn=SecretStr(database))))
    with (
        psycopg.connect(database) as connection,
        pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="would be lost"),
    ):
        emit(connection, "orders", "k", "v")


def test_a_transaction_that_commits_late_is_not_skipped(world: World) -> None:
    source = world.source()
    at = start(source)
    late, early = world.connection(), world.connection()
    world.send(late, "orders", "x", "late")
    world.send(early, "orders", "y", "early")
    early.commit()
    first, at = read_on(source, at)
    late.commit()
    rest, _ = read_all(world, source, at)
    assert sorted(first + rest) == ["early", "late"]


def test_messages_of_a_key_are_in_the_order_of_its_locks_whatever_else_is_open(
    world: World,
) -> None:
    source = world.source()
    at = start(source)
    setup = world.connection()
    setup.execute("CREATE TABLE accounts (key text PRIMARY KEY, n int)")
    setup.execute("CREATE TABLE notes (n int)")
    setup.execute("INSERT INTO accounts VALUES ('x', 0)")
    setup.commit()
    slow, bystander, quick = (world.connection() for _ in range(3))
    slow.execute("INSERT INTO notes VALUES (1)")
    bystander.execute("INSERT INTO notes VALUES (2)")
    seen: list[str] = []
    for connection, value in ((quick, "first"), (slow, "second")):
        connection.execute("UPDATE accounts SET n = n + 1 WHERE key = 'x'")
        world.send(connection, "orders", "x", value)
        connection.commit()
        more, at = read_on(source, at)
        seen += more
    bystander.rollback()
    rest, _ = read_all(world, source, at)
    assert seen + rest == ["first", "second"]


def test_who_does_not_publish_holds_nothing_back(world: World) -> None:
    source = world.source()
    at = start(source)
    report = world.connection()
    report.execute("CREATE TABLE report (n int)")
    world.publish("a")
    assert read_all(world, source, at)[0] == ["a"]
    report.rollback()


def test_every_message_is_in_one_shard_and_a_key_always_in_the_same(world: World) -> None:
    source = world.source(shards=3)
    starts = [start(source, shard) for shard in range(3)]
    for n in range(60):
        world.publish(str(n), key=f"k{n % 7}")
    settle(world, source)
    shards = [read_on(source, at, shard=n)[0] for n, at in enumerate(starts)]
    assert sorted(int(value) for shard in shards for value in shard) == list(range(60))
    for number, values in enumerate(shards):
        assert [int(v) for v in values] == sorted(int(v) for v in values)
        for value in values:
            lane = lane_of(f"k{int(value) % 7}".encode(), 0)
            assert shard_of(lane, 3) == number


def test_a_batch_holds_no_more_than_its_bytes_and_at_least_one_message(world: World) -> None:
    source = world.source(batch_bytes=20_000)
    at = start(source)
    world.publish("s", "a" * 12_000, "b" * 12_000, "c" * 100_000, "d", "e")
    settle(world, source)
    values: list[str] = []
    while True:
        batch = source.read(0, at, 100)
        sizes = [len(output[1] or b"") for output in batch.outputs]
        assert sum(sizes[:-1]) < 20_000
        values += [(output[1] or b"").decode()[:1] for output in batch.outputs]
        at = batch.position
        if batch.is_last:
            break
    assert values == list("sabcde")


def test_one_session_at_a_time_may_relay_a_shard(world: World) -> None:
    first, second = world.source(), world.source()
    assert first.lock_shard(0)
    assert not second.lock_shard(0)
    assert first.has_lock(0)
    assert not second.has_lock(0)
    assert first.relays() == second.relays() == 2
    assert second.lock_shard(1)
    first.close()
    wait_until(lambda: second.lock_shard(0), "the end of the other session")
    assert second.relays() == 1


def test_turns_only_grow_and_belong_to_a_shard(world: World) -> None:
    source = world.source()
    assert [source.next_turn(0), source.next_turn(0), source.next_turn(1)] == [1, 2, 1]
    assert world.source().found(0).turn == 2


def test_what_is_behind_a_position_is_removed_and_nothing_else(world: World) -> None:
    source = world.source()
    first = start(source)
    source.next_turn(0)
    world.publish("a", "b")
    _, at = read_all(world, source, first)
    world.publish("c")
    while source.clean(0, at):
        pass
    again = world.source()
    settle(world, again)
    assert [c.output[1] for c in again.candidates()] == [b"c"]
    assert read_all(world, again, at)[0] == ["c"]
    found = again.found(0)
    assert found.cleaned == at.through
    assert fits(replace(at, turn=found.turn), found)


def test_what_waits_to_be_sent_is_told_and_nothing_of_it_when_it_was_read(world: World) -> None:
    source = world.source()
    first = start(source)
    source.next_turn(0)
    world.publish(*("x" * 100 for _ in range(20)))
    settle(world, source)
    waiting = source.backlog(0, first)
    _, end = read_on(source, first)
    nothing = source.backlog(0, end)
    if world.kind is TableSource:
        assert (waiting.messages, nothing.messages) == (20, 0)
        assert (waiting.oldest_seconds or 0) > 0
        assert nothing.oldest_seconds == 0
    else:
        # What others write to the log waits as well.
        assert waiting.log_bytes is not None
        assert nothing.log_bytes is not None
        assert waiting.log_bytes > 2000
        assert nothing.log_bytes < waiting.log_bytes


def test_publishing_wakes_whoever_waits(world: World) -> None:
    source = world.source()
    start(source)
    started = time.monotonic()
    thread = threading.Timer(0.2, world.publish, ["a"])
    thread.start()
    source.wait(600)
    thread.join()
    assert time.monotonic() - started < 300


@pytest.mark.parametrize("between", ["nothing", "take_in", "relays", "look"])
def test_reading_ahead_changes_nothing_but_time(world: World, between: str) -> None:
    source = world.source()
    at = start(source)
    world.publish(*map(str, range(10)))
    settle(world, source)
    values: list[str] = []
    while True:
        batch = source.read(0, at, 3)
        at = batch.position
        source.read_ahead(0, at, 3)
        if between != "nothing":
            getattr(source, between)()
        values += [(output[1] or b"").decode() for output in batch.outputs]
        if batch.is_last:
            break
    assert values == [str(n) for n in range(10)]


def test_what_was_read_ahead_of_a_place_serves_no_other(world: World) -> None:
    source = world.source(shards=2)
    starts = [start(source, shard) for shard in (0, 1)]
    for n in range(20):
        world.publish(str(n), key=f"k{n}")
    settle(world, source)
    source.read_ahead(0, starts[0], 5)
    second, _ = read_on(source, starts[1], shard=1, limit=5)
    source.read_ahead(0, starts[0], 5)
    first, _ = read_on(source, starts[0], shard=0, limit=4)
    assert sorted(map(int, first + second)) == list(range(20))
    assert set(first).isdisjoint(second)


def test_a_session_that_ends_while_it_reads_ahead_says_so(world: World) -> None:
    source = world.source()
    at = start(source)
    world.publish(*"abcdef")
    settle(world, source)
    batch = source.read(0, at, 2)
    source.read_ahead(0, batch.position, 2)
    with world.connection() as killer:
        killer.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name LIKE 'eosframework%' AND datname = current_database()"
        )
    with pytest.raises(DatabaseUnavailable):
        read_on(source, batch.position)
    source.connect()
    assert read_all(world, source, batch.position)[0] == list("cdef")


def test_publishing_while_it_reads_ahead_wakes_as_well(world: World) -> None:
    source = world.source()
    at = start(source)
    world.publish("a", "b")
    settle(world, source)
    batch = source.read(0, at, 1)
    source.read_ahead(0, batch.position, 1)
    world.publish("c")
    source.read(0, batch.position, 1)
    started = time.monotonic()
    source.wait(600)
    assert time.monotonic() - started < 300


def test_candidates_are_all_that_the_outbox_holds_with_their_ids(world: World) -> None:
    source = world.source()
    at = start(source)
    world.publish(*"abc")
    settle(world, source)
    candidates = list(source.candidates())
    outputs = source.read(0, at, 100).outputs
    assert [c.output for c in candidates] == list(outputs)
    assert [c.id for c in candidates] == [output[7][-1][1] for output in outputs]
    assert all(c.number > at.through for c in candidates)
    assert source.end() >= max(c.number for c in candidates)
