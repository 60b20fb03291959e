"""On a broker that lets nobody do anything without an ACL: what `plan` says is what it takes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from eosframework.application.composition.worker import load
from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import ControlTopic
from eosframework.application.start_checks import check_start
from eosframework.config import load_settings
from eosframework.errors import UserError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.inspect.probes import missing_operation
from eosframework.kafka.inspect.wire import Wire
from eosframework.postgres.database import Database, migrate
from eosframework.postgres.outbox import publish
from tests.support.applications.guarded import (
    CLIENT,
    MACHINE,
    Guarded,
    Right,
    rights,
    token_endpoint,
)
from tests.support.applications.pipeline import wait_until
from tests.support.servers.secured_kafka import USER, SecuredKafka, secured_kafka

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, value: json}
streams:
  counted:
    from: numbers
    on_error: {dead_letter: NAME.dead}
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - count: {emit: commit}
    to: [{topic: NAME.out}]
  kept:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to: [{table: numbers, mode: append, value: json}]
"""
ALICE = f"User:{USER}"
PRINCIPALS = {
    "password": ALICE,
    "certificate": "User:CN=client",
    "token": f"User:{CLIENT}",
    "function": f"User:{MACHINE}",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    place = tmp_path_factory.mktemp("guarded") / "kafka"
    with secured_kafka(place, "unused", guarded=True) as started:
        yield started


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with token_endpoint() as url:
        yield url


@pytest.fixture
def guarded(broker: SecuredKafka, endpoint: str, tmp_path: Path) -> Guarded:
    return Guarded(broker, tmp_path, endpoint)


def planned(guarded: Guarded, *arguments: str, own: dict[str, str]) -> Any:
    """What a plan says that the administrator made, who may do everything."""
    environment = {**own, "EOS_KAFKA__BOOTSTRAP_SERVERS": guarded.cluster.bootstrap_servers}
    done = guarded.folder.run(*arguments, "--json", environment=environment)
    assert done.exit_code == 0, done.err
    return done.json


def applied(guarded: Guarded, name: str, dsn: str) -> list[Right]:
    """Plan and apply the topology as `plan` says; return what its worker was allowed."""
    guarded.folder.write("app.yaml", TOPOLOGY.replace("NAME", name))
    guarded.cluster.create(f"{name}.in")
    feed(guarded, name)
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE numbers (n bigint)")
    arguments = ("plan", "app.yaml", "--principal", "User:my shop")
    plan = planned(guarded, *arguments, own={"EOS_DATABASE__DSN": dsn})
    servers = guarded.cluster.bootstrap_servers
    assert (
        f"kafka-acls.sh --bootstrap-server {servers} --add --allow-principal 'User:my shop' "
        f"--operation Write --transactional-id {name}: --resource-pattern-type prefixed"
    ) in plan["acl_commands"]
    assert len(plan["acl_commands"]) == len(plan["acls"])
    to_run, to_apply = rights(plan["access"]), rights(plan["access_to_apply"])
    guarded.allow(ALICE, *to_run, *to_apply)
    done = guarded.run("apply", "app.yaml", own={"EOS_DATABASE__DSN": dsn})
    assert done.exit_code == 0, done.err
    guarded.take_away(ALICE, *to_apply)
    return to_run


def feed(guarded: Guarded, name: str) -> None:
    guarded.cluster.feed(f"{name}.in", *(b'{"n":%d}' % n for n in range(30)))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_with_the_planned_acls_an_application_runs_and_without_any_one_it_names_that(
    guarded: Guarded,
    unique_name: Callable[[str], str],
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, own = unique_name("acl"), {"EOS_DATABASE__DSN": database}
    to_run = applied(guarded, name, database)
    kinds = {(right.kind, right.operation) for right in to_run}
    assert {("TransactionalId", "Write"), ("Cluster", "DescribeConfigs")} < kinds
    assert len(to_run) == 19

    done = guarded.run("run-worker", "app.yaml", "--until-caught-up", own=own)
    assert done.exit_code == 0, done.err
    assert "purging_denied" not in done.err
    counted = guarded.cluster.end(f"{name}.out")
    assert counted > 0

    for variable, value in {**own, **guarded.environment()}.items():
        monkeypatch.setenv(variable, value)
    settings = load_settings(guarded.directory / "password.yaml")
    graph = load(str(guarded.directory / "app.yaml"))

    admin = ClusterAdmin(settings.kafka)
    registry = ControlTopic(name, settings.kafka, admin)

    def refused() -> str:
        try:
            check_start(ApplicationContext(graph, settings, admin, registry))
        except UserError as error:
            return str(error)
        return ""

    for right in to_run:
        guarded.take_away(ALICE, right)
        if right.kind == "TransactionalId":
            id_ = f"{name}:kept:0"
            with Wire(settings.kafka) as wire:
                wait_until(lambda: missing_operation(wire, id_) != "", "the ACL is gone")  # noqa: B023
            done = guarded.run("run-worker", "app.yaml", "--until-caught-up", own=own)
            assert done.exit_code == 1, done.err
            assert f"allow it {right.operation}" in done.error
            assert f"TransactionalId resource {name}:" in done.error
        else:
            where = "the cluster" if right.name is None else f"{right.kind} {right.name}"
            named = f"rant {right.operation} on {where}"
            wait_until(lambda: named in refused(), f"{right} is missed")  # noqa: B023
        guarded.allow(ALICE, right)
        wait_until(lambda: refused() == "", f"{right} is there again")

    feed(guarded, name)
    done = guarded.run("run-worker", "app.yaml", "--until-caught-up", own=own)
    assert done.exit_code == 0, done.err
    assert guarded.cluster.end(f"{name}.out") > counted
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (60,)


@pytest.mark.timeout(2400)
def test_with_the_planned_acls_a_relay_runs_and_without_any_one_it_names_that(
    guarded: Guarded, unique_name: Callable[[str], str], database: str
) -> None:
    name, topic = unique_name("relay"), unique_name("topic")
    own = {"EOS_DATABASE__DSN": database, "EOS_OUTBOX__NAME": name}
    guarded.cluster.create(topic)
    plan = planned(guarded, "relay-outbox", "plan", "--topic", topic, own=own)
    to_run = rights(plan["access"])
    assert len(to_run) == 5
    registry = Right("Topic", f"{name}-control", False, "Create")
    assert plan["acls_to_start_first"] == [f"Topic {registry.name}: Create"]
    guarded.allow(ALICE, *to_run, registry)
    monkey = Database(load_settings(assignments=[f"database.dsn={database}"]).database)
    migrate(monkey)

    def send() -> None:
        with psycopg.connect(database) as connection:
            publish(connection, topic, "key", b"value")

    send()
    done = guarded.run("relay-outbox", "--until-caught-up", own=own)
    assert done.exit_code == 0, done.err
    sent = guarded.cluster.end(topic)
    assert sent > 0

    guarded.take_away(ALICE, registry)
    send()
    fail = ("--set", "outbox.on_refused=fail")
    for right in to_run:
        guarded.take_away(ALICE, right)
        done = guarded.run("relay-outbox", "--until-caught-up", *fail, own=own)
        assert done.exit_code in (1, 2), (right, done.err)
        assert right.operation in done.error
        assert (right.name or "the cluster") in done.error
        guarded.allow(ALICE, right)
    assert guarded.cluster.end(topic) == sent

    done = guarded.run("relay-outbox", "--until-caught-up", own=own)
    assert done.exit_code == 0, done.err
    assert guarded.cluster.end(topic) > sent

    [write] = [right for right in to_run if right.name == topic]
    guarded.take_away(ALICE, write)
    send()
    sent = guarded.cluster.end(topic)
    done = guarded.run("relay-outbox", "--until-caught-up", own=own)
    assert done.exit_code == 0, done.err
    assert guarded.cluster.end(topic) == sent
    with psycopg.connect(database) as connection:
        [(reason,)] = connection.execute("SELECT reason FROM eosframework.outbox_refused")
    assert write.operation in reason
    assert topic in reason


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_every_client_connects_as_the_principal_that_the_settings_name(
    guarded: Guarded, unique_name: Callable[[str], str], database: str
) -> None:
    name, own = unique_name("way"), {"EOS_DATABASE__DSN": database}
    to_run = applied(guarded, name, database)
    for way in ("certificate", "token", "function"):
        guarded.allow(PRINCIPALS[way], *to_run)
        done = guarded.run("run-worker", "app.yaml", "--until-caught-up", way=way, own=own)
        assert done.exit_code == 0, done.err

        examined = guarded.run("doctor", "app.yaml", "--json", way=way, own=own)
        findings = examined.json["findings"]
        lacking = {found["check"] for found in findings if found["check"].endswith("-acls")}
        assert lacking == {"settings-acls"}, findings
        assert not [found for found in findings if found["severity"] == "error"], findings
        assert not [f for f in findings if "transactional" in f["about"]], findings
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (30,)


def test_a_token_endpoint_that_refuses_is_named_and_the_secret_is_not(guarded: Guarded) -> None:
    guarded.folder.write("token/kafka.properties.sasl.oauthbearer.client.secret", "guessed")
    done = guarded.run("txn", "list", way="token")
    assert done.exit_code == 2
    assert "sasl.oauthbearer.token.endpoint.url=" in done.error
    assert "gave no token" in done.error
    assert "guessed" not in done.out + done.err


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_function_gives_tokens_to_workers_relays_and_inspection_and_renews_them(
    guarded: Guarded, unique_name: Callable[[str], str], database: str, tmp_path: Path
) -> None:
    name, topic = unique_name("function"), unique_name("topic")
    own = {"EOS_DATABASE__DSN": database, "EOS_OUTBOX__NAME": name}
    machine = PRINCIPALS["function"]
    to_run = applied(guarded, name, database)
    guarded.cluster.create(topic)
    relay = rights(planned(guarded, "relay-outbox", "plan", "--topic", topic, own=own)["access"])
    control = Right("Topic", f"{name}-control", False, "Create")
    guarded.allow(machine, *dict.fromkeys([*to_run, *relay, control]))

    # Its clients are made at once and then use tokens for longer than one lives.
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(
            guarded.folder.command("run-worker", "app.yaml", "--config", "function.yaml"),
            cwd=guarded.directory,
            env=guarded.folder.environment(own | guarded.environment("function")),
            stderr=log,
        )
        try:
            wait_until(lambda: guarded.cluster.committed(name, f"{name}.in") == 30, "the commit")
            at_first = len(guarded.token_calls())
            wait_until(lambda: len(guarded.token_calls()) > at_first + 1, "new tokens")
            feed(guarded, name)
            wait_until(
                lambda: guarded.cluster.committed(name, f"{name}.in") == 60, "the next commit"
            )
        finally:
            worker.terminate()
            worker.wait(60)
    assert worker.returncode == 0, (tmp_path / "log").read_text()

    done = guarded.run("relay-outbox", "--until-caught-up", way="function", own=own)
    assert done.exit_code == 0, done.err
    with psycopg.connect(database) as connection:
        publish(connection, topic, "key", b"value")
    done = guarded.run("relay-outbox", "--until-caught-up", way="function", own=own)
    assert done.exit_code == 0, done.err
    assert guarded.cluster.end(topic) > 0

    found = guarded.run("txn", "list", name, "--json", way="function").json
    id_ = found["transactions"][0]["transactional_id"]
    listed = guarded.run("txn", "describe", id_, "--json", way="function")
    assert listed.exit_code == 0, listed.err
    assert listed.json["transactional_id"] == id_

    guarded.folder.write("refused", "no role is attached")
    for command in (("run-worker", "app.yaml"), ("doctor", "app.yaml"), ("txn", "list")):
        done = guarded.run(*command, way="function", own=own)
        assert done.exit_code == 2, (command, done.err)
        assert "kafka.oauth_cb=tokens:get raised PermissionError: no role is attached" in done.error
