"""The declaration of a batch operator, and the columns that its records have."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Union, cast, get_args, get_origin

from pydantic import BaseModel, Field

from eosframework.errors import TopologyError
from eosframework.serialization.references import closest
from eosframework.topology.spec.keyed_spec import Declared

KEY_COLUMN = "_key"
"""Name of the column that holds the record's key, if the schema has it."""

TIME_COLUMN = "_timestamp"
"""Name of the column that holds the record's event time, if the schema has it."""

_COLUMN_TYPES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
    "string",
    "binary",
    *(f"timestamp[{unit}{zone}]" for zone in ("", ", tz=UTC") for unit in ("s", "ms", "us", "ns")),
)
"""Types that a schema can name; others need a pyarrow.Schema."""

_PYTHON_TYPES: dict[Any, str] = {bool: "bool", int: "int64", float: "float64", str: "string"}


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that the first batch operator after a source reads.

    Args:
        types: Arrow's type of each column, in order.
        required: columns in which a null or a missing field is an error of the record.
        arrow: the pyarrow.Schema, if the user gave one; its types may be nested.
    """

    types: tuple[tuple[str, str], ...]
    required: frozenset[str] = frozenset()
    arrow: Any = field(default=None, compare=False, repr=False)


def columns_of(declared: Any) -> Columns:
    """Return the columns that a schema declares.

    Args:
        declared: types by name, a pydantic model, or a pyarrow.Schema.

    Raises:
        TopologyError: it is none of these, or a type is unknown.
    """
    if isinstance(declared, Mapping):
        columns = _columns_of_map(cast("Mapping[Any, Any]", declared))
    elif _is_model(declared):
        columns = _columns_of_model(declared)
    elif _is_arrow(declared):
        columns = _columns_of_arrow(declared)
    else:
        raise TopologyError(
            f"{declared!r:.80} is of type {type(declared).__name__}, which is no schema; expected "
            f"a map such as {{price: float64}}, a pydantic model, or a pyarrow.Schema"
        )
    names = [name for name, _ in columns.types]
    if not names or len(set(names)) < len(names):
        raise TopologyError(
            f"a schema names each column once, and at least one; found {', '.join(names) or 'none'}"
        )
    return columns


def _columns_of_map(declared: Mapping[Any, Any]) -> Columns:
    return Columns(tuple((str(name), _type_named(name, kind)) for name, kind in declared.items()))


def _type_named(column: Any, kind: Any) -> str:
    named = _PYTHON_TYPES.get(kind, kind) if isinstance(kind, type) else kind
    if named in _COLUMN_TYPES:
        return named
    shown = getattr(named, "__name__", named)
    raise TopologyError(
        f"column {column!r} has type {shown!r}; known are {', '.join(_COLUMN_TYPES)}"
        f"{closest(str(shown), _COLUMN_TYPES)}. For others give a pyarrow.Schema"
    )


def _is_model(declared: Any) -> bool:
    return isinstance(declared, type) and issubclass(declared, BaseModel)


def _columns_of_model(model: type[BaseModel]) -> Columns:
    found: list[tuple[str, str]] = []
    required: set[str] = set()
    for field_name, info in model.model_fields.items():
        name = info.alias or field_name
        given, optional = _without_none(info.annotation)
        kind = _PYTHON_TYPES.get(given)
        if kind is None:
            raise TopologyError(
                f"field {field_name!r} of {model.__name__} is no bool, int, float or str, for "
                f"which a column's type is known; give a pyarrow.Schema in place of the model"
            )
        found.append((name, kind))
        if info.is_required() and not optional:
            required.add(name)
    return Columns(tuple(found), frozenset(required))


def _is_arrow(declared: Any) -> bool:
    """Return True for a pyarrow.Schema, without importing pyarrow."""
    kind = cast("type[Any]", type(declared))
    return kind.__module__.partition(".")[0] == "pyarrow" and kind.__name__ == "Schema"


def _columns_of_arrow(declared: Any) -> Columns:
    return Columns(
        tuple((field.name, str(field.type)) for field in declared),
        frozenset(field.name for field in declared if not field.nullable),
        declared,
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    members = [member for member in get_args(annotation) if member is not type(None)]
    optional = len(members) < len(get_args(annotation))
    return (members[0] if len(members) == 1 else annotation), optional


class BatchSpec(Declared):
    """Call a function with a batch of records, whose values' fields are columns."""

    call: str
    """module:function that takes a pyarrow.RecordBatch. Its result must not depend on how records
    are cut into batches."""

    schema_: str | dict[str, str] | None = Field(default=None, alias="schema")
    """Columns to read from the JSON values: types by name, or the module:attribute of a
    pyarrow.Schema or a pydantic model. Only for the first batch operator after a source; later
    batch operators take the columns that the previous one returns."""
