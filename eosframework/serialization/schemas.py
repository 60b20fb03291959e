"""Formats whose schemas are in a registry, as a topology names them: Avro, JSON Schema, Protobuf.

Nothing here talks to a registry: a topology is read, checked and described without one. Codecs are
bound to one where the application is put together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import orjson
from pydantic import BaseModel

from eosframework.errors import ConfigurationError, TopologyError
from eosframework.serialization import references


class Format(StrEnum):
    """How values are written."""

    AVRO = "avro"
    JSON_SCHEMA = "json_schema"
    PROTOBUF = "protobuf"


OPTIONS: dict[Format, tuple[str, ...]] = {
    Format.AVRO: ("schema", "model", "subject"),
    Format.JSON_SCHEMA: ("schema", "model", "subject"),
    Format.PROTOBUF: ("message", "subject"),
}
"""What each format can be given."""

_TEXT = re.compile(rf"({'|'.join(Format)})\((.*)\)")
_OPTION = re.compile(r"[^\s,()=]+")


@dataclass(frozen=True, slots=True)
class Registered:
    """A serde whose schemas are in a registry.

    Args:
        schema: with which values are written, and into which they are read: a file, found as
            modules are, or module:NAME of a text or a map. None: that of the model; of Avro that
            with which each value was written, so nothing can be written.
        model: module:Model that values become; None: maps.
        message: module:Class that protoc made.
        subject: under which the schema is registered; None: as schema_registry.subject_names says.
    """

    format: Format
    schema: str | None = None
    model: str | None = None
    message: str | None = None
    subject: str | None = None

    def __str__(self) -> str:
        names = OPTIONS[self.format]
        given = [f"{n}={value}" for n in names if (value := getattr(self, n)) is not None]
        return f"{self.format}({', '.join(given)})"

    @classmethod
    def make(cls, name: str, options: Any) -> Registered:
        """Return what was declared.

        Raises:
            TopologyError: names the option that it cannot have, or lacks.
        """
        if name not in OPTIONS:
            known = [*map(str, Format)]
            raise TopologyError(
                f"there is no format {name!r}; use {', '.join(known)}"
                f"{references.closest(name, known)}"
            )
        format_ = Format(name)
        names = ", ".join(OPTIONS[format_])
        if options is not None and not isinstance(options, Mapping):
            raise TopologyError(f"{name} takes a map with {names}; found {options!r:.60}")
        given = dict(cast("Mapping[str, Any]", options or {}))
        for option, value in given.items():
            if option not in OPTIONS[format_]:
                hint = references.closest(option, OPTIONS[format_])
                raise TopologyError(f"{name} has no option {option!r}; it has {names}{hint}")
            if not isinstance(value, str) or not _OPTION.fullmatch(value):
                raise TopologyError(
                    f"{option} of {name} is {value!r:.60}; expected text without spaces, commas, "
                    f"parentheses and '='"
                )
        if format_ is Format.PROTOBUF and "message" not in given:
            raise TopologyError("protobuf lacks message: module:Class, a class that protoc made")
        return cls(format_, **given)

    @classmethod
    def parse(cls, text: str) -> Registered | None:
        """Return what `str` made a text of; None: it is no such text.

        Raises:
            TopologyError: as `make`.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        parts = [part.strip().partition("=") for part in found[2].split(",") if part.strip()]
        return cls.make(found[1], {name.strip(): value.strip() for name, _, value in parts})

    @property
    def writes(self) -> bool:
        """Whether there is a schema to write with."""
        if self.format is Format.JSON_SCHEMA:
            return self.schema is not None or self.model is not None
        return self.format is Format.PROTOBUF or self.schema is not None


def avro(
    schema: str | None = None,
    *,
    model: type[BaseModel] | str | None = None,
    subject: str | None = None,
) -> Registered:
    """Return the serde of Avro whose schemas are in the registry.

    Args:
        schema: an .avsc file beside the topology, or module:NAME of its text or map; None: each
            value is read with the schema it was written with, and nothing can be written.
        model: pydantic model that values become, by its aliases; None: dicts.
        subject: of the registry; None: as schema_registry.subject_names says.

    Raises:
        TopologyError: an option cannot be used.
    """
    return _declared(Format.AVRO, schema=schema, model=_name_of(model), subject=subject)


def json_schema(
    schema: str | None = None,
    *,
    model: type[BaseModel] | str | None = None,
    subject: str | None = None,
) -> Registered:
    """Return the serde of JSON whose schemas are in the registry.

    Args:
        schema: a .json file beside the topology, or module:NAME of its text or map; None: that of
            the model.
        model: pydantic model that values become; None: dicts.
        subject: of the registry; None: as schema_registry.subject_names says.

    Raises:
        TopologyError: an option cannot be used.
    """
    return _declared(Format.JSON_SCHEMA, schema=schema, model=_name_of(model), subject=subject)


def protobuf(message: type | str, *, subject: str | None = None) -> Registered:
    """Return the serde of Protobuf whose schemas are in the registry.

    Args:
        message: a class that protoc made, or its module:Class.
        subject: of the registry; None: as schema_registry.subject_names says.

    Raises:
        TopologyError: an option cannot be used.
    """
    return _declared(Format.PROTOBUF, message=_name_of(message), subject=subject)


def _declared(format_: Format, **options: str | None) -> Registered:
    return Registered.make(format_, {n: value for n, value in options.items() if value is not None})


