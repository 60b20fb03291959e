"""The records of a Kafka sink as a column of the user's rows, computed by Spark SQL.

A row that cannot be a record is found where the column is computed: before the batch is accepted,
so no shard has committed a part of it (`refused_rows`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any

from eosframework.errors import ConfigurationError
from eosframework.records import EARLIEST_OUTPUT_MS
from eosframework.serialization.serdes import Serde
from eosframework.spark.session import values
from eosframework.spark.session.executors import RecordBatch, Table
from eosframework.spark.sinks.kafka.dead_rows import DeadLetters
from eosframework.spark.sinks.kafka.row_encoders import RowEncoder
from eosframework.spark.sinks.kafka.shard_attempt import ShardRows
from eosframework.spark.sinks.refused_rows import REASON, ROW, Refusal, refusal_columns
from eosframework.topology.graph.graph import Policy
from eosframework.transactions.ports import Output

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


STRUCT = "struct"
"""In place of a column: all columns of the row, as one JSON object."""

HEADERS = "array<struct<key:string,value:binary>>"
"""Type of a column of headers, as in Spark's own Kafka source and sink."""

PARTS = ("topic", "partition", "key", "value", "timestamp", "headers")
"""The columns of a record; a stage has those that are columns of the user's rows."""

_ORDER = ("shard", "timestamp", "hash", *(part for part in PARTS if part != "timestamp"), ROW)
"""The columns that order rows, as far as a stage has them. The order is total, because rows that
are equal in all parts are the same record: by time first, so that readers with windows get no late
records, then by hash, which is compared as a number. Dead letters are equal if their rows are."""

RESULT_SCHEMA = "shard bigint, row_count bigint"

_Form = Callable[[str, "Column", "DataType"], "Column"]
"""Changes a column before it is written; takes its name, the column and its type."""

_BATCH_BYTES = 61
"""Of a batch before its records. Brokers compare the size of a batch, and a record that is large is
a batch of its own."""

