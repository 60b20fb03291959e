"""The books of a bank from its database: each read is one statement, thus one snapshot."""

from __future__ import annotations

from typing import Any

from eosframework.demo.banks.bank_books import Books
from eosframework.demo.banks.verdict import Entry, Ledgers
from eosframework.postgres import Database, translating

_BOOKS = b"""
SELECT (SELECT coalesce(sum(balance), 0)::bigint FROM accounts), left_.*, arrived.*
FROM (SELECT array_agg(id::text), array_agg(amount) FROM debits) AS left_,
     (SELECT array_agg(id::text), array_agg(amount) FROM credits) AS arrived
"""

_LEDGERS = b"""
SELECT (SELECT json_object_agg(id, balance) FROM accounts),
       (SELECT json_agg(json_build_array(id, debited, credited, amount) ORDER BY number)
        FROM debits),
       (SELECT json_agg(json_build_array(id, debited, credited, amount) ORDER BY number)
        FROM credits)
"""


class Reader:
    """Reads one bank's database over its own connection, opened again after an outage."""

    def __init__(self, bank: str, database: Database) -> None:
        self._bank = bank
        self._database = database
        self._connection: Any = None

    def books(self) -> Books:
        """Return the current books.

        Raises:
            DatabaseAway: the database is unavailable; call again.
        """
        balance, out_ids, out_amounts, in_ids, in_amounts = self._row(_BOOKS)
        return Books(
            self._bank,
            balance,
            dict(zip(out_ids or (), out_amounts or (), strict=True)),
            dict(zip(in_ids or (), in_amounts or (), strict=True)),
        )

    def ledgers(self) -> Ledgers:
        """Return the current accounts and ledgers, line by line.

        Raises:
            DatabaseAway: the database is unavailable; call again.
        """
        accounts, debits, credits_ = self._row(_LEDGERS)
        return Ledgers(
            accounts or {},
            [Entry(*line) for line in debits or ()],
            [Entry(*line) for line in credits_ or ()],
        )

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _row(self, query: bytes) -> Any:
        try:
            with translating(f"read the books of {self._bank}"):
                if self._connection is None:
                    self._connection = self._database.connect(autocommit=True)
                return self._connection.execute(query).fetchone()
        except BaseException:
            self.close()
            raise
