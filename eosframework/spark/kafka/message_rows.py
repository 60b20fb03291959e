"""Rows as Protobuf messages, on executors that may lack the classes that protoc made.

Such a class cannot be pickled by value: its descriptors are sent, and each Python process makes a
class of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, cast

from eosframework.config import RegistrySettings
from eosframework.serialization.schemas import Codec, Registered


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
