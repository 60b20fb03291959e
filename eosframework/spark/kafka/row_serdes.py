"""Keys and values that Python encodes: with schemas of a registry, or with a serde of the user's.

Spark SQL has no function for them, so the stage is computed through a Python function. A batch is
encoded once: its attempts read the bytes from the stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eosframework.backfill.spark.executor_failures import encoded
from eosframework.config import RegistrySettings
from eosframework.errors import ConfigurationError, EosError, RunError
from eosframework.serialization.key_bytes import key_encoder
from eosframework.serialization.schemas import Format
from eosframework.serialization.serdes import JSON, Serde, SerdeLike, codec_serde, serde_of
from eosframework.spark.kafka.message_rows import MessageEncoder

if TYPE_CHECKING:
    from pyspark.sql import Column


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
