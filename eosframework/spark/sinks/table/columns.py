"""The rows of a table sink: columns of the user's rows, in shards and in an order.

The form in which a column of Spark's rows goes to its column of the table.
The stage has each value as PostgreSQL reads it: times as texts, what goes to a JSON column as JSON,
in a struct so that attempts recognize it. What types alone decide is refused before any row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from orjson import Fragment

from eosframework.errors import ConfigurationError
from eosframework.postgres.tables.table_ports import Batch, RowMaker
from eosframework.records import TopicPartition
from eosframework.spark.session import executors, values
from eosframework.spark.session.executors import RecordBatch
from eosframework.spark.sinks.refused_rows import Refusal, refusal_columns
from eosframework.spark.sinks.sink_entry import the_shard
from eosframework.topology.graph.graph import Policy, TableSink
from eosframework.transactions.ports import Message

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from eosframework.postgres.database.tables.table_shapes import Column as TableColumn
    from eosframework.postgres.database.tables.table_shapes import ColumnType, TableShape

_JSON_MEMBER = "json"
"""Only member of the struct that a JSON column has in the stage."""

_FITS = {
    "boolean": {"boolean"},
    "byte": {"integer", "numeric", "real", "double", "text"},
    "short": {"integer", "numeric", "real", "double", "text"},
    "integer": {"integer", "numeric", "double", "text"},
    "long": {"integer", "numeric", "text"},
    "float": {"real", "double", "numeric", "text"},
    "double": {"double", "numeric", "text"},
    "decimal": {"numeric", "text"},
    "binary": {"bytea"},
    "date": {"date", "timestamp", "text"},
    "timestamp": {"timestamptz", "timestamp", "text"},
    "timestamp_ntz": {"timestamp", "timestamptz", "text"},
    "time": {"time", "text"},
    "daytimeinterval": {"interval"},
}
"""Families of columns that keep every value of a type, or refuse the row."""

_BITS = {"int2": 16, "int4": 32, "int8": 64}
"""Bits of the integers of a kind of column."""

_MOST_DIGITS = 38
"""Digits of Spark's largest decimals."""

_YEAR_1_DAY = -719_162
"""Of 0001-01-01, counted from 1970. PostgreSQL reads earlier times in another form."""

_MICROSECONDS_OF_DAY = 86_400_000_000

_LAST_DAY = {"date": 2_145_042_905, "timestamp": 106_762_939, "timestamptz": 106_762_939}
"""Last days of PostgreSQL's types: 5874897-12-31 and 294276-12-31."""

_MOST_PLACES = 1000
"""More digits after the point than any column has: floats and times may have so many."""


def _form_of(column: Column, kind: Any, target: TableColumn) -> Column:
    """Return a column as its column of the table takes it; call `misfit` before.

    Args:
        column: of the rows.
        kind: its type.
        target: the column of the table.
    """
    from pyspark.sql import functions as f

    if _is_json(target):
        return f.struct(values.json(column, kind).alias(_JSON_MEMBER))
    if kind.typeName() == "array" and (item := target.type.item) is not None:
        return f.transform(column, lambda one: _scalar(one, kind.elementType, item))
    return _scalar(column, kind, target.type)


def _scalar(column: Column, kind: DataType, type_: ColumnType) -> Column:
    from pyspark.sql import functions as f

    made = values.plain(column, kind)
    match kind.typeName(), type_.family:
        case "timestamp", "timestamp":
            return f.substring_index(made, "Z", 1)
        case "timestamp_ntz", "timestamptz":
            return f.concat(made, f.lit("Z"))
        case "void", _:
            return made.cast("string")  # Parquet has no void.
        case _:
            return made


def _is_json(target: TableColumn) -> bool:
    return target.type.family == "json"


