"""Connections to PostgreSQL: named, with time limits on both ends, their DSN never shown.

Named queries from .sql files: `queries.is_standby(connection)`.
Each .sql file in this package describes its queries. Parameters are named.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib.resources import files
from typing import Any, TypeVar

import aiosql
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from eosframework.config import DatabaseSettings
from eosframework.errors import ConfigurationError, DatabaseUnavailable, DatabaseUnusable, EosError
from eosframework.postgres.database.error_classes import as_unusable, explain, one_line, translating


def load_queries(file: str) -> Any:
    """Return the queries of a .sql file in this package, each as a method.

    A query's suffix is the kind of its result: `^` one row or None, `$` one value, `!` the number
    of affected rows, none an iterator of rows, which sends nothing until its first row is
    requested.
    """
    sql = files("eosframework.postgres.database").joinpath(file).read_text(encoding="utf-8")
    return aiosql.from_str(sql, "psycopg")  # pyright: ignore[reportUnknownMemberType]


queries: Any = load_queries("queries.sql")
"""Queries of general use."""


Answer = TypeVar("Answer")

_OLDEST_VERSION = 14

_CANCEL_SECONDS = 5.0
"""Time for the server to accept a request to cancel a statement."""

_NEXT_STEPS = {
    "password authentication failed": "correct user and password in database.dsn",
    "no password supplied": "add the password to database.dsn",
    "no pg_hba.conf entry": "let this user and machine in with the server's pg_hba.conf",
    '" does not exist': "create it, or correct database.dsn",
    "does not support SSL": "remove sslmode from database.dsn, or switch TLS on at the server",
    "certificate": "correct sslrootcert, sslcert or sslmode in database.dsn",
    "translate host name": "correct the host in database.dsn",
    "resolve host": "correct the host in database.dsn",
    "refused": "start the server, or correct host and port in database.dsn",
}
"""Fixes by libpq's message text: libpq has no error code for a failed connection."""

_NO_DSN = (
    "database.dsn is not set; name your PostgreSQL with EOS_DATABASE__DSN, or run "
    "`eosframework database up` for one on this machine and use what it prints"
)
_NOT_A_DSN = (
    "database.dsn is not a connection string; expected "
    "postgresql://user:password@host:port/name, with special characters percent-encoded"
)


