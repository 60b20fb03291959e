"""What a bank's own program does: debit and publish, in one transaction of its database."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pydantic import SecretStr

from eosframework.config import DatabaseSettings
from eosframework.demo.feeds import example_file
from eosframework.demo.transfer_demo import make_importable
from eosframework.postgres.database import Database, migrate
from eosframework.serialization.references import find


@pytest.fixture
def bank(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection[Any]]:
    """A bank with 100 cents on account `a`."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    make_importable()
    migrate(Database(DatabaseSettings(dsn=SecretStr(database))))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(example_file("transfer", "tables.sql").read_bytes())
        connection.execute("INSERT INTO accounts VALUES ('a', 100)")
        yield connection
    sys.modules.pop("transfers", None)


def send(bank: psycopg.Connection[Any], transfer: Any) -> None:
    find("transfers:send")(bank, "bank_a.transfers", transfer)


def transfer(amount: int, *, debited: str = "a") -> Any:
    kind = find("transfers:Transfer")
    return kind(id=uuid4(), debited=debited, credited="b", amount=amount)


def left(bank: psycopg.Connection[Any]) -> tuple[int, int, int]:
    """The balance, and how many transfers were kept and published."""
    row = bank.execute(
        "SELECT (SELECT balance FROM accounts), (SELECT count(*) FROM debits), "
        "(SELECT count(*) FROM eosframework.outbox)"
    ).fetchone()
    assert row is not None
    return row


def test_a_transfer_asked_for_twice_is_debited_and_published_once(
    bank: psycopg.Connection[Any],
) -> None:
    wanted = transfer(90)
    send(bank, wanted)
    send(bank, wanted)
    assert left(bank) == (10, 1, 1)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [((101, "a"), "a has 100, asked for 101"), ((1, "x"), "there is no account x")],
)
def test_what_would_overdraw_is_refused_and_leaves_nothing(
    bank: psycopg.Connection[Any], wanted: tuple[int, str], reason: str
) -> None:
    with pytest.raises(find("transfers:Refused"), match=reason):
        send(bank, transfer(wanted[0], debited=wanted[1]))
    assert left(bank) == (100, 0, 0)


def test_what_is_appended_to_credits_is_added_to_the_balances(
    bank: psycopg.Connection[Any],
) -> None:
    bank.execute("INSERT INTO accounts VALUES ('c', 0)")
    bank.execute(
        "INSERT INTO credits (id, debited, credited, amount) "
        "SELECT gen_random_uuid(), 'b', credited, amount "
        "FROM (VALUES ('a', 1), ('c', 2), ('a', 3)) AS rows (credited, amount)"
    )
    balances = bank.execute("SELECT id, balance FROM accounts ORDER BY id").fetchall()
    assert balances == [("a", 104), ("c", 2)]


def test_what_credits_an_unknown_account_is_refused(bank: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        bank.execute(
            "INSERT INTO credits (id, debited, credited, amount) "
            "VALUES (gen_random_uuid(), 'b', 'nobody', 1)"
        )
    assert left(bank) == (100, 0, 0)
