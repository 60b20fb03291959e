"""A query that the server answers while this process works on something else.

psycopg's cursors send and wait in one step. Here they are two: the query is sent at once, with its
Sync, so that the server is idle again as soon as it has answered. When the result is read, the
connection's buffers already hold as much of it as they can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import fetch_many, send
from psycopg.pq import ExecStatus, Format

from eosframework.postgres.connection import Connection

_INT8 = 20
"""The type's OID in every PostgreSQL."""


class PipelinedQuery:
    """One pending query; the connection is busy until its result is read.

    Args:
        connection: in autocommit.
        sql: a query with $1 and so on in place of numbers.
        numbers: its parameters.

    Raises:
        psycopg.Error: it could not be sent.
    """

    def __init__(self, connection: Connection, sql: str, numbers: Sequence[int]) -> None:
        self._connection = connection
        self._rows: Sequence[tuple[Any, ...]] | None = None
        server = connection.pgconn
        server.send_query_params(
            sql.encode(),
            [b"%d" % number for number in numbers],
            param_types=[_INT8] * len(numbers),
            result_format=Format.BINARY,
        )
        connection.wait(send(server))

    def rows(self) -> Sequence[tuple[Any, ...]]:
        """Wait for the result, once, and return it as the connection's adapters load it.

        Raises:
            psycopg.Error: as a cursor raises it.
        """
        if self._rows is None:
            self._rows = self._taken()
        return self._rows

    def _taken(self) -> Sequence[tuple[Any, ...]]:
        [result] = self._connection.wait(fetch_many(self._connection.pgconn))
        if result.status != ExecStatus.TUPLES_OK:
            raise error_from_result(result, encoding=self._connection.info.encoding)
        loading = Transformer(self._connection)
        loading.set_pgresult(result)
        return loading.load_rows(0, result.ntuples, tuple)
