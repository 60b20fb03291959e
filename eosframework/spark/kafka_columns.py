"""The records of a Kafka sink as a column of the user's rows, computed by Spark SQL.

A row that cannot be a record fails the batch where the column is computed: before the batch is
accepted, so no shard has committed a part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eosframework.backfill.spark.arrow_batches import RecordBatch
from eosframework.errors import ConfigurationError
from eosframework.outbox.outbox_ports import Destination
from eosframework.spark.row_refusals import refusing
from eosframework.spark.shard_attempt import ShardRow
from eosframework.spark.shard_rows import the_shard

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STRUCT = "struct"
"""In place of a column: all columns of the row, as one JSON object."""

HEADERS = "array<struct<key:string,value:binary>>"
"""Type of a column of headers, as in Spark's own Kafka source and sink."""

_ORDER = ("timestamp", "key", "topic", "partition", "value", "headers")
"""Sort key of a shard: a total order. By time first, so that readers with windows get no late
records; rows that are equal in all of these are the same record."""

RESULT_SCHEMA = "shard bigint, row_count bigint"


@dataclass(frozen=True, slots=True)
class KafkaColumns:
    """The columns of the user's rows that make a record.

    Args:
        topic: of all records; None: of the column `topic_column`.
        topic_column: name of a column of topics.
        key: name of the column, or `STRUCT`; None: records have no key.
        value: likewise.
        headers: name of a column of `HEADERS`; None: records have none.
        timestamp: name of a column: a timestamp, or milliseconds since the epoch; None: the time at
            which the record is produced.
        partition: name of a column of numbers; None: by the key, as live producers choose.
    """

    topic: str | None
    topic_column: str | None
    key: str | None
    value: str
    headers: str | None
    timestamp: str | None
    partition: str | None

    def column(
        self, sink: str, frame: DataFrame, known: Mapping[str, Destination], partitions: int | None
    ) -> Column:
        """Return the record of each row, as a struct.

        Args:
            sink: its name, for messages.
            frame: the user's rows.
            known: topics with their limits.
            partitions: of the topic; None: unknown.

        Raises:
            ConfigurationError: a column is missing, or has an unsuitable type.
        """
        from pyspark.sql import functions as f

        topic = f.lit(self.topic) if self.topic is not None else self._topics(sink, frame)
        key = f.lit(None).cast("binary") if self.key is None else self._bytes(frame, self.key)
        value = self._bytes(frame, self.value)
        if self.key is not None:
            key = refusing(
                sink,
                [(key.isNull(), f.lit(f"has null in its key column {self.key!r}"))],
                key,
                "binary",
                advice="filter such rows out, or leave key= out to write records without a key",
            )
        found = known.get(self.topic or "")
        if found is not None and found.most_bytes:
            size = f.length(value) + f.coalesce(f.length(key), f.lit(0))
            value = refusing(
                sink,
                [
                    (
                        size > found.most_bytes,
                        f.concat(
                            f.lit("makes a record of "),
                            size.cast("string"),
                            f.lit(f" bytes; topic {self.topic} takes {found.most_bytes}"),
                        ),
                    )
                ],
                value,
                "binary",
                advice=f"raise max.message.bytes of {self.topic}, or make the value smaller",
            )
        return f.struct(
            topic.alias("topic"),
            self._partition(sink, frame, partitions).alias("partition"),
            key.alias("key"),
            value.alias("value"),
            self._timestamp(frame).alias("timestamp"),
            self._headers(frame).alias("headers"),
        )

    def _topics(self, sink: str, frame: DataFrame) -> Column:
        from pyspark.sql import functions as f

        assert self.topic_column is not None
        topic = f.col(_present(frame, self.topic_column))
        return refusing(
            sink,
            [(topic.isNull(), f.lit(f"has null in its topic column {self.topic_column!r}"))],
            topic,
            "string",
            advice="filter such rows out",
        )

    def _bytes(self, frame: DataFrame, name: str) -> Column:
        """Return a column as bytes: binary as it is, text as UTF-8, other types as JSON."""
        from pyspark.sql import functions as f

        if name == STRUCT:
            return _json(f.struct(*[f.col(_quoted(each)) for each in frame.columns]))
        column, kind = f.col(_present(frame, name)), dict(frame.dtypes)[name]
        if kind == "binary":
            return column
        if kind.startswith(("struct", "array", "map")):
            return f.when(column.isNotNull(), _json(column))
        return column.cast("string").cast("binary")

    def _partition(self, sink: str, frame: DataFrame, partitions: int | None) -> Column:
        from pyspark.sql import functions as f

        if self.partition is None:
            return f.lit(-1)
        number = f.col(_present(frame, self.partition, "int", "smallint", "tinyint", "bigint"))
        end = f.lit(2**31 - 1 if partitions is None else partitions)
        return refusing(
            sink,
            [
                (
                    number.isNull() | (number < 0) | (number >= end),
                    f.concat(
                        f.lit(f"has {self.partition}="),
                        f.coalesce(number.cast("string"), f.lit("null")),
                        f.lit("; expected a partition from 0 to before "),
                        end.cast("string"),
                    ),
                )
            ],
            number,
            "int",
            advice="correct the column, or leave partition= out to choose by the key",
        )

    def _timestamp(self, frame: DataFrame) -> Column:
        from pyspark.sql import functions as f

        if self.timestamp is None:
            return f.lit(0).cast("bigint")
        column = f.col(_present(frame, self.timestamp, "timestamp", "bigint", "int"))
        if dict(frame.dtypes)[self.timestamp] == "timestamp":
            column = f.unix_millis(column)
        return f.coalesce(column.cast("bigint"), f.lit(0).cast("bigint"))

    def _headers(self, frame: DataFrame) -> Column:
        from pyspark.sql import functions as f

        if self.headers is None:
            return f.lit(None).cast(HEADERS)
        return f.col(_present(frame, self.headers, HEADERS)).cast(HEADERS)