def _refusals_of(
    column: Column, kind: Any, target: TableColumn, shape: TableShape
) -> list[Refusal]:
    """Return what refuses a row, as far as its values show it.

    Args:
        column: of the rows.
        kind: its type.
        target: the column of the table.
        shape: of the table.
    """
    found = (values.json_refusals if _is_json(target) else values.text_refusals)(
        column, kind, target.name
    )
    type_ = target.type
    if not _is_json(target) and kind.typeName() == "array" and type_.item is not None:
        type_ = type_.item
    if is_required(target, shape):
        reason = f"has null in column {target.name!r}, which is NOT NULL in the table"
        found.append((column.isNull(), reason))
    for names, test, reason in _tests_of(type_, target):
        tests = dict.fromkeys(names, test)
        found.append((values.found_in(column, kind, tests), f"has {reason}"))
    return [Refusal(*one) for one in found]


def _tests_of(
    type_: ColumnType, target: TableColumn
) -> Iterator[tuple[Sequence[str], values.Leaf, str]]:
    """Yield types of Spark, a test of their values that the database refuses, and the reason."""
    name = target.name
    if type_.kind != "json":
        reason = f"a text with the character U+0000 in column {name!r}, which {type_.kind} lacks"
        yield values.TEXTS, lambda one: one.contains("\0"), reason
    numbers = (*values.INTEGERS, "decimal")
    if bits := _BITS.get(type_.kind):
        end = Decimal(2 ** (bits - 1))
        reason = f"a number in column {name!r} that {target.sql_type} does not hold"
        yield numbers, lambda one: (one >= end) | (one < -end), reason
    if type_.family == "numeric" and type_.size is not None:
        most = Decimal(10) ** min(type_.size - (type_.places or 0), _MOST_DIGITS)
        reason = f"a number in column {name!r} that {target.sql_type} does not hold"
        yield numbers, lambda one: (one >= most) | (one <= -most), reason
    if type_.kind == "varchar" and type_.size is not None:
        length = type_.size
        reason = f"a text in column {name!r} that is longer than {target.sql_type}"
        yield values.TEXTS, lambda one: _characters(one) > length, reason
    if type_.family in _LAST_DAY:
        reason = f"a time in column {name!r} that {target.sql_type} does not hold, or before year 1"
        yield ("date",), partial(_is_beyond, _LAST_DAY[type_.family]), reason
        yield ("timestamp",), _is_before_year_1, reason
        yield ("timestamp_ntz",), lambda one: one < _year_1(), reason


def _characters(column: Column) -> Column:
    from pyspark.sql import functions as f

    return f.char_length(column)


def _is_beyond(last_day: int, column: Column) -> Column:
    from pyspark.sql import functions as f

    day = f.unix_date(column)
    return (day < _YEAR_1_DAY) | (day > last_day)


def _is_before_year_1(column: Column) -> Column:
    from pyspark.sql import functions as f

    return f.unix_micros(column) < _YEAR_1_DAY * _MICROSECONDS_OF_DAY


def _year_1() -> Column:
    from pyspark.sql import functions as f

    return f.lit("0001-01-01 00:00:00").cast("timestamp_ntz")


def misfit(kind: DataType, target: TableColumn) -> str | None:
    """Return why a column of the table does not keep every value of a type; None: it does."""
    why = values.unwritable_as_json(kind) if _is_json(target) else values.unwritable(kind)
    if why is not None:
        return why
    if target.computed:
        return f"column {target.name} is computed by the database, so no row may name it"
    if _is_json(target) or _keeps(kind, target.type):
        return None
    return (
        f"it is {kind.simpleString()}, and column {target.name} is {target.sql_type}, which does "
        f"not keep every value of it; cast it, or change the table"
    )


def _keeps(kind: Any, type_: ColumnType) -> bool:
    name = kind.typeName()
    if name == "void":
        return True
    if name in values.TEXTS:  # The database reads the text of any type, or refuses the row.
        return type_.family != "bytea"
    if name == "array":
        item = kind.elementType
        is_plain = item.typeName() not in values.NESTED
        return type_.item is not None and is_plain and _keeps(item, type_.item)
    if name == "decimal" and kind.scale == 0 and type_.family == "integer":
        return True
    return type_.family in _FITS.get(name, ()) and not _rounds(kind, type_)


