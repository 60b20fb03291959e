"""Transfers and their sending: plain psycopg, and `publish` in the same transaction."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg import Connection
from pydantic import BaseModel

from eosframework.postgres.outbox import publish


class Transfer(BaseModel):
    """Money in transit from an account of one bank to an account of the other."""

    id: UUID
    debited: str
    credited: str
    amount: int


class Refused(Exception):
    """The account has too little money, or does not exist; nothing was debited."""


def send(connection: Connection[Any], topic: str, transfer: Transfer) -> None:
    """Debit the account and publish the transfer: both, or neither.

    If the answer was lost, call it again with the same transfer.

    1. lock the account: transfers from it are published in the order in which they debit it
    2. insert the transfer; if it exists already, an earlier call has done all of this
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
