"""The records of a Kafka sink as a column of the user's rows, computed by Spark SQL.

A row that cannot be a record fails the batch where the column is computed: before the batch is
accepted, so no shard has committed a part of it.

Rows as Protobuf messages, on executors that may lack the classes that protoc made.
Such a class cannot be pickled by value: its descriptors are sent, and each Python process makes a
class of them.

Keys and values that Python encodes: with schemas of a registry, or with a serde of the user's.
Spark SQL has no function for them, so the stage is computed through a Python function. A batch is
encoded once: its attempts read the bytes from the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any, cast

from eosframework.config import RegistrySettings
from eosframework.errors import ConfigurationError, EosError, RunError
from eosframework.postgres.outbox.relay_position import Destination
from eosframework.records import EARLIEST_OUTPUT_MS
from eosframework.serialization.key_bytes import key_encoder
from eosframework.serialization.schemas import Codec, Format, Registered
from eosframework.serialization.serdes import JSON, Serde, SerdeLike, codec_serde, serde_of
from eosframework.spark.session import values
from eosframework.spark.session.executors import RecordBatch, Table, encoded
from eosframework.spark.sinks.kafka.shard_attempt import ShardRows
from eosframework.spark.sinks.sink_entry import refusing
from eosframework.transactions.ports import Output

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


class MessageEncoder:
    """Encodes the fields of a row as a message that names its schema.

    Args:
        codec: of messages, for the keys or values of a topic.
        settings: of the schema registry that the codec is bound to.
    """

    def __init__(self, codec: Codec, settings: RegistrySettings) -> None:
        self._codec = codec
        self._settings = settings
        self._model = cast(Any, codec.model)

    def __call__(self, fields: Any) -> bytes:
        """Return the bytes of a message; a field that is None is not set.

        Args:
            fields: values by name; those of a nested message are a map, too.

        Raises:
            TypeError: the value is no struct, or a field has another type.
            ValueError: the message has no such field, or the field does not take the value.
        """
        if not isinstance(fields, Mapping):
            raise TypeError(f"a message is made of a struct, not of a {type(fields).__name__}")
        return self._codec.encode(self._model(**cast("Mapping[str, Any]", fields)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the class and without connections."""
        codec, described = self._codec, self._model.DESCRIPTOR
        files = tuple(file.serialized_pb for file in _imported_first([described.file]))
        sent = (codec.declared, codec.topic, codec.is_key, self._settings)
        return _remade, (*sent, files, described.full_name)


@cache
def _remade(
    declared: Registered,
    topic: str | None,
    is_key: bool,
    settings: RegistrySettings,
    files: tuple[bytes, ...],
    message: str,
) -> MessageEncoder:
    """Return the encoder of this process: Spark sends it with each task."""
    from google.protobuf import descriptor_pool, message_factory

    from eosframework.kafka.schema_registry.schema_codecs import open_schemas

    # A pool of its own: the user's modules may have the same files in the default one.
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file)
    model = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    codec = Codec(declared, None, model).at(topic, is_key=is_key, written=True)
    open_schemas([codec], settings, checked=False)
    return MessageEncoder(codec, settings)


def _imported_first(files: Iterable[Any]) -> Iterator[Any]:
    """Yield the descriptors of files, each after those that it imports, and once."""
    done: set[str] = set()

    def each(wanted: Iterable[Any]) -> Iterator[Any]:
        for file in wanted:
            if file.name not in done:
                done.add(file.name)
                yield from each(file.dependencies)
                yield file

    return each(files)


def open_serde(
    wanted: SerdeLike, topic: str | None, settings: RegistrySettings, *, is_key: bool
) -> Serde:
    """Return a serde that can encode here and on executors.

    Args:
        wanted: as the user gave it.
        topic: of all records; None: each has its own.
        settings: of the schema registry.
        is_key: the serde is for keys.

    Raises:
        TopologyError: there is no such serde.
        ConfigurationError: it has no subject, or there is no registry.
        SchemasUnusable: the registry cannot be reached, or lacks or rejects the schema.
    """
    from eosframework.kafka.schema_registry.schema_codecs import open_schemas

    serde = serde_of(wanted)
    if serde.codec is None:
        return replace(serde, encode=key_encoder(serde)) if is_key and serde == JSON else serde
    if topic is None and serde.codec.declared.subject is None:
        raise ConfigurationError(
            f"{serde.name} with topic_column has no subject; give the serde one with subject="
        )
    codec = serde.codec.at(topic, is_key=is_key, written=True)
    open_schemas([codec], settings)
    if codec.declared.format is Format.PROTOBUF:
        return Serde(serde.name, MessageEncoder(codec, settings), None)
    return codec_serde(codec)


