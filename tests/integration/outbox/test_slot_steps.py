"""A relay of the log makes progress through log of other tables, however much there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from eosframework.config import DatabaseSettings
from eosframework.postgres.database import Database, migrate
from eosframework.postgres.database.outbox import outbox_slot
from eosframework.postgres.database.outbox.outbox_slot import SlotSource
from eosframework.postgres.outbox import emit
from eosframework.postgres.outbox.relay_position import RelayPosition

ROWS_SQL = "INSERT INTO others SELECT n, repeat('x', 200) FROM generate_series(1, %s) n"


@pytest.fixture
def dsn(make_database: Callable[[], str]) -> str:
    return make_database()


@pytest.fixture
def source(dsn: str, unique_name: Callable[[str], str]) -> Iterator[SlotSource]:
    database = Database(DatabaseSettings(dsn=SecretStr(dsn)))
    made = SlotSource(
        database,
        batch_bytes=2**20,
        name=unique_name("relay"),
        shards=1,
        idle_seconds=60,
        prepare=lambda: migrate(database),
    )
    made.connect()
    yield made
    made.close()
    made.connect()
    made.retire(0)
    made.close()


def started(source: SlotSource) -> RelayPosition:
    assert source.lock_shard(0)
    found = source.found(0)
    return RelayPosition("slot", source.start(0, found), 0, found.origin, 1, 1)


def write_between(dsn: str, *, each: bool) -> list[str]:
    """Emit 12 messages in log of about 100 MB of another table; `each`: committed one by one."""
    values = [str(n) for n in range(12)]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = on")
        connection.execute("CREATE TABLE others (n bigint, text text)")
        connection.autocommit = each
        for value in values:
            connection.execute(ROWS_SQL, [30_000])
            emit(connection, "orders", "k", value)
        connection.commit()
    return values


def all_read(source: SlotSource, position: RelayPosition, *, cleans: bool) -> list[str]:
    """Read to the end of the log as a relay does, which commits between slow reads."""
    source.look()
    found: list[str] = []
    is_last = False
    while not is_last:
        batch = source.read(0, position, 5)
        found += [output[1].decode() for output in batch.outputs if output[1] is not None]
        position, is_last = batch.position, batch.is_last
        if cleans and source.wants_clean:
            source.clean(0, replace(position, within=0))
    return found


@pytest.mark.parametrize("each", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("cleans", [True, False])
def test_much_log_is_read_in_steps_that_decode_it_few_times(
    dsn: str, source: SlotSource, monkeypatch: pytest.MonkeyPatch, each: bool, cleans: bool
) -> None:
    monkeypatch.setattr(outbox_slot, "STEP_BYTES", 2**20)
    start = started(source)
    values = write_between(dsn, each=each)
    decoded: list[float] = []
    peek = outbox_slot._Peek

    def counted(connection: Any, slot: str, after: RelayPosition, end: int, **options: Any) -> Any:
        [first] = connection.execute(
            "SELECT restart_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = %s",
            [slot],
        ).fetchone()
        decoded.append(end - float(first))
        return peek(connection, slot, after, end, **options)

    monkeypatch.setattr(outbox_slot, "_Peek", counted)
    assert all_read(source, start, cleans=cleans) == values
    assert len(decoded) > 5
    assert sum(decoded) < 3 * (source.end() - start.through) + 20 * 2**20


def test_a_limit_of_statements_is_longer_for_long_work_only(dsn: str) -> None:
    settings = DatabaseSettings(
        dsn=SecretStr(dsn), statement_timeout_seconds=0.1, network_timeout_seconds=2
    )
    with Database(settings).connect(autocommit=True) as connection:
        with connection.long_work(60, lambda: False):
            connection.execute("SELECT pg_sleep(0.3)")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("SELECT pg_sleep(0.3)")
        with pytest.raises(psycopg.errors.QueryCanceled), connection.long_work(60, lambda: True):
            connection.execute("SELECT pg_sleep(60)")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_relay_that_stops_ends_a_read_that_takes_long(
    dsn: str, source: SlotSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_slot, "STEP_BYTES", 2**30)
    start = started(source)
    write_between(dsn, each=False)
    source.look()
    asked: list[float] = []
    source.ends_waiting = lambda: asked.append(time.monotonic()) is None
    batch = source.read(0, start, 5)
    assert asked, "the log was decoded in less than a tenth of a second"
    assert (batch.outputs, batch.position, batch.is_last) == ((), start, True)
    assert time.monotonic() - asked[0] < 0.5
    source.ends_waiting = lambda: False
    assert source.relays() == 1, "the session goes on"
    assert len(all_read(source, start, cleans=False)) == 12