_VARINTS = ((64, 1), (8192, 2), (1 << 20, 3), (1 << 27, 4))
"""Lengths below the first number of a pair take as many bytes as the second."""


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """The limits of the topic of all records, as far as they are known.

    Args:
        topic: its name, for messages.
        partitions: number of them.
        most_bytes: largest batch of one record; 0: not known.
        earlier_ms: how much a timestamp may be earlier than now; None: any time.
        later_ms: how much it may be later.
        added_bytes: size of the header that each record gets.
    """

    topic: str = ""
    partitions: int = 2**31 - 1
    most_bytes: int = 0
    earlier_ms: int | None = None
    later_ms: int | None = None
    added_bytes: int = 0


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
        key_serde: encodes the key in Python; None: Spark does.
        serde: likewise for the value.
    """

    topic: str | None
    topic_column: str | None
    key: str | None
    value: str
    headers: str | None
    timestamp: str | None
    partition: str | None
    key_serde: Serde | None = None
    serde: Serde | None = None

    def column(
        self, sink: str, frame: DataFrame, limits: TopicLimits, shards: int, policy: Policy
    ) -> Column:
        """Return the record of each row, its hash, its shard and its refusal, as a struct.

        The shard is a pure function of the key; records without a key are spread by all their
        parts.

        Args:
            sink: its name, for messages.
            frame: the user's rows.
            limits: of the topic.
            shards: number of them.
            policy: for rows that cannot be written.

        Raises:
            ConfigurationError: a column is missing, or has an unsuitable type.
        """
        from pyspark.sql import functions as f

        refusals: list[Refusal] = []
        try:
            values.refuse_repeated(frame)
            parts = self._parts(frame, limits, refusals)
        except ConfigurationError as error:
            raise ConfigurationError(f"sink {sink!r}: {error}. Nothing was written") from None
        if limits.most_bytes:
            refusals.append(_too_large(parts, limits))
        refused = refusal_columns(sink, frame, refusals, policy)
        # A row that is not refused has null there, which leaves the hash as it is.
        whole = f.xxhash64(*parts.values(), refused[ROW])
        place = f.xxhash64(parts["key"]) if "key" in parts else whole
        parts |= {"hash": whole, "shard": f.pmod(place, f.lit(shards)).cast("int"), **refused}
        return f.struct(*[column.alias(name) for name, column in parts.items()])

    def _parts(
        self, frame: DataFrame, limits: TopicLimits, refusals: list[Refusal]
    ) -> dict[str, Column]:
        """Return the parts of a record, and append what refuses rows."""
        parts: dict[str, Column] = {}
        if self.topic_column is not None:
            parts["topic"] = _topics(frame, self.topic_column, refusals)
        if self.partition is not None:
            parts["partition"] = _partitions(frame, self.partition, limits, refusals)
        if self.key is not None:
            parts["key"] = self._keys(frame, self.key, refusals)
        parts["value"] = _bytes(frame, self.value, self.serde, _as_it_is, refusals)
        if self.timestamp is not None:
            parts["timestamp"] = _milliseconds(frame, self.timestamp, limits, refusals)
        if self.headers is not None:
            parts["headers"] = _headers(frame, self.headers, refusals)
        return parts

    def _keys(self, frame: DataFrame, name: str, refusals: list[Refusal]) -> Column:
        if name != STRUCT and _found(frame, name)[1].typeName() == "void":
            raise ConfigurationError(
                f"the key column {name!r} has type void, so every key would be null; name another "
                f"column, or leave key= out to write records without a key"
            )
        key = _bytes(frame, name, self.key_serde, _ordered, refusals)
        advice = "filter such rows out, or leave key= out to write records without a key"
        refusals.append(Refusal(key.isNull(), f"has null in its key column {name!r}", advice))
        return key


def _too_large(parts: Mapping[str, Column], limits: TopicLimits) -> Refusal:
    """Return the refusal of records that are larger than brokers take, to the byte."""
    from pyspark.sql import functions as f

    size = _wire_bytes(parts, limits.added_bytes)
    reason = f.concat(
        f.lit("makes a record of "),
        size.cast("string"),
        f.lit(f" bytes; topic {limits.topic} takes {limits.most_bytes}"),
    )
    advice = f"raise max.message.bytes of {limits.topic}, or make the value smaller"
    return Refusal(size > limits.most_bytes, reason, advice)


def _wire_bytes(parts: Mapping[str, Column], added_bytes: int) -> Column:
    """Return the size of the batch that has one record only."""
    from pyspark.sql import functions as f

    def framed(column: Column) -> Column:
        size = f.coalesce(f.octet_length(column), f.lit(0))
        return _varint_bytes(size) + size

    record = f.lit(3 + added_bytes) + framed(parts["value"])
    record = record + (framed(parts["key"]) if "key" in parts else f.lit(1))
    if "headers" in parts:
        sizes = f.transform(parts["headers"], lambda one: framed(one["key"]) + framed(one["value"]))
        total = f.aggregate(sizes, f.lit(0), lambda before, one: before + one)
        count = f.coalesce(f.size(f.coalesce(parts["headers"], f.array())), f.lit(0))
        record = record + _varint_bytes(count) + f.coalesce(total, f.lit(0))
    else:
        record = record + f.lit(1)
    return f.lit(_BATCH_BYTES) + _varint_bytes(record) + record


def _varint_bytes(number: Column) -> Column:
    from pyspark.sql import functions as f

    [(below, size), *others] = _VARINTS
    made = f.when(number < below, size)
    for below, size in others:
        made = made.when(number < below, size)
    return made.otherwise(5)


def _topics(frame: DataFrame, name: str, refusals: list[Refusal]) -> Column:
    topic = _present(frame, name, "string")
    reason = f"has null in its topic column {name!r}"
    refusals.append(Refusal(topic.isNull(), reason, "filter such rows out"))
    return topic


def _headers(frame: DataFrame, name: str, refusals: list[Refusal]) -> Column:
    """Return the column of headers; null where one of them is invalid."""
    from pyspark.sql import functions as f

    headers = _present(frame, name, HEADERS)
    invalid = f.exists(
        headers,
        lambda one: one.isNull() | one["key"].isNull() | ~f.is_valid_utf8(one["key"]),
    )
    reason = f"has a header without a key of text in column {name!r}"
    refusals.append(Refusal(invalid, reason, "give each header a key"))
    return f.when(~invalid, headers)


def _partitions(
    frame: DataFrame, name: str, limits: TopicLimits, refusals: list[Refusal]
) -> Column:
    """Return the column of partitions; null where there is none of that number."""
    from pyspark.sql import functions as f

    number = _present(frame, name, "int", "smallint", "tinyint", "bigint")
    invalid = number.isNull() | (number < 0) | (number >= limits.partitions)
    reason = f.concat(
        f.lit(f"has {name}="),
        f.coalesce(number.cast("string"), f.lit("null")),
        f.lit(f"; expected a partition from 0 to before {limits.partitions}"),
    )
    advice = "correct the column, or leave partition= out to choose by the key"
    refusals.append(Refusal(invalid, reason, advice))
    return f.when(~invalid, number.cast("int"))


def _bytes(
    frame: DataFrame, name: str, serde: Serde | None, form: _Form, refusals: list[Refusal]
) -> Column:
    """Return a column as bytes: binary as it is, text as UTF-8, other types as JSON.

    Args:
        frame: the user's rows.
        name: of the column, or `STRUCT`.
        serde: encodes it in Python; None: Spark does.
        form: of values, for keys or for values.
        refusals: what refuses rows is appended.
    """
    from pyspark.sql import functions as f

    whole = name == STRUCT
    columns = [f.col(values.quoted(each)) for each in frame.columns]
    read, kind = (f.struct(*columns), frame.schema) if whole else _found(frame, name)
    column = form(name, read, kind)
    if serde is None and kind.typeName() == "binary":
        return column
    if serde is None and kind.typeName() not in values.NESTED:
        return _written(name, values.text(column, kind), values.unwritable(kind)).cast("binary")
    of_part = values.json_refusals if serde is None else values.text_refusals
    fields = frame.schema.fields if whole else []
    of_row = [(f.col(values.quoted(one.name)), one.dataType, one.name) for one in fields]
    for part, part_kind, part_name in of_row or [(read, kind, name)]:
        refusals += [Refusal(*one) for one in of_part(part, part_kind, part_name)]
    if serde is None:
        made = _written(name, values.json(column, kind), values.unwritable_as_json(kind))
        return made.cast("binary")
    plain = _written(name, values.plain(column, kind), values.unwritable(kind))
    data, reason = RowEncoder(name, serde, values.reader_of(kind)).applied(plain)
    refusals.append(Refusal(reason.isNotNull(), reason, "correct the row or the schema"))
    return data


@dataclass(frozen=True, slots=True)
class RefusedColumns:
    """The rows that another sink refuses, as records of a dead-letter topic.

    Args:
        topic: the dead-letter topic.
        refused: returns the other sink's `REASON` and `ROW` of each row.
    """

    topic: str
    refused: Callable[[DataFrame], dict[str, Column]]

    def column(
        self, sink: str, frame: DataFrame, limits: TopicLimits, shards: int, policy: Policy
    ) -> Column:
        """Return the columns of a refused row as a struct, null of any other row.

        Arguments as of `KafkaColumns.column`.
        """
        from pyspark.sql import functions as f

        refused = self.refused(frame)
        hashed = f.xxhash64(refused[REASON], refused[ROW])
        nothing = f.lit(None).cast("binary")
        parts = {
            "value": nothing,
            "hash": hashed,
            "shard": f.pmod(hashed, f.lit(shards)).cast("int"),
        }
        columns = [column.alias(name) for name, column in {**parts, **refused}.items()]
        return f.when(refused[REASON].isNotNull(), f.struct(*columns))


def in_shards(records: DataFrame, shards: int, slots: Sequence[int]) -> DataFrame:
    """Return records with one Spark partition for each shard, in its order.

    Args:
        records: columns as of `KafkaColumns.column`.
        shards: number of them.
        slots: for each shard a number that Spark's shuffle hashes to its partition.
    """
    from pyspark.sql import functions as f

    slot = f.element_at(f.array(*[f.lit(one) for one in slots]), f.col("shard") + 1)
    order = [f.col(name).asc_nulls_last() for name in _ORDER if name in records.columns]
    return records.repartition(shards, slot).sortWithinPartitions(*order)


def in_order(table: Table) -> Table:
    """Return the rows of a table of Arrow as `in_shards` has them, shard after shard.

    Headers, which Arrow does not compare, cannot matter: rows that differ in them only have
    different hashes.

    Args:
        table: columns as of `KafkaColumns.column`.
    """
    names = [name for name in _ORDER if name in table.schema.names and name != "headers"]
    return table.sort_by([(name, "ascending") for name in names])  # nulls last, as there


@dataclass(frozen=True, slots=True)
class ShardPiece:
    """Successive rows of one shard.

    Args:
        shard: number of the shard.
        rows: its rows, in order.
        ahead: this shard and those that are known to follow it.
    """

    shard: int
    rows: ShardRows
    ahead: tuple[int, ...]


def pieces_of(
    batches: Iterable[RecordBatch], topic: str | None, dead_letters: DeadLetters | None = None
) -> Iterator[ShardPiece]:
    """Yield the rows of each batch of Arrow, cut between shards.

    Args:
        batches: of one Spark partition, shard after shard, from the first row of each.
        topic: of all records; None: of the column.
        dead_letters: makes those of refused rows; None: there are none.
    """
    seen = Counter[int]()
    for batch in batches:
        names = [name for name in batch.schema.names if dead_letters or name not in (REASON, ROW)]
        columns = {name: batch.column(name).to_pylist() for name in names}
        outputs = _outputs(columns, topic)
        if dead_letters is not None:
            dead_letters.replace(outputs, columns, seen)
        rows = ShardRows(outputs, columns["hash"])
        runs = [(shard, len(list(run))) for shard, run in groupby(columns["shard"])]
        for n, (shard, count) in enumerate(runs):
            yield ShardPiece(shard, rows.take(count), tuple(one for one, _ in runs[n:]))


def _outputs(columns: Mapping[str, list[Any]], topic: str | None) -> list[Output]:
    headers = columns.get("headers")
    return list(
        zip(
            columns.get("topic") or repeat(topic),
            columns["value"],
            columns.get("key") or repeat(None),
            columns.get("partition") or repeat(-1),
            repeat(None),
            repeat(None),
            columns.get("timestamp") or repeat(0),
            repeat(None) if headers is None else map(_pairs, headers),
            strict=False,  # repeated values have no end
        )
    )


def _pairs(headers: Sequence[Mapping[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    return [(one["key"], one["value"]) for one in headers] if headers else None


def _milliseconds(
    frame: DataFrame, name: str, limits: TopicLimits, refusals: list[Refusal]
) -> Column:
    """Return a column of timestamps as milliseconds; 0 stands for the time of production.

    Earlier times than the first one that a record can have are written as that one. Times that the
    topic does not take are compared with the time at which the batch is computed.
    """
    from pyspark.sql import functions as f

    column = _present(frame, name, "timestamp", "bigint", "int")
    if _found(frame, name)[1].typeName() == "timestamp":
        column = f.unix_millis(column)
    known = f.greatest(column.cast("bigint"), f.lit(EARLIEST_OUTPUT_MS))
    now = f.unix_millis(f.current_timestamp())
    for side, limit in (("before", limits.earlier_ms), ("after", limits.later_ms)):
        if limit is not None:
            distance = now - known if side == "before" else known - now
            reason = f"has a time in {name!r} outside message.timestamp.{side}.max.ms of its topic"
            advice = "correct the time, or raise the limit of the topic"
            refusals.append(Refusal(column.isNotNull() & (distance > limit), reason, advice))
    return f.when(column.isNull(), f.lit(0)).otherwise(known).cast("bigint")


def _as_it_is(name: str, column: Column, kind: DataType) -> Column:
    return column


def _ordered(name: str, column: Column, kind: DataType) -> Column:
    """Return a column of keys of which equal ones are equal bytes.

    Raises:
        ConfigurationError: it has maps, whose entries have no order.
    """
    if any(part.typeName() == "map" for part in values.parts(kind)):
        raise ConfigurationError(
            f"column {name!r} cannot be a key: it has a map, whose entries have no fixed order, so "
            f"equal keys would be different bytes; use an array of structs, sorted with array_sort"
        )
    return values.without_negative_zero(column, kind)


def _written(name: str, column: Column, unwritable: str | None) -> Column:
    """Return a column; raise if its type cannot be written.

    Raises:
        ConfigurationError: names the type.
    """
    if unwritable is not None:
        raise ConfigurationError(f"column {name!r} cannot be written: {unwritable}")
    return column


def _found(frame: DataFrame, name: str) -> tuple[Column, DataType]:
    """Return a column and its type.

    A column of exactly this name comes first, dots included; else Spark decides: it may ignore
    case, and a dot leads into a struct.

    Raises:
        ConfigurationError: there is none.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    if name in frame.columns:
        return f.col(values.quoted(name)), frame.schema[name].dataType
    try:
        [field] = frame.select(name).schema.fields
    except (AnalysisException, ValueError):
        raise ConfigurationError(
            f"the rows have no column {name!r}; expected one of: {', '.join(frame.columns)}. Name "
            f"one of them, a field of a struct as 'column.field', or add the column to the rows"
        ) from None
    return f.col(name), field.dataType


def _present(frame: DataFrame, name: str, *kinds: str) -> Column:
    """Return an existing column of one of some types.

    Raises:
        ConfigurationError: it is missing, or has another type.
    """
    column, kind = _found(frame, name)
    if kind.simpleString() not in kinds:
        raise ConfigurationError(
            f"column {name!r} has type {kind.simpleString()}; expected {' or '.join(kinds)}. Cast "
            f"the column, or name another one"
        )
    return column
