"""Transfers and their sending: plain psycopg, and `publish` in the same transaction."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.errors import CheckViolation
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
    2. insert the transfer, which debits the account (a trigger does); if it exists already, an
       earlier call has done all of this
    3. publish
    """
    with connection.transaction():
        account = connection.execute(
            "SELECT balance FROM accounts WHERE id = %s FOR NO KEY UPDATE", [transfer.debited]
        ).fetchone()
        if account is None:
            raise Refused(f"there is no account {transfer.debited}")
        try:
            kept = connection.execute(
                "INSERT INTO debits (id, debited, credited, amount) VALUES (%s, %s, %s, %s) "
                "ON CONFLICT (id) DO NOTHING",
                [transfer.id, transfer.debited, transfer.credited, transfer.amount],
            )
        except CheckViolation:
            missing = f"{transfer.debited} has {account[0]}, asked for {transfer.amount}"
            raise Refused(missing) from None
        if kept.rowcount:
            publish(connection, topic, transfer.debited, transfer.model_dump_json())
