from __future__ import annotations

import psycopg
import pytest
from psycopg import errors as codes

from eosframework import errors
from eosframework.errors import (
    DatabaseConflict,
    DatabaseRefused,
    DatabaseUnavailable,
    DataRefused,
    EosError,
)
from eosframework.postgres.database.error_classes import (
    Category,
    classify,
    explain,
    table,
    translating,
)


def test_every_row_of_the_table_names_an_error_that_exists() -> None:
    rows = [*table().states.values(), *table().others.values()]

    assert all(issubclass(getattr(errors, row.raises), EosError) for row in rows)


def test_every_code_that_psycopg_knows_has_a_meaning() -> None:
    kinds = [kind for kind in vars(codes).values() if isinstance(kind, type)]
    known = [kind for kind in kinds if issubclass(kind, psycopg.Error) and kind.sqlstate]

    assert len(known) > 200
    assert all(classify(code("said")) for code in known)


@pytest.mark.parametrize(
    ("code", "category"),
    [
        (codes.ConnectionFailure, Category.UNAVAILABLE),
        (codes.AdminShutdown, Category.UNAVAILABLE),
        (codes.CannotConnectNow, Category.UNAVAILABLE),
        (codes.DiskFull, Category.UNAVAILABLE),
        (codes.TooManyConnections, Category.UNAVAILABLE),
        (codes.QueryCanceled, Category.UNAVAILABLE),
        (codes.ReadOnlySqlTransaction, Category.UNAVAILABLE),
        (codes.IdleInTransactionSessionTimeout, Category.UNAVAILABLE),
        (codes.SerializationFailure, Category.CONFLICT),
        (codes.DeadlockDetected, Category.CONFLICT),
        (codes.LockNotAvailable, Category.CONFLICT),
        (codes.UniqueViolation, Category.ROW),
        (codes.CheckViolation, Category.ROW),
        (codes.NumericValueOutOfRange, Category.ROW),
        (codes.ProgramLimitExceeded, Category.ROW),
        (codes.RaiseException, Category.ROW),
        (codes.InsufficientPrivilege, Category.FIX),
        (codes.UndefinedTable, Category.EITHER),
        (codes.UndefinedColumn, Category.EITHER),
        (codes.InternalError_, Category.EITHER),
        (codes.FunctionExecutedNoReturnStatement, Category.EITHER),
        (codes.SequenceGeneratorLimitExceeded, Category.FIX),
        (codes.DataCorrupted, Category.FIX),
        (psycopg.OperationalError, Category.UNAVAILABLE),
        (psycopg.InterfaceError, Category.UNAVAILABLE),
        (psycopg.DataError, Category.ROW),
        (psycopg.ProgrammingError, Category.FIX),
    ],
)
def test_what_follows_from_an_error(code: type[psycopg.Error], category: Category) -> None:
    assert classify(code("said")).category is category


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (codes.AdminShutdown, DatabaseUnavailable),
        (codes.DeadlockDetected, DatabaseConflict),
        (codes.NotNullViolation, DataRefused),
        (codes.UndefinedTable, DatabaseRefused),
    ],
)
def test_an_error_is_raised_by_its_consequence_with_what_was_being_done(
    code: type[psycopg.Error], raised: type[EosError]
) -> None:
    with (
        pytest.raises(raised, match=r"could not write to orders: .*: what it said") as told,
        translating("write to orders"),
    ):
        raise code("what it said")

    assert isinstance(told.value.__cause__, code)
    assert type(told.value) is raised


def test_a_message_says_what_to_mend_and_has_one_line() -> None:
    error = explain(codes.UndefinedTable("there is\nnone"), "write")

    assert str(error) == (
        "could not write: a table does not exist: there is none (42P01); run `eosframework apply`"
    )
