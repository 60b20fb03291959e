"""A transfer, and how a bank sends one: plain psycopg, and `publish` in the same transaction."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg import Connection
from pydantic import BaseModel

from eosframework.outbox import publish


class Transfer(BaseModel):
    """Money on its way from an account of one bank to one of the other."""

    id: UUID
    debited: str
    credited: str
    amount: int


class Refused(Exception):
    """The account does not have the money, or does not exist; nothing was debited."""


def send(connection: Connection[Any], topic: str, transfer: Transfer) -> None:
    """Debit the account and publish the transfer: both, or neither.

    May be called again with the same transfer when the answer was lost.

    1. lock the account: transfers from it are published in the order in which they debit it
    2. keep the transfer; if it is there already, all of this has been done
    3. debit  4. publish
    """
    with connection.transaction():
        account = connection.execute(
            "SELECT balance FROM accounts WHERE id = %s FOR NO KEY UPDATE", [transfer.debited]
        ).fetchone()
        if account is None:
            raise Refused(f"there is no account {transfer.debited}")
        kept = connection.execute(
            "INSERT INTO debits (id, debited, credited, amount) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (id) DO NOTHING",
            [transfer.id, transfer.debited, transfer.credited, transfer.amount],
        )
        if kept.rowcount == 0:
            return
        if account[0] < transfer.amount:
            raise Refused(f"{transfer.debited} has {account[0]}, asked for {transfer.amount}")
        connection.execute(
            "UPDATE accounts SET balance = balance - %s WHERE id = %s",
            [transfer.amount, transfer.debited],
        )
        publish(connection, topic, transfer.debited, transfer.model_dump_json())