@dataclass(frozen=True, slots=True)
class _RowEncoder:
    """Encodes a column's values on executors.

    Args:
        sink: its name, for messages.
        column: name of the column, for messages.
        serde: bound to its registry.
        read: reads what Spark gives Python; see `values.reader_of`.
    """

    sink: str
    column: str
    serde: Serde
    read: Callable[[Any], Any]

    def encode(self, value: Any) -> bytes | None:
        """Return the bytes of a value; None stays None.

        Raises:
            RuntimeError: it does not serialize; the driver raises a RunError.
        """
        if value is None:
            return None
        plain = value
        try:
            plain = self.read(value)
            return self._encoded(plain)
        except EosError as error:
            raise encoded(error) from None
        except Exception as error:
            raise encoded(
                RunError(
                    f"sink {self.sink!r}: the {self.column} of a row does not serialize as "
                    f"{self.serde.name}: {str(error) or type(error).__name__}; the row is "
                    f"{plain!r:.200}. Nothing of its batch was written; correct the row or the "
                    f"schema, and start the query again"
                )
            ) from None

    def _encoded(self, plain: Any) -> bytes:
        if self.serde.model is not None:
            plain = self.serde.model.model_validate(plain)
        return plain if self.serde.encode is None else self.serde.encode(plain)

    def applied(self, column: Column) -> Column:
        """Return the column of the encoded values.

        Args:
            column: as `values.plain` has it.
        """
        from pyspark.sql import functions as f

        return f.udf(self.encode, "binary", useArrow=False)(column)


STRUCT = "struct"
"""In place of a column: all columns of the row, as one JSON object."""

HEADERS = "array<struct<key:string,value:binary>>"
"""Type of a column of headers, as in Spark's own Kafka source and sink."""

PARTS = ("topic", "partition", "key", "value", "timestamp", "headers")
"""The columns of a record; a stage has those that are columns of the user's rows."""

_ORDER = ("shard", "timestamp", "hash", *(part for part in PARTS if part != "timestamp"))
"""The columns that order rows, as far as a stage has them. The order is total, because rows that
are equal in all parts are the same record: by time first, so that readers with windows get no late
records, then by hash, which is compared as a number."""

RESULT_SCHEMA = "shard bigint, row_count bigint"

