"""Messages that Kafka cannot take: refused in SQL, or set aside alone while all others arrive."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from psycopg import sql
from psycopg.types.json import Jsonb

from eosframework.postgres.outbox import emit, publish
from tests.support.applications.outbox import OutboxWorld, entry
from tests.support.applications.pipeline import read_committed, wait_until
from tests.support.servers.databases import dsn_with
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics
from tests.support.verifiers.asked import ANY_PORT, Scraped, addresses_of, wait_until_ready

MakeOutbox = Callable[..., OutboxWorld]
Connection = psycopg.Connection[Any]

DEEP = "[" * 3000 + "]" * 3000

REFUSED_IN_SQL: list[tuple[str, Any, str]] = [
    ("no such topic!", None, "not the name of a Kafka topic"),
    ("", None, "not the name of a Kafka topic"),
    ("..", None, "not the name of a Kafka topic"),
    ("a\n", None, "not the name of a Kafka topic"),
    ("x" * 250, None, "not the name of a Kafka topic"),
    ("__consumer_offsets", None, "belongs to the brokers"),
    ("shop-control", None, "internal topic of an application"),
    ("shop-two-ownership", None, "internal topic of an application"),
    ("shop-a.sum-changelog", None, "internal topic of an application"),
    ("shop-a.10s-retry", None, "internal topic of an application"),
    ("orders", [1, 2, 3], "headers"),
    ("orders", "text", "headers"),
    ("orders", 7, "headers"),
    ("orders", [["a"]], "headers"),
    ("orders", [[1, "a"]], "headers"),
    ("orders", {"a": {"base64": "no base64!"}}, "headers"),
    ("orders", {"a": "x" * 70_000}, "larger than 65536 bytes"),
]


@contextmanager
def connected_as_role(outbox: OutboxWorld, *grants: str) -> Iterator[Connection]:
    """Connect as a role of its own that has nothing but these grants."""
    role = f"role_{uuid.uuid4().hex[:10]}"
    with psycopg.connect(outbox.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'".encode())
        for grant in grants:
            admin.execute(f"GRANT {grant} TO {role}".encode())
        try:
            dsn = dsn_with(outbox.dsn, user=role, password="secret")
            with psycopg.connect(dsn, autocommit=True) as connection:
                yield connection
        finally:
            admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


@pytest.mark.parametrize("send", ["publish", pytest.param("emit", marks=pytest.mark.exhaustive)])
def test_a_role_gets_an_error_of_its_own_for_what_no_relay_could_send(
    make_outbox: MakeOutbox, send: str
) -> None:
    outbox = make_outbox(kind="table" if send == "publish" else "slot")
    if send == "emit":
        outbox.finish()
    call = sql.SQL("SELECT eosframework.{}(%s, 'k', %s, %s)").format(sql.Identifier(send))
    with connected_as_role(outbox, "USAGE ON SCHEMA eosframework") as role:
        for topic, headers, expected in REFUSED_IN_SQL:
            with pytest.raises(psycopg.Error, match=expected) as told:
                role.execute(call, [topic, b"v", Jsonb(headers)])
            assert told.value.sqlstate in ("22023", "54000"), (topic, headers)
        with pytest.raises(psycopg.Error, match="topic NULL"):
            role.execute(call, [None, b"v", None])
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="too large"):
            role.execute(
                sql.SQL(
                    "SELECT eosframework.{}('t', NULL, convert_to(repeat('x', 67108865), 'UTF8'))"
                ).format(sql.Identifier(send))
            )
        for headers in (
            None,
            {},
            [],
            {"a": None, "b": 7},
            [["a", {"base64": "AAE="}], ["a", DEEP]],
        ):
            role.execute(call, [outbox.topic, b"v", Jsonb(headers)])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            role.execute("SELECT eosframework.republish(gen_random_uuid())")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            role.execute("SELECT eosframework.emit_as(gen_random_uuid(), 't', NULL, NULL, NULL)")
    outbox.finish()
    assert sum(map(len, outbox.arrived().values())) == 5


class Hostile:
    """Messages that cannot be sent, written past the checks of SQL, among those that can."""

    def __init__(self, outbox: OutboxWorld) -> None:
        self.outbox = outbox
        self.name = outbox.name
        self.small, self.compacted = f"{outbox.topic}.small", f"{outbox.topic}.compacted"
        self.strict, self.missing = f"{outbox.topic}.strict", f"{outbox.topic}.missing"
        admin = AdminClient({"bootstrap.servers": outbox.bootstrap_servers})
        wanted = [
            NewTopic(self.small, 1, 1, config={"max.message.bytes": "1000"}),
            NewTopic(self.compacted, 1, 1, config={"cleanup.policy": "compact"}),
            NewTopic(self.strict, 1, 1, config={"message.timestamp.before.max.ms": "60000"}),
        ]
        create_topics(admin, wanted)

    @property
    def messages(self) -> list[tuple[str, bytes | None, bytes, Any, str]]:
        """Topic, key, value, headers, and a part of the reason."""
        topic = self.outbox.topic
        unreadable = "cannot be read"
        return [
            ("no such topic!", b"k", b"v", None, "not the name of a Kafka topic"),
            ("__consumer_offsets", b"k", b"v", None, "keep for themselves"),
            (f"{self.name}-control", b"relay.outbox/0", b"{}", None, "internal topic of"),
            ("other-ownership", b"k", b"{}", None, "internal topic of application 'other'"),
            ("other-a.sum-changelog", b"k", b"7", None, "internal topic of application 'other'"),
            (self.missing, b"k", b"v", None, "does not exist"),
            (self.missing, b"k", b"v2", {"a": "b"}, "does not exist"),
            (self.small, b"k", b"x" * 5000, None, "takes 1000"),
            (self.compacted, None, b"v", None, "has no key"),
            (topic, b"k", b"x" * 2_000_000, None, "max.message.bytes"),
            (self.strict, b"k", b"v", None, "Kafka refuses it"),
            *(
                (topic, b"k", b"v", headers, unreadable)
                for headers in ([1, 2, 3], "text", 7, {"a": {"base64": "A"}}, [["a"]], [1])
            ),
        ]

    def write(self, message: tuple[str, bytes | None, bytes, Any, str]) -> None:
        topic, key, value, headers, _ = message
        with psycopg.connect(self.outbox.dsn, autocommit=True) as owner:
            if self.outbox.kind == "table":
                owner.execute(
                    "INSERT INTO eosframework.outbox (topic, key, value, headers, at) "
                    "VALUES (%s, %s, %s, %s, now() - interval '1 day')",
                    [topic, key, value, None if headers is None else Jsonb(headers)],
                )
            else:
                owner.execute(
                    "SELECT pg_logical_emit_message(true, 'eosframework.outbox', %s::bytea)",
                    [entry(topic, key, value, headers)],
                )

    def set_aside(self) -> list[tuple[str, bytes | None, bytes, str]]:
        with psycopg.connect(self.outbox.dsn) as owner:
            return owner.execute(
                "SELECT topic, key, value, reason FROM eosframework.outbox_refused ORDER BY entry"
            ).fetchall()


def readable(kind: str, messages: Sequence[Any]) -> list[Any]:
    """Those that are set aside; an entry of the log that is no message is passed over."""
    return [m for m in messages if kind == "table" or "cannot be read" not in m[-1]]


@pytest.mark.parametrize("kind", [pytest.param("table", marks=pytest.mark.exhaustive), "slot"])
def test_each_message_that_cannot_be_sent_is_set_aside_alone_and_can_be_published_again(
    make_outbox: MakeOutbox, kind: str
) -> None:
    outbox = make_outbox(kind=kind, shards=2)
    hostile = Hostile(outbox)
    if kind == "slot":
        outbox.finish()
    for message in hostile.messages:
        outbox.publish(6, each=2)
        hostile.write(message)
    outbox.publish(6)
    relay = outbox.start_relay(settings=[f"outbox.http_address={ANY_PORT}"])
    outbox.wait_for(6 * (len(hostile.messages) + 1))
    expected = readable(kind, hostile.messages)
    wait_until(lambda: len(hostile.set_aside()) == len(expected), "messages that are set aside")
    found = sorted(hostile.set_aside(), key=str)
    assert [m[:3] for m in found] == sorted((m[:3] for m in expected), key=str)
    for (*what, reason), (*_, part) in zip(
        found, sorted(expected, key=lambda m: str(m[:3])), strict=True
    ):
        assert part in reason or what[1:] == [b"k", b"v"], (what, reason)
    named = relay.events("message_set_aside")
    assert len(named) == len(expected)
    [address] = addresses_of(relay)
    wait_until_ready(address)
    wait_until(lambda: Scraped([address]).sum("outbox_refused_total") == len(expected), "the count")
    unreadable = len(hostile.messages) - len(expected)
    assert Scraped([address]).sum("outbox_unreadable_total") >= unreadable

    create_topics(
        AdminClient({"bootstrap.servers": outbox.bootstrap_servers}),
        [NewTopic(hostile.missing, 1, 1)],
    )
    with psycopg.connect(outbox.dsn, autocommit=True) as owner:
        republished = owner.execute(
            "SELECT eosframework.republish(id) FROM eosframework.outbox_refused WHERE topic = %s",
            [hostile.missing],
        ).fetchall()
    assert republished == [(1,), (1,)]
    wait_until(lambda: len(values_of(outbox, hostile.missing)) == 2, "what was published again")
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0, relay.log[-3000:]
    outbox.finish()
    assert values_of(outbox, hostile.missing) == [b"v", b"v2"]
    verdict = outbox.verify()
    assert verdict.clean, verdict


def values_of(outbox: OutboxWorld, topic: str) -> list[bytes | None]:
    return [message.value() for message in read_committed(outbox.bootstrap_servers, topic)]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", pytest.param("slot", marks=pytest.mark.exhaustive)])
def test_relays_killed_while_they_set_messages_aside_lose_and_double_nothing(
    make_outbox: MakeOutbox, kind: str
) -> None:
    outbox = make_outbox(kind=kind)
    hostile = Hostile(outbox)
    outbox.finish()
    missing = (hostile.missing, b"k", b"v", None, "does not exist")
    strict = (hostile.strict, b"k", b"v", None, "Kafka refuses it")
    steps = ["relay.after_refusals", "relay.before_set_aside", "relay.after_set_aside"]
    for step in steps:
        outbox.publish(5)
        hostile.write(missing if step == "relay.after_refusals" else strict)
        outbox.publish(5)
        relay = outbox.start_relay(faults=[f"{step}=kill@1"])
        relay.wait_for_fault(step)
        assert relay.wait() == -signal.SIGKILL
    # What was set aside is not sent after all, although its topic would take it now.
    create_topics(
        AdminClient({"bootstrap.servers": outbox.bootstrap_servers}),
        [NewTopic(hostile.missing, 1, 1)],
    )
    outbox.finish()
    assert [topic for topic, *_ in hostile.set_aside()] == [
        hostile.missing,
        hostile.strict,
        hostile.strict,
    ]
    assert values_of(outbox, hostile.missing) == values_of(outbox, hostile.strict) == []
    verdict = outbox.verify()
    assert verdict.clean, verdict


def test_where_the_policy_is_to_fail_the_row_is_named_and_what_is_before_it_sent(
    make_outbox: MakeOutbox,
) -> None:
    outbox = make_outbox()
    hostile = Hostile(outbox)
    fail = ["outbox.on_refused=fail"]
    outbox.publish(20)
    hostile.write((outbox.topic, b"k", b"v", [1, 2, 3], ""))
    outbox.publish(20)
    for _ in range(2):
        relay = outbox.start_relay("--until-caught-up", settings=fail)
        assert relay.wait() == 1
        [line] = [line for line in relay.log.splitlines() if line.startswith("error: ")]
        assert "message 21 of eosframework.outbox" in line
        assert "its headers cannot be read" in line
        assert sum(map(len, outbox.arrived().values())) == 20
    with psycopg.connect(outbox.dsn) as connection:
        delete = line.partition("to give it up: ")[2].partition(")")[0]
        assert delete == "DELETE FROM eosframework.outbox WHERE number = 21"
        connection.execute(delete.encode())
    assert outbox.start_relay("--until-caught-up", settings=fail).wait() == 0
    verdict = outbox.verify()
    assert verdict.clean, verdict


GARBAGE: list[bytes] = [
    b"",
    b"\n",
    b"\0\xff",
    b"{}",
    b"[]\n",
    b'{"id": "a"}\n',
    DEEP.encode(),
    b"[" * 200_000,
    entry("t", b"k", b"v")[:-1],
    entry("t", b"k", b"v") + b"x",
    entry(7, b"k", b"v"),
    entry("t", None, None, headers=[1, 2]),
    entry("t", None, None, headers={"a": {"base64": "A"}}),
    entry("t", None, None, headers={"a\0": "b"}),
    entry("t", None, None).replace(b"1700000000000", b"1" * 30),
    entry("t", None, None).replace(b"1700000000000", b"NaN"),
    entry("t", None, None).replace(b'"key": null', b'"key": -5'),
    entry("t", None, None).replace(b'"key": null', b'"key": true'),
]


def test_nobody_forges_a_message_in_the_log_and_garbage_costs_no_other_one(
    make_outbox: MakeOutbox,
) -> None:
    outbox = make_outbox(kind="slot")
    forged = "SELECT pg_logical_emit_message(true, 'eosframework.outbox', %s::bytea)"
    outbox.finish()
    assert outbox.relays[-1].events("log_closed")
    with connected_as_role(outbox) as role:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            role.execute(forged, [entry(outbox.topic, b"k", b"forged")])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            emit(role, outbox.topic, "k", "forged")
    relay = outbox.start_relay(settings=[f"outbox.http_address={ANY_PORT}"])
    relay.wait_for_event("shard_assigned")
    with psycopg.connect(outbox.dsn) as owner:
        for garbage in GARBAGE:
            outbox.publish_on(owner, "k")
            owner.execute(forged, [garbage])
            # Between transactions, at once: it must not count as one of the next transaction's.
            owner.execute(forged.replace("true", "false"), [garbage])
            outbox.publish_on(owner, "k")
            owner.commit()
    outbox.wait_for(2 * len(GARBAGE))
    [address] = addresses_of(relay)
    wait_until(
        lambda: Scraped([address]).sum("outbox_unreadable_total") >= 2 * len(GARBAGE), "the count"
    )
    relay.process.kill()
    relay.wait()
    outbox.publish(5, each=5)
    outbox.finish()
    verdict = outbox.verify()
    assert verdict.clean, verdict


def test_a_relay_that_may_not_close_the_log_reports_who_could_forge_messages(
    make_outbox: MakeOutbox,
) -> None:
    outbox = make_outbox(kind="slot")
    with psycopg.connect(outbox.dsn, autocommit=True) as admin:
        name = f"relay_{uuid.uuid4().hex[:10]}"
        admin.execute(f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD 'secret'".encode())
        admin.execute(
            f"GRANT USAGE ON SCHEMA eosframework TO {name};"
            f"GRANT ALL ON ALL TABLES IN SCHEMA eosframework TO {name};"
            f"CREATE PUBLICATION eosframework_outbox".encode()
        )
        dsn = dsn_with(outbox.dsn, user=name, password="secret")
        try:
            outbox.finish(dsn=dsn)
            [told] = outbox.relays[-1].events("messages_can_be_forged")
            for statement in str(told["fix"]).partition(": ")[2].split("; "):
                admin.execute(statement.encode())
            outbox.publish(5)
            outbox.finish(dsn=dsn)
            assert not outbox.relays[-1].events("messages_can_be_forged")
        finally:
            admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())
    assert outbox.verify().clean


def test_headers_of_every_kind_arrive_as_they_were_written(make_outbox: MakeOutbox) -> None:
    outbox = make_outbox()
    number = 12345678901234567890123
    with psycopg.connect(outbox.dsn) as connection:
        publish(connection, outbox.topic, "k", "v", {"bytes": b"\0\xff", "text": "ü", "none": None})
        connection.execute(
            "SELECT eosframework.publish(%s, 'k', 'w', %s)",
            [outbox.topic, Jsonb({"number": number, "list": [1, "a"]})],
        )
    outbox.finish()
    first, second = read_committed(outbox.bootstrap_servers, outbox.topic)
    assert list(first.headers() or [])[:3] == [
        ("bytes", b"\0\xff"),
        ("text", "ü".encode()),
        ("none", None),
    ]
    assert dict(second.headers() or []) | {"__eos.outbox.id": b""} == {
        "list": b'[1,"a"]',
        "number": str(number).encode(),
        "__eos.outbox.id": b"",
    }