def _rounds(kind: Any, type_: ColumnType) -> bool:
    """Return whether a column may have fewer digits after the point than a value."""
    if type_.places is None or kind.typeName() == "date":
        return False
    if kind.typeName() in values.INTEGERS:
        return type_.places < 0
    return getattr(kind, "scale", _MOST_PLACES) > type_.places


RESULT_SCHEMA = "shard bigint, row_count bigint"

_SHARD, _ROW = "eosframework_shard", "row"

ROW_BITS = 32
"""The position of a shard is the batch's sequence and, in this many bits, the number of a row."""


def position_of(sequence: int, row: int = 0) -> int:
    """Return the position of a row in a shard."""
    return (sequence << ROW_BITS) + row


@dataclass(frozen=True, slots=True)
class SparkRow:
    """A row as a message: its position in place of an offset, its columns in place of a value."""

    place: TopicPartition
    position: int
    columns: Mapping[str, Any]

    def topic(self) -> str:
        """The sink."""
        return self.place.topic

    def partition(self) -> int:
        """The shard."""
        return self.place.partition

    def offset(self) -> int:
        """The position."""
        return self.position

    def key(self) -> bytes | None:
        """None: a row has no record."""
        return None

    def value(self) -> bytes | None:
        """None: a row has no record."""
        return None

    def timestamp(self) -> tuple[int, int]:
        """No timestamp."""
        return 0, 0

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """None: a row has no record."""
        return None


class SparkRowMaker(RowMaker):
    """Takes the columns of rows as they are.

    Args:
        sink: with one table.
    """

    def __init__(self, sink: TableSink) -> None:
        super().__init__(sink)

    def add(self, messages: Sequence[Message], batch: Batch) -> None:
        """Add rows, in the order of their positions."""
        [rows] = batch.tables
        for message in messages:
            assert isinstance(message, SparkRow)
            rows.rows.append(message.columns)
            rows.origins.append(message)
        batch.next_offset = messages[-1].offset() + 1


def table_row(
    sink: str, frame: DataFrame, keys: Sequence[str], shape: TableShape, policy: Policy
) -> Column:
    """Return all columns of each row as the table takes them, and its refusal, as a struct.

    Args:
        sink: its name, for messages.
        frame: the user's rows.
        keys: key columns.
        shape: of the table.
        policy: for rows that cannot be written.

    Raises:
        ConfigurationError: a key column is missing, or the table does not take a column.
    """
    from pyspark.sql import functions as f

    refused = refused_by_table(sink, frame, keys, shape, policy)
    made = [
        _form_of(f.col(values.quoted(one.name)), one.dataType, shape.columns[one.name]).alias(
            one.name
        )
        for one in frame.schema.fields
    ]
    return f.struct(*made, *[column.alias(name) for name, column in refused.items()])


def refused_by_table(
    sink: str, frame: DataFrame, keys: Sequence[str], shape: TableShape, policy: Policy
) -> dict[str, Column]:
    """Return the refusal of each row; arguments and errors as of `table_row`."""
    from pyspark.sql import functions as f

    if missing := [key for key in keys if key not in frame.columns]:
        raise ConfigurationError(
            f"sink {sink!r}: the rows have no column {missing[0]!r}, which is a key; expected one "
            f"of: {', '.join(frame.columns)}"
        )
    _refuse_schema(sink, frame, shape)
    nulls = [(f.col(values.quoted(key)).isNull(), key) for key in keys]
    refusals = [Refusal(null, f"has null in its key column {key!r}") for null, key in nulls]
    for field in frame.schema.fields:
        column, target = f.col(values.quoted(field.name)), shape.columns[field.name]
        refusals += _refusals_of(column, field.dataType, target, shape)
    return refusal_columns(sink, frame, refusals, policy)


