"""The values of Spark's types as text, as JSON and in Python, whatever a session's settings are.

Spark SQL prints a time in the zone of the session (`spark.sql.session.timeZone`), a date as
`spark.sql.legacy.timeParserPolicy` says and a decimal as `spark.sql.ansi.enabled` does; Parquet
keeps what `spark.sql.parquet.outputTimestampType` leaves of a timestamp; Python gets it in the zone
of its process. So times become texts first, by expressions that read none of these settings: in
UTC, in ISO 8601, with six digits of the second or without a fraction, as pydantic writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from eosframework.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

Leaf = Callable[["Column"], "Column"]
"""Maps the values of a type without parts."""

TEXTS = ("string", "char", "varchar")
INTEGERS = ("byte", "short", "integer", "long")
FLOATS = ("float", "double")
TIMES = ("date", "timestamp", "timestamp_ntz", "time")

_SCALARS = frozenset(
    {"boolean", *INTEGERS, *FLOATS, "decimal", *TEXTS, "binary", *TIMES, "daytimeinterval", "void"}
)
NESTED = frozenset({"array", "map", "struct"})
"""Types that are written as JSON."""

_MEMBER_NAMES = frozenset({"boolean", *INTEGERS, "decimal", *TEXTS, *TIMES})
"""Types of a map's keys whose text is one for equal keys."""

ADVICE = "correct the value, or convert the column"
"""The next step after a value that is refused."""

DESCRIBED = 200
"""Most characters of a row in a message."""

_EPOCH = "1970-01-01"
_MICROSECONDS = 1_000_000
"""In a second."""

_TIMESTAMP_DAYS = 106_751_990
"""Before and after 1970 in Spark's timestamps; its dates have 20 times as many."""


# --- types --------------------------------------------------------------------------------------


def refuse_repeated(frame: DataFrame) -> None:
    """Raise if two columns have one name for Spark.

    Raises:
        ConfigurationError: names the column.
    """
    seen: dict[str, str] = {}
    for name in frame.columns:
        before = seen.setdefault(name.lower(), name)
        if before is name:
            continue
        if before == name or frame.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
            raise ConfigurationError(
                f"the rows have the columns {before!r} and {name!r}, which are one name for Spark; "
                f"rename or drop one of them"
            )


def unwritable(kind: DataType) -> str | None:
    """Return why values of a type cannot be written; None: they can."""
    for part in parts(kind):
        name = part.typeName()
        if name not in _SCALARS | NESTED:
            return f"{part.simpleString()} has no form outside of Spark; cast it, such as to string"
        names = _field_names(part) if name == "struct" else []
        if twice := [one for one in names if names.count(one) > 1]:
            return f"a struct has the field {twice[0]!r} twice; rename one"
    return None


def unwritable_as_json(kind: DataType) -> str | None:
    """Return why values of a type cannot be written as JSON; None: they can."""
    for part in parts(kind):
        if part.typeName() == "map":
            names = _children(part)[0]
            if names.typeName() not in _MEMBER_NAMES:
                return (
                    f"keys of a map are {names.simpleString()}, and members of JSON have names; "
                    f"cast the keys to string"
                )
    return unwritable(kind)


def parts(kind: DataType) -> Iterator[DataType]:
    """Yield a type and the types of all its parts."""
    yield kind
    for part in _children(kind):
        yield from parts(part)


def _field_names(kind: Any) -> list[str]:
    return kind.fieldNames()


def _children(kind: Any) -> list[DataType]:
    match kind.typeName():
        case "array":
            return [kind.elementType]
        case "map":
            return [kind.keyType, kind.valueType]
        case "struct":
            return [field.dataType for field in kind.fields]
        case _:
            return []


# --- in Spark SQL -------------------------------------------------------------------------------


def plain(column: Column, kind: DataType) -> Column:
    """Return a column with all times in it as texts."""
    return _mapped(column, kind, _TIME_TEXTS)


def text(column: Column, kind: Any) -> Column:
    """Return a column of a type without parts as text; binary is taken for UTF-8."""
    from pyspark.sql import functions as f

    if kind.typeName() == "decimal":
        pattern = f"0.{'0' * kind.scale}" if kind.scale else "0"
        return f.call_function("format_number", column, f.lit(pattern))
    return plain(column, kind).cast("string")


