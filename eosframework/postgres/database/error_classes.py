"""The one classifier of database errors: their meaning and consequence.

The table is data (`failures.yaml`). Only COMMIT needs more than a code: whether the server answered
that the transaction is rolled back, or the connection was lost.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

import psycopg
from sqlalchemy.exc import DBAPIError

from eosframework import errors
from eosframework.errors import (
    DatabaseFault,
    DatabaseRefused,
    DatabaseUnavailable,
    DataRefused,
    EosError,
)
from eosframework.serialization.yaml_text import read_table

_LAST_WORDS = {"FATAL", "PANIC"}
"""With an error of this severity the server ends the connection."""

_COPIED = re.compile(r"COPY .*, line \d+, column (.+?):")
"""The value that COPY could not read, in the server's words."""

_DENIED_SCHEMA = re.compile(r"permission denied for schema (\S+)")
_MAY_USE = (
    "as its owner, grant it: GRANT USAGE ON SCHEMA {schema} (CREATE as well, to make tables in it) "
    "TO the user in database.dsn"
)


class Category(StrEnum):
    """Consequences of an error."""

    UNAVAILABLE = "unavailable"
    CONFLICT = "conflict"
    ROW = "row"
    EITHER = "either"
    FIX = "fix"


@dataclass(frozen=True, slots=True)
class Failure:
    """One row of the table.

    Args:
        meaning: of the code, as text.
        raises: name of the class in `eosframework.errors`.
        fix: the fix that is needed first.
    """

    category: Category
    meaning: str
    raises: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """All failures, by SQLSTATE or its class, function of the server, and psycopg's class."""

    states: Mapping[str, Failure]
    functions: Mapping[str, Failure]
    others: Mapping[str, Failure]


@cache
def table() -> Table:
    """Return the table as it is shipped."""
    content = read_table("eosframework.postgres.database", "failures.yaml", dict[str, Any])
    raises = {name: row["raises"] for name, row in content["categories"].items()}

    def failure(row: dict[str, str]) -> Failure:
        category = row["category"]
        return Failure(Category(category), row["meaning"], raises[category], row.get("fix"))

    return Table(
        {state: failure(row) for state, row in content["states"].items()},
        {name: failure(row) for name, row in content["functions"].items()},
        {name: failure(row) for name, row in content["others"].items()},
    )


def classify(error: psycopg.Error) -> Failure:
    """Return the meaning of an error outside of COMMIT."""
    if error.sqlstate:
        states = table().states
        known = (error.sqlstate, error.sqlstate[:2], "*")
        failure = next(states[state] for state in known if state in states)
        if failure.category in (Category.FIX, Category.EITHER):
            return table().functions.get(error.diag.source_function or "", failure)
        return failure
    ancestors = (kind.__name__ for kind in type(error).__mro__)
    return next(table().others[name] for name in ancestors if name in table().others)


@contextmanager
def translating(doing: str) -> Generator[None]:
    """Raise the error's class of `eosframework.errors` in place of a database error.

    Args:
        doing: for the message, after "could not": "write to public.orders".

    Raises:
        DatabaseUnavailable: the connection is no longer usable. For COMMIT, `commit` is more
            precise.
        DatabaseConflict: rolled back because of another transaction; the same may succeed.
        DataRefused: rolled back because of its data; the same data would be rejected again.
        DatabaseRefused: nothing can succeed until the cause is fixed.
    """
    try:
        yield
    except (psycopg.Error, DBAPIError) as error:
        raise explain(error, doing) from error


@contextmanager
def as_unusable() -> Generator[None]:
    """Raise DatabaseUnusable in place of a classified error, for commands."""
    try:
        yield
    except (DatabaseFault, DatabaseRefused) as error:
        raise errors.DatabaseUnusable(str(error)) from error


def commit(connection: psycopg.Connection[Any], doing: str) -> None:
    """Commit the open transaction.

    Raises:
        DatabaseUnavailable: it may or may not be committed.
        DatabaseConflict, DataRefused, DatabaseRefused: as `translating`; it is not committed.
    """
    try:
        connection.commit()
    except psycopg.Error as error:
        if _is_answer(error):
            raise explain(error, doing) from error
        reason = _reason(error)
        raise DatabaseUnavailable(
            f"could not {doing}, or the answer is lost: {reason}{_state(error)}",
            reason=reason,
            sqlstate=error.sqlstate,
        ) from error


def explain(error: psycopg.Error | DBAPIError, doing: str) -> EosError:
    """Return the classified error."""
    original = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(original, psycopg.Error):
        return DatabaseUnavailable(f"could not {doing}: {one_line(str(error))}")
    failure = classify(original)
    reason = _reason(original)
    if schema := _DENIED_SCHEMA.match(reason):
        failure = replace(failure, fix=_MAY_USE.format(schema=schema[1]))
    fix = f"; {failure.fix}" if failure.fix else ""
    message = f"could not {doing}: {failure.meaning}: {reason}{_state(original)}{fix}"
    if failure.category in (Category.FIX, Category.EITHER):
        return DatabaseRefused(message)
    kind: type[DatabaseFault] = getattr(errors, failure.raises)
    return kind(message, reason=reason, sqlstate=original.sqlstate)


def as_refusal(error: psycopg.Error) -> DataRefused:
    """Return an error of the category `either` as one of a row's data."""
    reason = _reason(error)
    return DataRefused(f"{reason}{_state(error)}", reason=reason, sqlstate=error.sqlstate)


def one_line(text: str) -> str:
    """Return a message of libpq or the server without line breaks and libpq's conjecture."""
    return " ".join(text.partition("\tThis probably means")[0].split())


def _is_answer(error: psycopg.Error) -> bool:
    """Return whether the server answered that the transaction is rolled back.

    Once a transaction is committed the server can only say so or end the connection, with a message
    or without: an ERROR is always from before the commit.
    """
    if error.sqlstate in (None, "40003"):
        return False
    return error.diag.severity_nonlocalized not in _LAST_WORDS


def _state(error: psycopg.Error) -> str:
    return f" ({error.sqlstate})" if error.sqlstate else ""


def _reason(error: psycopg.Error) -> str:
    said = [error.diag.message_primary or str(error), error.diag.message_detail]
    reason = ": ".join(one_line(part).rstrip(".") for part in said if part)
    copied = _COPIED.match(error.diag.context or "")
    return f"column {copied[1]}: {reason}" if copied else reason