_Form = Callable[[str, "Column", "DataType"], "Column"]
"""Changes a column before it is written; takes its name, the column and its type."""


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
        self,
        sink: str,
        frame: DataFrame,
        known: Mapping[str, Destination],
        partitions: int | None,
        shards: int,
    ) -> Column:
        """Return the record of each row, its hash and its shard, as a struct.

        The shard is a pure function of the key; records without a key are spread by all their
        parts.

        Args:
            sink: its name, for messages.
            frame: the user's rows.
            known: topics with their limits.
            partitions: of the topic; None: unknown.
            shards: number of them.

        Raises:
            ConfigurationError: a column is missing, or has an unsuitable type.
        """
        try:
            values.refuse_repeated(frame)
            return self._record(sink, frame, known, partitions, shards)
        except ConfigurationError as error:
            raise ConfigurationError(f"sink {sink!r}: {error}. Nothing was written") from None

    def _record(
        self,
        sink: str,
        frame: DataFrame,
        known: Mapping[str, Destination],
        partitions: int | None,
        shards: int,
    ) -> Column:
        """Return the struct of `column`, with the same arguments."""
        from pyspark.sql import functions as f

        value = self._bytes(sink, frame, self.value, self.serde, _as_it_is)
        size = f.coalesce(f.length(value), f.lit(0))
        row = values.described(frame)
        parts: dict[str, Column] = {}
        if self.topic_column is not None:
            parts["topic"] = self._topics(sink, frame, self.topic_column)
        if self.partition is not None:
            parts["partition"] = self._partition(sink, frame, self.partition, partitions)
        if self.key is not None:
            if (
                self.key != STRUCT
                and frame.schema[_known(frame, self.key)].dataType.typeName() == "void"
            ):
                raise ConfigurationError(
                    f"the key column {self.key!r} has type void, so every key would be null; name "
                    f"another column, or leave key= out to write records without a key"
                )
            key = self._bytes(sink, frame, self.key, self.key_serde, _ordered)
            size = size + f.length(key)
            parts["key"] = refusing(
                sink,
                [(key.isNull(), f"has null in its key column {self.key!r}")],
                key,
                row,
                advice="filter such rows out, or leave key= out to write records without a key",
            )
        parts["value"] = self._refusing_large(sink, value, size, row, known.get(self.topic or ""))
        if self.timestamp is not None:
            parts["timestamp"] = _milliseconds(frame, self.timestamp)
        if self.headers is not None:
            parts["headers"] = self._headers(sink, frame, self.headers)
        whole = f.xxhash64(*parts.values())
        place = f.xxhash64(parts["key"]) if "key" in parts else whole
        parts["hash"] = whole
        parts["shard"] = f.pmod(place, f.lit(shards)).cast("int")
        return f.struct(*[column.alias(name) for name, column in parts.items()])

    def _refusing_large(
        self, sink: str, value: Column, size: Column, row: Column, found: Destination | None
    ) -> Column:
        from pyspark.sql import functions as f

        if found is None or not found.most_bytes:
            return value
        reason = f.concat(
            f.lit("makes a record of "),
            size.cast("string"),
            f.lit(f" bytes; topic {self.topic} takes {found.most_bytes}"),
        )
        return refusing(
            sink,
            [(size > found.most_bytes, reason)],
            value,
            row,
            advice=f"raise max.message.bytes of {self.topic}, or make the value smaller",
        )

    def _topics(self, sink: str, frame: DataFrame, name: str) -> Column:
        from pyspark.sql import functions as f

        topic = f.col(_present(frame, name, "string"))
        return refusing(
            sink,
            [(topic.isNull(), f"has null in its topic column {name!r}")],
            topic.cast("string"),
            values.described(frame),
            advice="filter such rows out",
        )

    def _headers(self, sink: str, frame: DataFrame, name: str) -> Column:
        from pyspark.sql import functions as f

        headers = f.col(_present(frame, name, HEADERS))
        invalid = f.exists(
            headers,
            lambda one: one.isNull() | one["key"].isNull() | ~f.is_valid_utf8(one["key"]),
        )
        return refusing(
            sink,
            [(invalid, f"has a header without a key of text in column {name!r}")],
            headers,
            values.described(frame),
            advice="give each header a key",
        )

    def _bytes(
        self, sink: str, frame: DataFrame, name: str, serde: Serde | None, form: _Form
    ) -> Column:
        """Return a column as bytes: binary as it is, text as UTF-8, other types as JSON.

        Args:
            sink: its name, for messages.
            frame: the user's rows.
            name: of the column, or `STRUCT`.
            serde: encodes it in Python; None: Spark does.
            form: of values, for keys or for values.
        """
        from pyspark.sql import functions as f

        whole = name == STRUCT
        kind: DataType = frame.schema if whole else frame.schema[_known(frame, name)].dataType
        columns = [f.col(values.quoted(each)) for each in frame.columns]
        column = f.struct(*columns) if whole else f.col(values.quoted(name))
        column = form(name, column, kind)
        if serde is None and kind.typeName() == "binary":
            return column
        refusals: list[tuple[Column, str]] = []
        if serde is not None:
            plain = _written(name, values.plain(column, kind), values.unwritable(kind))
            made = _RowEncoder(sink, name, serde, values.reader_of(kind)).applied(plain)
            refusals_of = values.text_refusals
        elif kind.typeName() in values.NESTED:
            made = _written(name, values.json(column, kind), values.unwritable_as_json(kind))
            refusals_of = values.json_refusals
        else:
            made = _written(name, values.text(column, kind), values.unwritable(kind))
            return made.cast("binary")
        for part in frame.schema.fields if whole else [frame.schema[name]]:
            refusals += refusals_of(f.col(values.quoted(part.name)), part.dataType, part.name)
        row = values.described(frame)
        return refusing(sink, refusals, made.cast("binary"), row, advice=values.ADVICE)

    def _partition(self, sink: str, frame: DataFrame, name: str, partitions: int | None) -> Column:
        from pyspark.sql import functions as f

        number = f.col(_present(frame, name, "int", "smallint", "tinyint", "bigint"))
        end = f.lit(2**31 - 1 if partitions is None else partitions)
        return refusing(
            sink,
            [
                (
                    number.isNull() | (number < 0) | (number >= end),
                    f.concat(
                        f.lit(f"has {name}="),
                        f.coalesce(number.cast("string"), f.lit("null")),
                        f.lit("; expected a partition from 0 to before "),
                        end.cast("string"),
                    ),
                )
            ],
            number.cast("int"),
            values.described(frame),
            advice="correct the column, or leave partition= out to choose by the key",
        )


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


def pieces_of(batches: Iterable[RecordBatch], topic: str | None) -> Iterator[ShardPiece]:
    """Yield the rows of each batch of Arrow, cut between shards.

    Args:
        batches: of one Spark partition, shard after shard.
        topic: of all records; None: of the column.
    """
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        rows = ShardRows(_outputs(columns, topic), columns["hash"])
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


def _milliseconds(frame: DataFrame, name: str) -> Column:
    """Return a column of timestamps as milliseconds; 0 stands for the time of production.

    Earlier times than the first one that a record can have are written as that one.
    """
    from pyspark.sql import functions as f

    column = f.col(_present(frame, name, "timestamp", "bigint", "int"))
    if dict(frame.dtypes)[name] == "timestamp":
        column = f.unix_millis(column)
    known = f.greatest(column.cast("bigint"), f.lit(EARLIEST_OUTPUT_MS))
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


def _known(frame: DataFrame, name: str) -> str:
    """Return the name of an existing column.

    Raises:
        ConfigurationError: it is missing.
    """
    if name not in frame.columns:
        raise ConfigurationError(
            f"the rows have no column {name!r}; expected one of: {', '.join(frame.columns)}. Name "
            f"one of them, or add the column to the rows"
        )
    return name


def _present(frame: DataFrame, name: str, *kinds: str) -> str:
    """Return the name of an existing column of one of some types, quoted.

    Raises:
        ConfigurationError: it is missing, or has another type.
    """
    kind = dict(frame.dtypes)[_known(frame, name)]
    if kinds and kind not in kinds:
        raise ConfigurationError(
            f"column {name!r} has type {kind}; expected {' or '.join(kinds)}. Cast the column, or "
            f"name another one"
        )
    return values.quoted(name)
