"""The rows of a table sink: columns of the user's rows, in shards and in an order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orjson import Fragment

from eosframework.backfill.spark import arrow_batches
from eosframework.backfill.spark.arrow_batches import RecordBatch
from eosframework.errors import ConfigurationError
from eosframework.processing.ports import Message
from eosframework.records import TopicPartition
from eosframework.spark import values
from eosframework.spark.row_refusals import refusing
from eosframework.spark.shard_rows import the_shard
from eosframework.spark.table.column_types import JSON_MEMBER, form_of, misfit, refusals_of
from eosframework.tables.row_conversion import RowMaker
from eosframework.tables.table_ports import Batch
from eosframework.topology.graph.graph import TableSink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from eosframework.postgres.tables.table_shapes import TableShape

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


def table_row(sink: str, frame: DataFrame, keys: Sequence[str], shape: TableShape) -> Column:
    """Return all columns of each row as the table takes them, as a struct.

    Args:
        sink: its name, for messages.
        frame: the user's rows.
        keys: key columns.
        shape: of the table.

    Raises:
        ConfigurationError: a key column is missing, or the table does not take a column.
    """
    from pyspark.sql import functions as f

    names = list(frame.columns)
    for key in keys:
        if key not in names:
            raise ConfigurationError(
                f"sink {sink!r}: the rows have no column {key!r}, which is a key; expected one of: "
                f"{', '.join(names)}"
            )
    made: list[Column] = []
    row = values.described(frame)
    for field in frame.schema.fields:
        name, kind = field.name, field.dataType
        target = shape.columns.get(name)
        if target is None:
            raise ConfigurationError(
                f"sink {sink!r}: the rows have a column {name!r}, and table {shape.name} has only "
                f"{', '.join(sorted(shape.writable))}; leave the column out, or add it to the table"
            )
        if why := misfit(kind, target):
            raise ConfigurationError(
                f"sink {sink!r}: column {name!r} of the rows cannot be written to table "
                f"{shape.name}: {why}"
            )
        column = f.col(values.quoted(name))
        refusals = refusals_of(column, kind, target)
        if name in keys:
            refusals = [(column.isNull(), f"has null in its key column {name!r}"), *refusals]
        form = refusing(sink, refusals, form_of(column, kind, target), row, advice=values.ADVICE)
        made.append(form.alias(name))
    return f.struct(*made)


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
    rows, documents = arrow_batches.rows_of(structs)
    for name in documents:
        for row in rows:
            document = row[name][JSON_MEMBER]
            row[name] = None if document is None else Fragment(document)
    return rows