class Connection(psycopg.Connection[Any]):
    """A connection that does not wait forever for a silent server.

    TCP detects a machine that is gone, and the server itself ends a statement that takes too long;
    neither detects a server process that hangs.
    """

    silence_seconds: float | None = None
    """The longest duration of one operation. `notifies` needs a timeout below it."""

    _is_over: Callable[[], bool] | None = None

    @contextmanager
    def long_work(self, seconds: float, is_over: Callable[[], bool]) -> Generator[None]:
        """Let each statement of the block, in autocommit, take that much longer.

        Args:
            seconds: in addition to the usual limits, on both ends.
            is_over: called ten times a second; True: cancel the statement.

        Raises:
            psycopg.errors.QueryCanceled: it was cancelled, or took too long.
        """
        silence = self.silence_seconds or 0.0
        longest = f"{round((silence + seconds) * 1000)}ms"
        usual, _ = queries.limit_statements(self, limit=longest)
        self.silence_seconds, self._is_over = 2 * silence + seconds, is_over
        try:
            yield
        finally:
            self.silence_seconds, self._is_over = silence or None, None
            if not self.closed:
                queries.limit_statements(self, limit=usual)

    @contextmanager
    def looking(self, look: Callable[[], object]) -> Generator[None]:
        """Call a function about ten times a second while a statement of the block waits."""

        def is_over() -> bool:
            look()
            return False

        self._is_over = is_over
        try:
            yield
        finally:
            self._is_over = None

    def wait(self, gen: Generator[Any, Any, Answer], *args: Any, **options: Any) -> Answer:
        """Wait for an operation as psycopg does; close the connection when it takes too long."""
        limited = gen if self.silence_seconds is None else self._limited(gen, self.silence_seconds)
        return super().wait(limited, *args, **options)

    def _limited(
        self, work: Generator[Any, Any, Answer], seconds: float
    ) -> Generator[Any, Any, Answer]:
        """Forward every step; psycopg resumes this ten times a second even without an event."""
        deadline = time.monotonic() + seconds
        given_up = is_cancelled = False
        try:
            wanted = next(work)
            while True:
                ready = yield wanted
                if not is_cancelled and self._is_over is not None and self._is_over():
                    is_cancelled = True
                    with suppress(psycopg.Error):
                        self.cancel_safe(timeout=_CANCEL_SECONDS)
                if not ready and not given_up and time.monotonic() > deadline:
                    given_up = True
                    self.cut()
                wanted = work.send(ready)
        except StopIteration as done:
            return done.value
        except psycopg.OperationalError as error:
            if given_up:
                raise psycopg.errors.ConnectionTimeout(
                    f"the server said nothing for {seconds:g} s, so the connection was cut"
                ) from error
            raise

    def cut(self) -> None:
        """Cut the connection; also from another thread, whose operation fails then."""
        with suppress(OSError), socket.socket(fileno=os.dup(self.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)


class Database:
    """The database that the settings name.

    Args:
        settings: its DSN, and time limits.
        application_name: as the server shows it to its administrators.

    Raises:
        ConfigurationError: no database is named, or the DSN is malformed.
    """

    def __init__(
        self, settings: DatabaseSettings, *, application_name: str = "eosframework"
    ) -> None:
        if settings.dsn is None:
            raise ConfigurationError(_NO_DSN)
        self._settings = settings
        self._parameters = _parse(settings.dsn.get_secret_value())
        own = {**_client_limits(settings), "application_name": application_name}
        fixed = {"client_encoding": "utf8"}
        self._conninfo = make_conninfo(**{**own, **self._parameters, **fixed})

    @cached_property
    def display(self) -> str:
        """The database for messages and logs: user, host, port and name, no secret."""
        defaults = {
            option.keyword.decode(): option.val.decode()
            for option in psycopg.pq.Conninfo.get_defaults()
            if option.val
        }
        known = {**defaults, **self._parameters}
        user = known.get("user", "")
        hosts = str(known.get("host") or known.get("hostaddr") or "localhost").split(",")
        ports = str(known.get("port") or "").split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        places = ",".join(f"{host}:{port}" for host, port in zip(hosts, ports, strict=False))
        return f"postgresql://{user}@{places}/{known.get('dbname', user)}"

    def connect(self, *, autocommit: bool = False) -> Connection:
        """Open a connection whose waits all end, on either side, as the settings say.

        Raises:
            DatabaseUnavailable: the database is unavailable, or rejects the connection; the
                message says why.
        """
        try:
            connection = Connection.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            raise self._not_connected(error) from error
        try:
            connection.silence_seconds = (
                self._settings.statement_timeout_seconds + self._settings.network_timeout_seconds
            )
            queries.set_session(connection, **_server_limits(self._settings))
            connection.autocommit = autocommit
        except psycopg.Error as error:
            connection.close()
            raise explain(error, f"connect to {self.display}") from error
        return connection

    @contextmanager
    def session(self, doing: str) -> Generator[Connection]:
        """Connect for the transaction of a command.

        Args:
            doing: for the message, after "could not".

        Raises:
            DatabaseUnusable: any error of the database.
        """
        with as_unusable(), translating(doing), self.connect() as connection:
            yield connection

    def require(self) -> None:
        """Make sure, before anything starts, that the database can be used.

        Raises:
            DatabaseUnusable: it cannot be connected to, is too old, or is a standby.
        """
        try:
            with self.connect(autocommit=True) as connection:
                is_standby = queries.is_standby(connection)
                version = connection.info.server_version
        except (EosError, psycopg.Error) as error:
            raise DatabaseUnusable(one_line(str(error))) from error
        if version < _OLDEST_VERSION * 10_000:
            raise DatabaseUnusable(
                f"{self.display} is PostgreSQL {version // 10_000}; expected {_OLDEST_VERSION} or "
                f"later"
            )
        if is_standby:
            raise DatabaseUnusable(
                f"{self.display} is a standby, which is read-only; name the primary in "
                f"database.dsn, or several hosts with target_session_attrs=read-write"
            )

    def engine(self) -> Engine:
        """Return an SQLAlchemy engine whose connections are those of `connect`, not pooled."""
        return create_engine("postgresql+psycopg://", creator=self.connect, poolclass=NullPool)

    def _not_connected(self, error: psycopg.Error) -> DatabaseUnavailable:
        reason = one_line(str(error))
        if password := self._parameters.get("password"):
            reason = reason.replace(str(password), "…")
        steps = (step for said, step in _NEXT_STEPS.items() if said in reason)
        step = next(steps, "check database.dsn and the server")
        return DatabaseUnavailable(
            f"could not connect to {self.display}: {reason}; {step}",
            reason=reason,
            sqlstate=error.sqlstate,
        )


def _parse(dsn: str) -> dict[str, Any]:
    """Return the parameters of a DSN; errors do not quote it, because it may contain a secret.

    Raises:
        ConfigurationError: it cannot be parsed, or only because a part of the password is taken for
            something else.
    """
    try:
        parameters = conninfo_to_dict(dsn)
    except psycopg.Error:
        raise ConfigurationError(_NOT_A_DSN) from None
    ports = str(parameters.get("port", "")).replace(",", "")
    places = f"{parameters.get('host', '')}{parameters.get('dbname', '')}"
    if not dsn.strip() or "@" in places or (ports and not ports.isdecimal()):
        raise ConfigurationError(_NOT_A_DSN)
    return parameters


def _client_limits(settings: DatabaseSettings) -> Mapping[str, Any]:
    """Return libpq parameters with which the client detects a machine that is gone."""
    seconds = settings.network_timeout_seconds
    return {
        "connect_timeout": settings.connect_timeout_seconds,
        "keepalives_idle": max(1, int(seconds / 2)),
        "keepalives_interval": max(1, int(seconds / 4)),
        "keepalives_count": 2,
        "tcp_user_timeout": int(seconds * 1000),
    }


def _server_limits(settings: DatabaseSettings) -> Mapping[str, str]:
    """Return session settings with which the server releases the locks of a lost client."""
    seconds = settings.network_timeout_seconds
    return {
        "statement": f"{settings.statement_timeout_seconds * 1000:.0f}ms",
        "idle_transaction": f"{settings.idle_transaction_timeout_seconds * 1000:.0f}ms",
        "keepalives_idle": f"{max(1, int(seconds / 2))}s",
        "keepalives_interval": f"{max(1, int(seconds / 4))}s",
        "user_timeout": f"{seconds * 1000:.0f}ms",
    }
