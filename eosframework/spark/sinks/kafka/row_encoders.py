"""Keys and values that Python encodes: with schemas of a registry, or with a serde of the user's.

Spark SQL has no function for them, so the stage is computed through a Python function. A batch is
encoded once: its attempts read the bytes from the stage.

Protobuf messages are made on executors that may lack the classes that protoc made. Such a class
cannot be pickled by value: its descriptors are sent, and each Python process makes a class of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from eosframework.config import RegistrySettings
from eosframework.errors import ConfigurationError, EosError
from eosframework.serialization.key_bytes import key_encoder
from eosframework.serialization.schemas import Codec, Format, Registered
from eosframework.serialization.serdes import JSON, Serde, SerdeLike, codec_serde, serde_of
from eosframework.spark.session.executors import encoded

if TYPE_CHECKING:
    from pyspark.sql import Column


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
class RowEncoder:
    """Encodes a column's values on executors.

    Args:
        column: its name, for messages.
        serde: bound to its registry.
        read: reads what Spark gives Python; see `values.reader_of`.
    """

    column: str
    serde: Serde
    read: Callable[[Any], Any]

    def encode(self, value: Any) -> tuple[bytes | None, str | None]:
        """Return the bytes of a value, None of None; or the reason that it does not serialize.

        Raises:
            RuntimeError: the serde's registry is unavailable; the driver raises its error.
        """
        if value is None:
            return None, None
        try:
            plain: Any = self.read(value)
            if self.serde.model is not None:
                plain = self.serde.model.model_validate(plain)
            return plain if self.serde.encode is None else self.serde.encode(plain), None
        except EosError as error:
            raise encoded(error) from None
        except Exception as error:
            why = " ".join(str(error).split()) or type(error).__name__
            return None, f"does not serialize as {self.serde.name} in {self.column!r}: {why}"

    def applied(self, column: Column) -> tuple[Column, Column]:
        """Return the columns of the encoded values, and of the reasons.

        Args:
            column: as `values.plain` has it.
        """
        from pyspark.sql import functions as f

        made = f.udf(self.encode, "data binary, reason string", useArrow=False)(column)
        return made.getField("data"), made.getField("reason")