def in_shards(records: DataFrame, shards: int, slots: Sequence[int]) -> DataFrame:
    """Return records with their shard and hash: one Spark partition for each shard, in its order.

    The shard is a pure function of the key; records without a key are spread by all their parts.

    Args:
        records: columns as of `KafkaColumns.column`.
        shards: number of them.
        slots: for each shard a number that Spark's shuffle hashes to its partition.
    """
    from pyspark.sql import functions as f

    parts = [f.col(name) for name in _ORDER]
    whole = records.withColumn("hash", f.xxhash64(*parts))
    place = f.when(f.col("key").isNull(), f.col("hash")).otherwise(f.xxhash64("key"))
    numbered = whole.withColumn("shard", f.pmod(place, f.lit(shards)).cast("int"))
    slot = f.element_at(f.array(*[f.lit(one) for one in slots]), f.col("shard") + 1)
    return numbered.repartition(shards, slot).sortWithinPartitions(*_ORDER)


def rows_of(batches: Iterable[RecordBatch]) -> Iterator[tuple[int, list[ShardRow]]]:
    """Yield the rows of each batch of Arrow with their shard; batches without rows are skipped."""
    shard: int | None = None
    for batch in batches:
        if batch.num_rows:
            columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
            shard = the_shard(columns["shard"], shard)
            yield shard, _rows(columns)


def _rows(columns: Mapping[str, list[Any]]) -> list[ShardRow]:
    names = ("topic", "value", "key", "partition", "timestamp", "headers", "hash")
    return [
        ShardRow((topic, value, key, partition, None, None, timestamp, _pairs(headers)), digest)
        for topic, value, key, partition, timestamp, headers, digest in zip(
            *(columns[name] for name in names), strict=True
        )
    ]


def _pairs(headers: Sequence[Mapping[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    return [(one["key"], one["value"]) for one in headers] if headers else None


def _json(column: Column) -> Column:
    from pyspark.sql import functions as f

    return f.to_json(column, {"ignoreNullFields": "false"}).cast("binary")


def _present(frame: DataFrame, name: str, *kinds: str) -> str:
    """Return the name of an existing column of one of some types, quoted.

    Raises:
        ConfigurationError: it is missing, or has another type.
    """
    types = dict(frame.dtypes)
    if name not in types:
        raise ConfigurationError(
            f"the rows have no column {name!r}; expected one of: {', '.join(types)}"
        )
    if kinds and types[name] not in kinds:
        raise ConfigurationError(
            f"column {name!r} has type {types[name]}; expected {' or '.join(kinds)}"
        )
    return _quoted(name)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
