"""The rows of a table sink: columns of the user's rows, in shards and in an order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eosframework.backfill.spark.arrow_batches import RecordBatch
from eosframework.errors import ConfigurationError
from eosframework.processing.ports import Message
from eosframework.records import TopicPartition
from eosframework.spark.row_refusals import refusing
from eosframework.spark.shard_rows import the_shard
from eosframework.tables.row_conversion import RowMaker
from eosframework.tables.table_ports import Batch
from eosframework.topology.graph.graph import TableSink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RESULT_SCHEMA = "shard bigint, row_count bigint"

_SHARD = "eosframework_shard"

_FLOATS = ("float", "double")

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


def table_row(sink: str, frame: DataFrame, keys: Sequence[str]) -> Column:
    """Return all columns of each row, as a struct.

    Raises:
        ConfigurationError: a key column is missing.
    """
    from pyspark.sql import functions as f

    names = list(frame.columns)
    for key in keys:
        if key not in names:
            raise ConfigurationError(
                f"sink {sink!r}: the rows have no column {key!r}, which is a key; expected one of: "
                f"{', '.join(names)}"
            )
    types = dict(frame.dtypes)
    return f.struct(
        *[
            (_filled(sink, name, types[name]) if name in keys else f.col(_quoted(name))).alias(name)
            for name in names
        ]
    )


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

    of = [_hashable(rows, name) for name in keys or rows.columns]
    shard = f.pmod(f.xxhash64(*of), f.lit(shards)).cast("int")
    slot = f.element_at(f.array(*[f.lit(one) for one in slots]), f.col(_SHARD) + 1)
    order = [*keys, *(name for name in rows.columns if name not in keys)]
    types = dict(rows.dtypes)
    # 0.0 and -0.0 compare as equal, so two such rows could change places.
    signs = [f.col(_quoted(name)).cast("string") for name in order if types[name] in _FLOATS]
    numbered = rows.withColumn(_SHARD, shard).repartition(shards, slot)
    return numbered.sortWithinPartitions(*[_hashable(rows, name) for name in order], *signs)


def rows_of(
    batches: Iterable[RecordBatch], sink: str, sequence: int
) -> Iterator[tuple[TopicPartition, list[SparkRow]]]:
    """Yield the rows of each batch of Arrow with their shard; batches without rows are skipped."""
    row, shard = 0, None
    for batch in batches:
        if batch.num_rows:
            shard = the_shard(batch.column(_SHARD).to_pylist(), shard)
            place = TopicPartition(f"sink/{sink}", shard)
            plain: list[dict[str, Any]] = batch.drop_columns([_SHARD]).to_pylist()
            first = position_of(sequence, row)
            yield place, [SparkRow(place, first + n, one) for n, one in enumerate(plain)]
            row += batch.num_rows


def _filled(sink: str, key: str, kind: str) -> Column:
    from pyspark.sql import functions as f

    column = f.col(_quoted(key))
    return refusing(
        sink,
        [(column.isNull(), f.lit(f"has null in its key column {key!r}"))],
        column,
        kind,
        advice="filter such rows out, or choose other keys",
    )


def _hashable(rows: DataFrame, name: str) -> Column:
    """Return a column that can be hashed and sorted, as maps cannot."""
    from pyspark.sql import functions as f

    column = f.col(_quoted(name))
    return f.to_json(column) if dict(rows.dtypes)[name].startswith("map") else column


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
