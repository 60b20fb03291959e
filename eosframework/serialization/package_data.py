"""Tables that the package ships as YAML files next to the modules that use them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter

Table = TypeVar("Table")
Row = TypeVar("Row")


def read_text(package: str, name: str) -> str:
    """Return the text of the file `name` in `package`."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def read_table(package: str, name: str, kind: type[Table]) -> Table:
    """Return the content of the YAML file `name` in `package`, as a value of `kind`."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content: Any = yaml.load(read_text(package, name), Loader=loader)
    return TypeAdapter(kind).validate_python(content)


def named_rows(rows: Mapping[str, Mapping[str, Any]], kind: type[Row]) -> dict[str, Row]:
    """Return the rows of a table by name, each as a `kind` with that name."""
    named = {name: {"name": name, **row} for name, row in rows.items()}
    adapter = TypeAdapter(kind)
    return {name: adapter.validate_python(row) for name, row in named.items()}
