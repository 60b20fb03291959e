"""What an error of the database means, and what follows: the one classifier.

The table is data (`failures.yaml`). Only COMMIT needs more than a code: whether the server has
said that the transaction is undone, or is gone without a word.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
import yaml
from sqlalchemy.exc import DBAPIError

from eosframework import errors
from eosframework.errors import DatabaseAway, DatabaseFault, DatabaseRefused, EosError

_LAST_WORDS = {"FATAL", "PANIC"}
"""With an error of this severity the server ends the connection."""


_DENIED_SCHEMA = re.compile(r"permission denied for schema (\S+)")
_MAY_USE = (
    "as its owner, grant it: GRANT USAGE ON SCHEMA {schema} (CREATE as well, to make tables in it) "
    "TO the user in database.dsn"
)


class Category(StrEnum):
    """What follows from an error."""

    AWAY = "away"
    CONFLICT = "conflict"
    ROW = "row"
    MEND = "mend"


@dataclass(frozen=True, slots=True)
class Failure:
    """One row of the table.

    Args:
        meaning: of the code, in words.
        raises: name of the class in `eosframework.errors`.
        mend: what somebody has to do first.
    """

    category: Category
    meaning: str
    raises: str
    mend: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """All failures, by SQLSTATE or its class, and by psycopg's class."""

    states: Mapping[str, Failure]
    others: Mapping[str, Failure]


@cache
def table() -> Table:
    """Return the table as it is shipped."""
    text = files("eosframework.postgres").joinpath("failures.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    raises = {name: row["raises"] for name, row in content["categories"].items()}

    def failure(row: dict[str, str]) -> Failure:
        category = row["category"]
        return Failure(Category(category), row["meaning"], raises[category], row.get("mend"))

    return Table(
        {state: failure(row) for state, row in content["states"].items()},
        {name: failure(row) for name, row in content["others"].items()},
    )


def classify(error: psycopg.Error) -> Failure:
    """Return what an error means outside of COMMIT."""
    states = table().states
    if error.sqlstate:
        for known in (error.sqlstate, error.sqlstate[:2]):
            if known in states:
                return states[known]
    ancestors = (kind.__name__ for kind in type(error).__mro__)
    return next(table().others[name] for name in ancestors if name in table().others)


@contextmanager
def translating(doing: str) -> Generator[None]:
    """Raise what follows from an error of the database in place of the error.

    Args:
        doing: for the message, after "could not": "write to public.orders".

    Raises:
        DatabaseAway: the connection is of no more use. In COMMIT, `commit` tells more.
        DatabaseConflict: undone because of another transaction; the same may succeed.
        DataRefused: undone because of its data; the same data would be refused again.
        DatabaseRefused: nothing can succeed until somebody mends something.
    """
    try:
        yield
    except (psycopg.Error, DBAPIError) as error:
        raise explain(error, doing) from error


def commit(connection: psycopg.Connection[Any], doing: str) -> None:
    """Commit the transaction that is open.

    Raises:
        DatabaseAway: whether it is committed only the database knows.
        DatabaseConflict, DataRefused, DatabaseRefused: as `translating`; it is not committed.
    """
    try:
        connection.commit()
    except psycopg.Error as error:
        if _is_answer(error):
            raise explain(error, doing) from error
        reason = _reason(error)
        raise DatabaseAway(
            f"could not {doing}, or the answer is lost: {reason}{_state(error)}",
            reason=reason,
            sqlstate=error.sqlstate,
        ) from error


def explain(error: psycopg.Error | DBAPIError, doing: str) -> EosError:
    """Return the error that says what follows."""
    original = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(original, psycopg.Error):
        return DatabaseAway(f"could not {doing}: {one_line(str(error))}")
    failure = classify(original)
    reason = _reason(original)
    if schema := _DENIED_SCHEMA.match(reason):
        failure = replace(failure, mend=_MAY_USE.format(schema=schema[1]))
    mend = f"; {failure.mend}" if failure.mend else ""
    message = f"could not {doing}: {failure.meaning}: {reason}{_state(original)}{mend}"
    if failure.category is Category.MEND:
        return DatabaseRefused(message)
    kind: type[DatabaseFault] = getattr(errors, failure.raises)
    return kind(message, reason=reason, sqlstate=original.sqlstate)


def one_line(text: str) -> str:
    """Return what libpq or the server said, without line breaks and libpq's conjecture."""
    return " ".join(text.partition("\tThis probably means")[0].split())


def _is_answer(error: psycopg.Error) -> bool:
    """Whether the server answered that the transaction is undone.

    Once a transaction is committed the server can only say so or end the connection, with last
    words or without: an ERROR is always from before.
    """
    if error.sqlstate in (None, "40003"):
        return False
    return error.diag.severity_nonlocalized not in _LAST_WORDS


def _state(error: psycopg.Error) -> str:
    return f" ({error.sqlstate})" if error.sqlstate else ""


def _reason(error: psycopg.Error) -> str:
    said = [error.diag.message_primary or str(error), error.diag.message_detail]
    return ": ".join(one_line(part).rstrip(".") for part in said if part)