def _refuse_schema(sink: str, frame: DataFrame, shape: TableShape) -> None:
    """Raise if the types alone show that the table does not take the rows.

    Raises:
        ConfigurationError: names the column.
    """
    try:
        values.refuse_repeated(frame)
    except ConfigurationError as error:
        raise ConfigurationError(f"sink {sink!r}: {error}. Nothing was written") from None
    for field in frame.schema.fields:
        name, target = field.name, shape.columns.get(field.name)
        if target is None:
            raise ConfigurationError(
                f"sink {sink!r}: the rows have a column {name!r}, and table {shape.name} has only "
                f"{', '.join(sorted(shape.writable))}; leave the column out, or add it to the table"
            )
        why = misfit(field.dataType, target)
        if why is None and field.dataType.typeName() == "void" and is_required(target, shape):
            why = (
                "it is void, so every value would be null, and the column of the table is NOT NULL"
            )
        if why is not None:
            raise ConfigurationError(
                f"sink {sink!r}: column {name!r} of the rows cannot be written to table "
                f"{shape.name}: {why}"
            )
    given = set(frame.columns)
    for name, target in shape.columns.items():
        if name not in given and is_required(target, shape) and not target.filled:
            raise ConfigurationError(
                f"sink {sink!r}: the rows have no column {name!r}, which is NOT NULL in table "
                f"{shape.name} and has no default; add it to the rows, or give it a default in the "
                f"table"
            )


def is_required(target: TableColumn, shape: TableShape) -> bool:
    """Return whether the table refuses each row with null in a column."""
    return not target.nullable and not target.computed and not shape.has_trigger


def rows_in_shards(
    rows: DataFrame, keys: Sequence[str], shards: int, slots: Sequence[int]
) -> DataFrame:
    """Return rows with their shard: one Spark partition for each shard, in a total order.

    Args:
        rows: with the columns of the table.
        keys: rows with equal keys are in one shard; empty: rows are spread.
        shards: number of them.
        slots: for each shard a number that Spark's shuffle hashes to its partition.
    """
    from pyspark.sql import functions as f

    of = [f.col(values.quoted(name)) for name in keys or rows.columns]
    shard = f.pmod(f.xxhash64(*of), f.lit(shards)).cast("int")
    slot = f.element_at(f.array(*[f.lit(one) for one in slots]), f.col(_SHARD) + 1)
    order = [*keys, *(name for name in rows.columns if name not in keys)]
    types = dict(rows.dtypes)
    # 0.0 and -0.0 compare as equal, so two such rows could change places.
    floats = [name for name in order if any(kind in types[name] for kind in values.FLOATS)]
    signs = [f.col(values.quoted(name)).cast("string") for name in floats]
    numbered = rows.withColumn(_SHARD, shard).repartition(shards, slot)
    columns = [f.col(values.quoted(name)) for name in order]
    ordered = numbered.sortWithinPartitions(*columns, *signs)
    # In a struct, because mapInArrow takes a dot in a column's name for a field's.
    return ordered.select(_SHARD, f.struct(*columns).alias(_ROW))


def rows_of(
    batches: Iterable[RecordBatch], sink: str, sequence: int
) -> Iterator[tuple[TopicPartition, list[SparkRow]]]:
    """Yield the rows of each batch of Arrow with their shard; batches without rows are skipped."""
    row, shard = 0, None
    for batch in batches:
        if batch.num_rows:
            shard = the_shard(batch.column(_SHARD).to_pylist(), shard)
            place = TopicPartition(f"sink/{sink}", shard)
            plain = _in_python(batch.column(_ROW))
            first = position_of(sequence, row)
            yield place, [SparkRow(place, first + n, one) for n, one in enumerate(plain)]
            row += batch.num_rows


def _in_python(structs: Any) -> list[dict[str, Any]]:
    """Return rows of Arrow; JSON is written as it is."""
    rows, documents = executors.rows_of(structs)
    for name in documents:
        for row in rows:
            document = row[name][_JSON_MEMBER]
            row[name] = None if document is None else Fragment(document)
    return rows
