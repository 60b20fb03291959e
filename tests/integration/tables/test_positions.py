"""Where tables go on is shown and set; a position that the log does not have is never guessed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.applications.pipeline import wait_until
from tests.support.applications.tables import TablesWorld
from tests.support.servers.kafka_admin import NewTopic

MakeTables = Callable[..., TablesWorld]


@pytest.fixture
def world(make_tables: MakeTables) -> TablesWorld:
    """One partition of a hundred records, all of them in the table."""
    world = make_tables(partitions=1)
    world.see("CREATE TABLE numbers (n bigint)")
    world.apply()
    world.feed(100)
    world.finish()
    return world


def set_position(world: TablesWorld, *wishes: str) -> str:
    done = world.run("positions set", *wishes, "--tables")
    assert done.exit_code in (0, 2), done.err
    return done.error if done.exit_code else done.out


def refusal(world: TablesWorld, exit_code: int = 1) -> str:
    done = world.run("run-worker", "--until-caught-up")
    assert done.exit_code == exit_code, done.err
    return done.error


@pytest.mark.exhaustive
def test_a_table_is_filled_again_from_where_it_is_set(world: TablesWorld) -> None:
    world.see("TRUNCATE numbers")
    assert set_position(world, f"{world.source}[0]=40") == f"{world.source}[0] resumes at 40\n"
    world.finish()
    assert world.count() == 60
    world.see("TRUNCATE numbers")
    set_position(world, f"{world.source}=earliest")
    world.finish()
    assert world.kept().clean, world.kept()
    [shown] = world.run("positions show", "--tables", "--json").json["positions"]
    assert shown == {
        "topic": world.source,
        "partition": 0,
        "committed": 100,
        "committed_before": True,
        "first": 0,
        "end": 100,
    }


def test_rows_that_come_while_a_quiet_worker_is_restarted_are_written(
    make_tables: MakeTables,
) -> None:
    world = make_tables(partitions=1)
    world.see("CREATE TABLE numbers (n bigint)")
    world.apply()
    world.feed(10)
    latest = ["worker.start=latest"]
    worker = world.start_worker(settings=latest)
    worker.wait_for_event("partition_claimed")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    world.feed(10)
    assert world.start_worker(settings=latest, until_caught_up=True).wait() == 0
    assert world.see("SELECT n FROM numbers ORDER BY n") == [(n,) for n in range(10, 20)]


def test_a_position_that_cannot_be_set_is_refused(world: TablesWorld) -> None:
    without = world.run("positions set", f"{world.source}=earliest")
    assert without.exit_code == 2
    assert "to set their positions, add --tables" in without.error
    assert "committed sets nothing" in set_position(world, f"{world.source}=committed")
    assert "offset 101 of" in set_position(world, f"{world.source}[0]=101")
    assert "'nope' is no source topic" in set_position(world, "nope=earliest")
    worker = world.start_worker()
    worker.wait_for_event("partition_claimed")
    assert "1 running table writers; stop" in set_position(world, f"{world.source}[0]=1")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    assert world.kept().clean, world.kept()


def test_records_that_are_gone_before_they_were_written_are_told_of(world: TablesWorld) -> None:
    world.feed(50)
    admin = AdminClient({"bootstrap.servers": world.bootstrap_servers})
    for answer in admin.delete_records([TopicPartition(world.source, 0, 120)]).values():
        answer.result(60)
    said = refusal(world)
    assert "the offsets between are gone" in said
    command = said.partition("eosframework positions set APP --tables ")[2]
    assert command == f"'{world.source}[0]=120'"
    set_position(world, command.strip("'"))
    world.finish()
    assert world.count() == 130


def test_a_position_behind_the_end_of_the_log_is_told_of(world: TablesWorld) -> None:
    world.see("UPDATE eosframework.positions SET next_offset = 1000")
    said = refusal(world)
    assert "holds what comes before offset 1000, and the log ends at 100: it was cut short" in said
    assert said.endswith(f"eosframework positions set APP --tables '{world.source}[0]=100'")
    assert world.count() == 100


def test_a_topic_made_again_is_refused_until_its_positions_are_set(world: TablesWorld) -> None:
    admin = AdminClient({"bootstrap.servers": world.bootstrap_servers})
    for answer in admin.delete_topics([world.source]).values():
        answer.result(60)

    def made_again() -> bool:
        [answer] = admin.create_topics([NewTopic(world.source, 1, 1)]).values()
        return answer.exception(60) is None

    wait_until(made_again, "the topic again")
    assert f"positions set APP --tables {world.source}=earliest" in refusal(world, 2)
    set_position(world, f"{world.source}=earliest")
    world.feed(10)
    world.finish()
    assert world.count() == 110


def test_a_position_includes_the_last_marker(world: TablesWorld) -> None:
    """Retention removes it, and nothing is lost."""
    servers: dict[str, Any] = {"bootstrap.servers": world.bootstrap_servers}
    producer = Producer({**servers, "transactional.id": world.source})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(world.source, b'{"n": 100}', partition=0)
    producer.commit_transaction(60)
    world.finish()
    assert world.count() == 101
    admin = AdminClient(servers)
    for answer in admin.delete_records([TopicPartition(world.source, 0, 102)]).values():
        answer.result(60)
    world.produce({"n": 101})
    world.finish()
    assert world.count() == 102