def json(column: Column, kind: DataType) -> Column:
    """Return a column as JSON; null stays null. Binary is base64, and null members are written."""
    from pyspark.sql import functions as f

    made, options = plain(column, kind), {"ignoreNullFields": "false"}
    if kind.typeName() not in NESTED:
        member = f.to_json(f.struct(made.alias("v")), options)
        made = f.substring(member, len('{"v":') + 1, f.length(member) - len('{"v":}'))
    else:
        made = f.to_json(made, options)
    return f.when(column.isNotNull(), made)


def without_negative_zero(column: Column, kind: DataType) -> Column:
    """Return a column with 0.0 for -0.0, which is equal."""
    return _mapped(column, kind, dict.fromkeys(FLOATS, _absolute_zero))


def described(frame: DataFrame, most: int | None) -> Column:
    """Return each row as JSON, so that its user finds it.

    Args:
        frame: the user's rows.
        most: only so many characters; None: all.
    """
    from pyspark.sql import functions as f

    known = [one for one in frame.schema.fields if unwritable_as_json(one.dataType) is None]
    columns = [f.col(quoted(one.name)) for one in known]
    members = [plain(column, one.dataType) for column, one in zip(columns, known, strict=True)]
    named = [member.alias(one.name) for member, one in zip(members, known, strict=True)]
    whole = f.to_json(f.struct(*named))
    return whole if most is None else f.substring(whole, 1, most)


def quoted(name: str) -> str:
    """Return the name of a column as `col` takes it."""
    return f"`{name.replace('`', '``')}`"


def json_refusals(column: Column, kind: DataType, name: str) -> list[tuple[Column, str]]:
    """Return what makes a row's JSON inexact, as conditions and reasons.

    Args:
        column: to be written as JSON.
        kind: its type.
        name: of the column, for the reasons.
    """
    tests: Mapping[str, Leaf] = dict.fromkeys(FLOATS, _is_not_finite)
    reason = f"has NaN or an infinity in column {name!r}, which JSON has no number for"
    numbers = [(found_in(column, kind, tests), reason)] if _has(kind, tests) else []
    return numbers + text_refusals(column, kind, name)


def text_refusals(column: Column, kind: DataType, name: str) -> list[tuple[Column, str]]:
    """Return what makes a row's texts inexact, as `json_refusals`."""
    tests: Mapping[str, Leaf] = dict.fromkeys(TEXTS, _is_not_text)
    reason = f"has a text in column {name!r} that is not UTF-8"
    return [(found_in(column, kind, tests), reason)] if _has(kind, tests) else []


def _has(kind: DataType, wanted: Mapping[str, Leaf]) -> bool:
    """Return whether a type or a part of it is one of some types."""
    return any(part.typeName() in wanted for part in parts(kind))


def _mapped(column: Column, kind: Any, leaves: Mapping[str, Leaf]) -> Column:
    """Return a column with a function applied to all parts of some types."""
    from pyspark.sql import functions as f

    if not _has(kind, leaves):
        return column
    match kind.typeName():
        case "array":
            return f.transform(column, lambda item: _mapped(item, kind.elementType, leaves))
        case "map":
            keyed = column
            if _has(kind.keyType, leaves):
                keyed = f.transform_keys(keyed, lambda key, _: _mapped(key, kind.keyType, leaves))
            return f.transform_values(keyed, lambda _, one: _mapped(one, kind.valueType, leaves))
        case "struct":
            members = [
                _mapped(column.getField(field.name), field.dataType, leaves).alias(field.name)
                for field in kind.fields
            ]
            return f.when(column.isNotNull(), f.struct(*members))
        case name:
            return leaves[name](column)