def _name_of(wanted: type | str | None) -> str | None:
    if wanted is None or isinstance(wanted, str):
        return wanted
    name = references.name_of(wanted)
    if name is None:
        raise TopologyError(
            f"{wanted.__qualname__} cannot be imported by a name; a serde with a schema takes "
            f"classes of modules, for example flights:Flight"
        )
    return name


class Codec:
    """What encodes and decodes keys or values of one topic, once it is bound to a registry.

    Args:
        declared: what the topology says.
        schema: its text; None: of Protobuf, or there is none.
        model: class of the values; of Protobuf that of the messages; None: they are maps.
        topic: None: not known before a record is written.
        is_key: whether it is for keys.
    """

    def __init__(
        self,
        declared: Registered,
        schema: str | None,
        model: type | None,
        topic: str | None = None,
        *,
        is_key: bool = False,
    ) -> None:
        self.declared = declared
        self.schema = schema
        self.model = model
        self.topic = topic
        self.is_key = is_key
        self.written = False
        self._encode: Callable[[Any], bytes] = _unbound
        self._decode: Callable[[bytes], Any] = _unbound
        self._bind_again: Callable[[Codec], None] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without connections; where it arrives it is bound again."""
        given = (self.declared, self.schema, self.model, self.topic, self.is_key, self.written)
        return _remade, (*given, self._bind_again)

    @property
    def record(self) -> str | None:
        """Full name of the records that its schema describes; None: it has none."""
        if self.declared.format is Format.PROTOBUF:
            return cast(Any, self.model).DESCRIPTOR.full_name
        known = orjson.loads(self.schema) if self.schema is not None else None
        if not isinstance(known, dict):
            return None
        found = cast("dict[str, Any]", known)
        if self.declared.format is Format.JSON_SCHEMA:
            return found.get("title")
        name, namespace = found.get("name"), found.get("namespace")
        return f"{namespace}.{name}" if name and namespace and "." not in name else name

    def at(self, topic: str | None, *, is_key: bool, written: bool) -> Codec:
        """Return the same for the keys or values of a topic.

        Args:
            topic: None: not known before a record is written.
            is_key: whether it is for keys.
            written: whether the application writes with it.
        """
        codec = Codec(self.declared, self.schema, self.model, topic, is_key=is_key)
        codec.written = written
        return codec

    def bind(
        self,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        again: Callable[[Codec], None] | None = None,
    ) -> None:
        """Take what does the work from now on.

        Args:
            encode: a value to its bytes.
            decode: bytes to their value.
            again: binds a copy in another process.
        """
        self._encode, self._decode, self._bind_again = encode, decode, again

    def encode(self, value: Any) -> bytes:
        """Return a value as bytes that name their schema."""
        return self._encode(value)

    def decode(self, data: bytes) -> Any:
        """Return the value that bytes hold."""
        return self._decode(data)


def _remade(
    declared: Registered,
    schema: str | None,
    model: type | None,
    topic: str | None,
    is_key: bool,
    written: bool,
    again: Callable[[Codec], None] | None,
) -> Codec:
    codec = Codec(declared, schema, model, topic, is_key=is_key)
    codec.written = written
    if again is not None:
        again(codec)
    return codec


def _unbound(_: Any) -> Any:
    raise ConfigurationError("no schema registry is open here; set schema_registry.url")


def codec_of(declared: Registered) -> Codec:
    """Return what encodes and decodes, for no topic yet.

    Raises:
        TopologyError: a schema, model or message cannot be found, or is none.
    """
    if declared.format is Format.PROTOBUF:
        assert declared.message is not None, "messages have a class"
        found = references.find(declared.message)
        if not is_message(found):
            raise TopologyError(
                f"{declared.message!r} is no class that protoc made, but a "
                f"{type(found).__name__}; expected one of a module …_pb2"
            )
        return Codec(declared, None, found)
    model = None if declared.model is None else references.find(declared.model)
    if model is not None and not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TopologyError(f"{declared.model!r} is no pydantic model; values become models")
    return Codec(declared, _schema_text(declared, model), model)


def is_message(found: Any) -> bool:
    """Tell whether something is a class that protoc made."""
    return isinstance(found, type) and all(
        hasattr(found, name) for name in ("DESCRIPTOR", "FromString", "SerializeToString")
    )


def _schema_text(declared: Registered, model: type[BaseModel] | None) -> str | None:
    if declared.schema is None:
        if declared.format is Format.AVRO or model is None:
            return None
        return orjson.dumps(model.model_json_schema(by_alias=True)).decode()
    module, colon, _ = declared.schema.partition(":")
    given: Any = (
        references.find(declared.schema) if colon and "/" not in module else _read(declared.schema)
    )
    if isinstance(given, Mapping | list):
        return orjson.dumps(given).decode()
    try:
        known: Any = orjson.loads(given)
    except (TypeError, ValueError) as error:
        raise TopologyError(
            f"schema {declared.schema!r} is not JSON ({error}); expected that of "
            f"{'an Avro type' if declared.format is Format.AVRO else 'a JSON Schema'}"
        ) from error
    return orjson.dumps(known).decode()


def _read(name: str) -> str:
    """Return a file's text; it is looked for where modules are."""
    for directory in ("", *sys.path):
        file = Path(directory) / name
        if file.is_file():
            try:
                return file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise TopologyError(f"schema file {str(file)!r} cannot be read: {error}") from error
    raise TopologyError(
        f"there is no schema file {name!r} beside the topology or in the current directory; check "
        f"the name, or give module:NAME of its text"
    )
