"""Publishing from every kind of caller, and the command that carries it on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from psycopg import sql
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from eosframework.postgres.outbox import publish, publish_async
from tests.support.applications.outbox import OutboxWorld
from tests.support.processes.commands import Folder
from tests.support.servers.databases import dsn_with

MakeOutbox = Callable[..., OutboxWorld]


@pytest.mark.every_provider
def test_every_kind_of_caller_publishes_in_its_own_transaction(make_outbox: MakeOutbox) -> None:
    outbox = make_outbox()
    topic = outbox.topic
    with psycopg.connect(outbox.dsn) as connection:
        publish(connection, topic, "k", "psycopg connection")
        publish(connection.cursor(), topic, "k", "psycopg cursor", {"trace": b"\1"})
        connection.commit()
        publish(connection, topic, "k", "never")
        connection.rollback()
        connection.execute(
            "SELECT eosframework.publish(%s, 'k', 'plain SQL', '{\"trace\": \"a\"}')", [topic]
        )
    engine = create_engine(outbox.dsn.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session, session.begin():
        session.execute(text("CREATE TABLE mine (n int)"))
        publish(session, topic, "k", "SQLAlchemy session")
    with Session(engine) as session:
        publish(session, topic, "k", "never")
        session.rollback()
    with engine.begin() as core:
        publish(core, topic, "k", "SQLAlchemy connection")
    engine.dispose()
    asyncio.run(publish_asynchronously(outbox.dsn, topic))
    outbox.finish()
    assert outbox.arrived() == {
        "k": [
            "psycopg connection",
            "psycopg cursor",
            "plain SQL",
            "SQLAlchemy session",
            "SQLAlchemy connection",
            "asynchronous psycopg",
            "asynchronous cursor",
            "asyncpg",
            "AsyncSession of psycopg",
            "AsyncConnection of psycopg",
            "AsyncSession of asyncpg",
            "AsyncConnection of asyncpg",
        ]
    }


async def publish_asynchronously(dsn: str, topic: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await publish_async(connection, topic, "k", "asynchronous psycopg", {"trace": b"\1"})
        await publish_async(connection.cursor(), topic, "k", "asynchronous cursor")
        await connection.commit()
        await publish_async(connection, topic, "k", "never")
        await connection.rollback()
    raw: Any = await asyncpg.connect(dsn)
    async with raw.transaction():
        await publish_async(raw, topic, "k", "asyncpg", {"trace": b"\1"})
    await raw.close()
    for driver in ("psycopg", "asyncpg"):
        engine = create_async_engine(dsn.replace("postgresql://", f"postgresql+{driver}://"))
        async with AsyncSession(engine) as session:
            await publish_async(session, topic, "k", f"AsyncSession of {driver}", {"a": b"\1"})
            await session.commit()
            await publish_async(session, topic, "k", "never")
            await session.rollback()
        async with engine.begin() as core:
            await publish_async(core, topic, "k", f"AsyncConnection of {driver}")
        await engine.dispose()


def test_a_role_that_may_use_the_schema_may_publish_and_no_more(
    make_outbox: MakeOutbox, unique_name: Callable[[str], str]
) -> None:
    outbox = make_outbox()
    role = unique_name("role").replace(".", "_")
    identifier = sql.Identifier(role)
    with psycopg.connect(outbox.dsn, autocommit=True) as admin:
        for statement in (
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'"),
            sql.SQL("GRANT USAGE ON SCHEMA eosframework TO {}"),
        ):
            admin.execute(statement.format(identifier))
        try:
            with psycopg.connect(dsn_with(outbox.dsn, user=role, password="secret")) as user:
                publish(user, outbox.topic, "k", "v")
                user.commit()
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    user.execute("SELECT * FROM eosframework.outbox")
        finally:
            revoke = sql.SQL("REVOKE ALL ON SCHEMA eosframework FROM {}")
            admin.execute(revoke.format(identifier))
            admin.execute(sql.SQL("DROP ROLE {}").format(identifier))


@pytest.mark.parametrize("kind", ["table", pytest.param("slot", marks=pytest.mark.exhaustive)])
def test_a_relay_under_a_second_name_is_refused_until_it_takes_the_first_ones_place(
    make_outbox: MakeOutbox, kind: str
) -> None:
    outbox = make_outbox(kind=kind)
    keep = ["outbox.keep_seconds=600"]
    renamed = [*keep, f"outbox.name={outbox.name}.again"]
    if kind == "slot":
        outbox.finish()
    outbox.publish(5)
    running = outbox.start_relay(settings=keep)
    outbox.wait_for(5)
    refused = outbox.start_relay("--until-caught-up", settings=renamed)
    assert refused.wait() == 2, refused.log[-3000:]
    [told] = [line for line in refused.log.splitlines() if line.startswith("error: ")]
    assert f"was relayed under the name '{outbox.name}'" in told
    assert f"outbox.name='{outbox.name}.again'" in told
    assert f"EOS_OUTBOX__NAME={outbox.name}" in told
    assert f"{outbox.name}.again-control" not in topics_of(outbox), "it left a topic"
    if kind == "slot":
        assert "keeps its name" in told
        assert "keeps its name" in outbox.reconcile("--yes", settings=renamed).error
        assert outbox.verify().clean
        return
    assert "runs on the same database" in outbox.reconcile("--yes", settings=renamed).error
    running.signal(signal.SIGTERM)
    assert running.wait() == 0
    outbox.publish(3)
    settled = outbox.reconcile("--yes", settings=renamed)
    assert settled.exit_code == 0, settled.err
    assert "this one takes its place" in settled.out
    assert outbox.start_relay("--until-caught-up", settings=renamed).wait() == 0
    former = outbox.start_relay("--until-caught-up", settings=keep)
    assert former.wait() == 2, former.log[-3000:]
    verdict = outbox.verify()
    assert verdict.clean, verdict


def topics_of(outbox: OutboxWorld) -> set[str]:
    return set(
        AdminClient({"bootstrap.servers": outbox.bootstrap_servers}).list_topics(timeout=30).topics
    )


@pytest.mark.every_provider
def test_sigterm_commits_what_is_complete_and_a_restart_goes_on(make_outbox: MakeOutbox) -> None:
    outbox = make_outbox(shards=3)
    relay = outbox.start_relay()
    relay.wait_for_event("shard_assigned", 3)
    outbox.publish(300, each=3)
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0
    outbox.publish(30, each=3)
    outbox.finish()
    verdict = outbox.verify()
    assert verdict.clean, verdict
    assert {p["shards"] for p in outbox.positions().values()} == {3}


def test_reconcile_does_not_run_beside_a_relay(make_outbox: MakeOutbox) -> None:
    outbox = make_outbox()
    relay = outbox.start_relay()
    relay.wait_for_event("shard_assigned")
    refused = outbox.reconcile("--yes")
    assert refused.exit_code == 2
    assert "runs and holds shard 0" in refused.error
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0


def test_a_mistake_is_one_message_and_nothing_was_started(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for settings, message in (
        ([], "database.dsn is not set"),
        (["outbox.shards=0"], "outbox.shards=0"),
        (["outbox.name=My-Outbox"], "outbox.name='My-Outbox'"),
    ):
        options = [part for setting in settings for part in ("--set", setting)]
        done = folder.run("relay-outbox", *options)
        assert done.exit_code == 2
        assert message in done.error