def found_in(column: Column, kind: Any, tests: Mapping[str, Leaf]) -> Column:
    """Return whether a part of some types passes its test."""
    from pyspark.sql import functions as f

    if not _has(kind, tests):
        return f.lit(False)
    match kind.typeName():
        case "array":
            found = f.exists(column, lambda one: found_in(one, kind.elementType, tests))
        case "map":
            found = f.exists(f.map_keys(column), lambda one: found_in(one, kind.keyType, tests))
            found = found | f.exists(
                f.map_values(column), lambda one: found_in(one, kind.valueType, tests)
            )
        case "struct":
            found = f.lit(False)
            for field in kind.fields:
                found = found | found_in(column.getField(field.name), field.dataType, tests)
        case name:
            found = tests[name](column)
    return f.coalesce(found, f.lit(False))


def _date_text(column: Column) -> Column:
    from pyspark.sql import functions as f

    is_near = f.abs(f.unix_date(column)) < _TIMESTAMP_DAYS
    near = f.when(is_near, column.cast("timestamp_ntz").cast("string"))
    printed = f.when(is_near, f.substring_index(near, " ", 1)).otherwise(column.cast("string"))
    return f.translate(printed, "+", "")


def _time_text(column: Column) -> Column:
    """Return a time, or a timestamp without a zone, as text; years above 9999 have no sign."""
    from pyspark.sql import functions as f

    printed = f.translate(column.cast("string"), " +", "T")
    point = f.instr(printed, ".")
    return f.when(point > 0, f.rpad(printed, point + 6, "0")).otherwise(printed)


def _instant_text(column: Column) -> Column:
    """Return a timestamp as text; its parts are printed alone, for speed."""
    from pyspark.sql import functions as f

    since = f.unix_micros(column)
    fraction = f.pmod(since, f.lit(_MICROSECONDS))
    whole = f.lit(timedelta(microseconds=1)) * (since - fraction)
    printed = (f.lit(_EPOCH).cast("timestamp_ntz") + whole).cast("string")
    digits = f.lpad(fraction.cast("string"), 6, "0")
    end = f.when(fraction == 0, "Z").otherwise(f.concat(f.lit("."), digits, f.lit("Z")))
    return f.concat(f.translate(printed, " +", "T"), end)


_TIME_TEXTS: Mapping[str, Leaf] = {
    "date": _date_text,
    "timestamp": _instant_text,
    "timestamp_ntz": _time_text,
    "time": _time_text,
}


def _absolute_zero(column: Column) -> Column:
    from pyspark.sql import functions as f

    return f.when(column == 0, f.abs(column)).otherwise(column)


def _is_not_finite(column: Column) -> Column:
    from pyspark.sql import functions as f

    return f.isnan(column) | (f.abs(column) == float("inf"))


def _is_not_text(column: Column) -> Column:
    from pyspark.sql import functions as f

    return ~f.is_valid_utf8(column.cast("string"))


# --- in Python ----------------------------------------------------------------------------------


def reader_of(kind: Any) -> Callable[[Any], Any]:
    """Return the function that reads what Spark gives Python for a `plain` column.

    Structs and maps are read as dicts, and times as those of Python: a timestamp with UTC. It
    raises ValueError for a year that Python's times do not have.
    """
    match kind.typeName():
        case "array":
            return partial(_read_array, reader_of(kind.elementType))
        case "map":
            return partial(_read_map, reader_of(kind.keyType), reader_of(kind.valueType))
        case "struct":
            readers = [reader_of(field.dataType) for field in kind.fields]
            return partial(_read_struct, kind.fieldNames(), readers)
        case name:
            read = _READERS.get(name)
            return _same if read is None else partial(_read_one, read)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamp_ntz": datetime.fromisoformat,
    "time": time.fromisoformat,
    "binary": bytes,
}


def _same(value: Any) -> Any:
    return value


def _read_one(read: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else read(value)


def _read_array(read: Callable[[Any], Any], items: Any) -> Any:
    return None if items is None else [read(item) for item in items]


def _read_map(key: Callable[[Any], Any], read: Callable[[Any], Any], items: Any) -> Any:
    return None if items is None else {key(name): read(one) for name, one in items.items()}


def _read_struct(names: list[str], readers: list[Callable[[Any], Any]], row: Any) -> Any:
    if row is None:
        return None
    return {name: read(one) for name, read, one in zip(names, readers, row, strict=True)}
