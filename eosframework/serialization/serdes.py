"""Serdes between bytes in a log and Python values: plain, JSON, models, and registered formats."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from eosframework.errors import TopologyError
from eosframework.records import WindowResult
from eosframework.serialization import model_checks, references, strict_json
from eosframework.serialization.annotations import is_known, is_type, stripped, type_name
from eosframework.serialization.schemas import Codec, Format, Registered, codec_of, is_message

Coder = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]


def _typed_coder(
    annotation: Any, reader: Callable[[TypeAdapter[Any]], Callable[[bytes], Any]]
) -> Coder:
    """Return the functions that write values of a type as JSON and read them.

    What is written can be read as an equal value: `encode` reads it to make sure.

    Args:
        annotation: the type.
        reader: returns the function that reads the JSON of a type.

    Raises:
        TopologyError: the type has no form in JSON; says why.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    except (PydanticUserError, NameError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise TopologyError(
            f"there is no serde for {type_name(annotation)}: {reason}; use bytes, str, int, float, "
            f"bool, Decimal, datetime, date, UUID, an Enum, a dict, list or tuple, a dataclass, a "
            f"TypedDict, a pydantic model, or a Serde of your own"
        ) from error
    name = type_name(annotation)
    to_json = functools.partial(adapter.serializer.to_json, by_alias=True, warnings="error")
    to_python = functools.partial(adapter.serializer.to_python, by_alias=True, warnings=False)
    read = reader(adapter)

    def encode(value: Any) -> bytes:
        try:
            data = to_json(value)
            again = read(data)
        except (PydanticSerializationError, ValueError) as error:
            if strict_json.has_infinite(value):
                strict_json.refuse_infinite(value)
            shown = str(error).replace("\n", " ")
            raise TypeError(
                f"expected {name}, got {type(value).__name__}: {value!r:.80} ({shown:.200})"
            ) from error
        if again != value:
            strict_json.refuse_unreadable(value, data, to_python, read)
            raise TypeError(
                f"expected {name}, got {type(value).__name__}: {value!r:.80}, which is read again "
                f"as {type(again).__name__}: {again!r:.80}"
            )
        return data

    return encode, read


@dataclass(frozen=True, slots=True)
class Serde:
    """A pair of functions that round-trip: `decode(encode(value)) == value`.

    Neither is called for None: a null key or value (a tombstone) stays None.

    Args:
        name: `bytes`, `string`, `integer`, `float`, `json`, `module:Model`, or the text of a
            `Registered`.
        encode: value to bytes; None: the value already is the bytes.
        decode: bytes to value; None: the value is the bytes.
        model: the pydantic model of the values, if they have one.
        codec: bound to a registry; None: the serde needs none.
    """

    name: str
    encode: Callable[[Any], bytes] | None
    decode: Callable[[bytes], Any] | None
    model: type[BaseModel] | None = None
    codec: Codec | None = None


UntypedSerde = str | UnionType | Serde | Registered
"""A serde that says nothing to a type checker."""

SerdeLike = type | UntypedSerde
"""The forms in which users name a serde: by name, by a Python type, as their own `Serde`, or as the
result of `avro`, `json_schema` or `protobuf`."""


def serde_of(wanted: SerdeLike) -> Serde:
    """Return the serde for a type or a name.

    Args:
        wanted: a type: `bytes`, `str`, `int`, `float`, `dict`, `list`, a pydantic model, a class
            that protoc made, or any that pydantic can read from JSON, as `Decimal`, `datetime`,
            a dataclass or `list[Order]`; one of the names `bytes`, `string`, `integer`, `float`,
            `json`; `module:Type`; a Serde; or the result of `avro`, `json_schema` or `protobuf`,
            or its text.

    Raises:
        TopologyError: there is no such serde; lists the known ones.
    """
    if isinstance(wanted, Serde):
        return wanted
    if isinstance(wanted, Registered):
        return codec_serde(codec_of(wanted))
    if isinstance(wanted, str):
        return _named(wanted)
    return _of_type(stripped(wanted))


def _of_type(wanted: Any) -> Serde:
    if _is_model(wanted):
        return model_serde(cast(type[BaseModel], wanted))
    if is_message(wanted):
        return _message_serde(wanted, references.name_of(wanted) or wanted.__qualname__)
    is_plain = not any(is_known(each) for each in get_args(wanted)[-1:])
    if is_plain and (name := _NAMES.get(get_origin(wanted) or wanted)) is not None:
        return _SERDES[name]
    return typed_serde(wanted)


def type_of(serde: Serde) -> Any:
    """Return the type of a serde's values; None: they may have any, or it is not known."""
    if isinstance(serde, TypedSerde):
        return serde.type
    return serde.model or _TYPES.get(serde.name)


@dataclass(frozen=True)
class TypedSerde(Serde):
    """The serde of a type whose values are JSON; unpickling builds it anew."""

    type: Any = field(default=None, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return typed_serde, (self.type,)


def typed_serde(annotation: Any) -> TypedSerde:
    """Return the serde that holds the values of a type as JSON, and only these.

    Raises:
        TopologyError: the type has no form in JSON.
    """
    try:
        return _made_once(annotation)
    except TypeError:  # a part of the type has no hash
        return _typed_serde(annotation)


def _typed_serde(annotation: Any) -> TypedSerde:
    encode, decode = _typed_coder(annotation, _reader)
    return TypedSerde(type_name(annotation), encode, decode, type=annotation)


_made_once = functools.cache(_typed_serde)


@functools.cache
def model_serde(model: type[BaseModel]) -> Serde:
    """Return the serde that validates JSON into `model` and writes its JSON by alias.

    It neither reads nor writes NaN and infinities, unless the model declares another form for them,
    and writes only JSON that it reads again, with all fields of the instance.
    """
    adapter = TypeAdapter(model)
    to_json = functools.partial(adapter.serializer.to_json, by_alias=True, warnings="error")
    to_python = functools.partial(adapter.serializer.to_python, by_alias=True, warnings=False)
    read = _reader(adapter)
    find_null, short = strict_json.find_null, strict_json.SHORT_BYTES
    require_readable = model_checks.Reader(model, adapter.core_schema, read)
    always, count = require_readable.always, require_readable.count
    is_right = require_readable.is_right
    finds_nan = require_readable.finds_nan

    def encode(value: Any) -> bytes:
        if not isinstance(value, model):
            raise _wrong_type(model.__name__, value)
        data = to_json(value)
        null = find_null(data)
        if null and not finds_nan:
            strict_json.refuse_unreadable(value, data, to_python, read)
        elif len(data) > short or not data.isascii():
            strict_json.refuse_overlong(value, data, read)
        members = value.__dict__
        if null is None and not always and value.__class__ is model and len(members) == count:
            try:
                if is_right is None or is_right(members):
                    return data
            except (LookupError, TypeError, AttributeError, ArithmeticError):
                pass  # The validator finds the reason.
        require_readable(value, data, null is not None)
        return data

    shapes, digits = strict_json.SHAPES, strict_json.FLOAT_DIGITS
    find_large = strict_json.find_large_exponent

    def decode_floats(data: bytes) -> Any:
        value = read(data)
        # pydantic reads 1e400 as an infinity, which `encode` would refuse at a later step.
        shape = data.translate(shapes, b"+")
        if find_large(shape) or len(shape) >= digits:
            refuse_overflow(value, shape)
        return value

    def refuse_overflow(value: Any, shape: bytes) -> None:
        if strict_json.may_overflow(shape) and strict_json.has_infinite(to_python(value)):
            strict_json.refuse_unreadable(value, to_json(value), to_python, read)

    decode = decode_floats if strict_json.holds_floats(adapter.core_schema) else read

    name = references.name_of(model) or model.__qualname__
    return ModelSerde(name, encode, decode, model)


class ModelSerde(Serde):
    """The serde of a model; unpickling builds it anew.

    pydantic's serializers cannot be unpickled if their schema contains the model that holds them.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return model_serde, (self.model,)


def _reader(adapter: TypeAdapter[Any]) -> Callable[[bytes], Any]:
    """Return the function that reads the JSON of a type."""
    read = _strict(adapter)
    if strict_json.holds_decimals(adapter.core_schema):
        return strict_json.exact_decimals(adapter, read)
    return read


def _strict(adapter: TypeAdapter[Any]) -> Callable[[bytes], Any]:
    """Return a validator of JSON that refuses NaN and infinities unless the model allows them."""
    validate = adapter.validator.validate_json
    find_nan, find_infinity = strict_json.find_nan, strict_json.find_infinity
    if strict_json.writes_constants(adapter.core_schema):
        return validate

    def decode(data: bytes) -> Any:
        if find_nan(data) or find_infinity(data):
            strict_json.refuse_constants(data)
        return validate(data)

    return decode


def codec_serde(codec: Codec) -> Serde:
    """Return the serde that calls a codec."""
    model = codec.model
    own = model if codec.declared.format is not Format.PROTOBUF else None
    return Serde(str(codec.declared), codec.encode, codec.decode, own, codec)


def internal_serde_name(name: str) -> str:
    """Return the name of the serde for stores and internal topics, which use no schema registry.

    Values with a model, or of JSON Schema, are stored as JSON, messages as their own bytes. No
    other format can hold every value of Avro without a model, so its name stays.
    """
    declared = Registered.parse(name)
    if declared is None:
        return name
    plain = JSON.name if declared.format is Format.JSON_SCHEMA else name
    return declared.model or declared.message or plain


def _message_serde(message: Any, name: str) -> Serde:
    """Return the serde of a class generated by protoc: the bytes of its messages."""

    def encode(value: Any) -> bytes:
        if not isinstance(value, message):
            raise _wrong_type(message.__name__, value)
        return message.SerializeToString(value)

    return Serde(name, encode, message.FromString)


def _named(name: str) -> Serde:
    if name in _SERDES:
        return _SERDES[name]
    if (declared := Registered.parse(name)) is not None:
        return codec_serde(codec_of(declared))
    if (inner := windowed_name(name)) is not None:
        return window_serde(_named(inner))
    if ":" not in name:
        raise TopologyError(
            f"there is no serde {name!r}; use {', '.join(_SERDES)} or MODULE:TYPE for a type, as "
            f"decimal:Decimal{references.closest(name, _SERDES)}"
        )
    found = references.find(name)
    if isinstance(found, Serde):
        return found
    if is_message(found):
        return _message_serde(found, name)
    if not is_type(found):
        raise TopologyError(
            f"{name!r} cannot be a serde: it is a {type(found).__name__}; expected a type or a "
            f"Serde"
        )
    return _of_type(stripped(found))


def _is_model(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, BaseModel)


def _encode_bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    raise _wrong_type("bytes", value)


def _encode_string(value: Any) -> bytes:
    if type(value) is str:
        return value.encode()
    if isinstance(value, str):
        return str.encode(value)
    raise _wrong_type("str", value)


_LONG = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")


def _encode_integer(value: Any) -> bytes:
    if type(value) is not int:
        raise _wrong_type("int", value)
    try:
        return _LONG.pack(value)
    except struct.error:
        raise OverflowError(
            f"{value} does not fit the 8 bytes of an integer; expected -2**63 to 2**63 - 1"
        ) from None


def _decode_integer(data: bytes) -> int:
    return _LONG.unpack(data)[0]


def _encode_float(value: Any) -> bytes:
    if type(value) is not float and type(value) is not int:
        raise _wrong_type("float", value)
    if type(value) is int and int(float(value)) != value:
        raise ValueError(f"no float is exactly {value}; round it, or use the serde integer")
    return _DOUBLE.pack(value)


def _decode_float(data: bytes) -> float:
    return _DOUBLE.unpack(data)[0]


def _wrong_type(expected: str, value: Any) -> TypeError:
    return TypeError(f"expected {expected}, got {type(value).__name__}: {value!r:.80}")


BYTES = Serde("bytes", None, None)
"""The bytes themselves. Its encoder is the identity and checks nothing."""

CHECKED_BYTES = Serde("bytes", _encode_bytes, None)
"""As BYTES, for values that a function returned: other types are refused."""

STRING = Serde("string", _encode_string, bytes.decode)
"""UTF-8, as Kafka's StringSerializer."""

INTEGER = Serde("integer", _encode_integer, _decode_integer)
"""8 bytes, big-endian, signed, as Kafka's LongSerializer."""

FLOAT = Serde("float", _encode_float, _decode_float)
"""8 bytes, big-endian IEEE 754, as Kafka's DoubleSerializer; also for NaN and infinities."""

JSON = Serde("json", strict_json.write, strict_json.read)
"""JSON in UTF-8. Integers keep all digits, a number with a fraction is a float. NaN and infinities
are refused: JSON has no number for them."""

KEPT_JSON = Serde("json", strict_json.write_kept, strict_json.read)
"""JSON for a store, which must give back what it was given: objects that JSON lacks are refused."""


def _encode_window(value: Any) -> bytes:
    if type(value) is not WindowResult:
        return strict_json.write_with(value, _model_as_data)
    result = strict_json.write_with(value.value, _model_as_data)
    return b'{"start":%d,"end":%d,"value":%b}' % (value.start, value.end, result)


def _model_as_data(value: Any) -> Any:
    """Return a value as pydantic writes it, as the serde of its type does."""
    return to_jsonable_python(value, by_alias=True)


def _decode_window(data: bytes) -> Any:
    found: Any = strict_json.read(data)
    if type(found) is not dict:
        return found
    members = cast(dict[str, Any], found)
    return WindowResult(**members) if members.keys() == _MEMBERS else members


_MEMBERS = {"start", "end", "value"}


WINDOW = Serde("window", _encode_window, _decode_window)
"""Results of windows, as JSON objects with start, end and value."""

_WINDOW_OF = re.compile(r"window\((.+)\)")
_PLAIN_VALUES = frozenset({"bytes", "string", "integer", "float", "json"})


def window_name(value: str) -> str:
    """Return the name of the serde of a window's results.

    Args:
        value: name of the serde of the aggregate.
    """
    plain = internal_serde_name(value)
    if plain in _PLAIN_VALUES or Registered.parse(plain) is not None:
        return WINDOW.name
    return f"window({plain})"


def windowed_name(name: str) -> str | None:
    """Return the aggregate's serde in the name of a window's; None: it is another name."""
    found = _WINDOW_OF.fullmatch(name)
    return None if found is None else found[1]


@functools.cache
def window_serde(of: Serde) -> Serde:
    """Return the serde of the results of windows whose aggregate has a serde.

    The value of a type or model is in the JSON as it is; that of a serde of the user's is a text.
    """
    if window_name(of.name) == WINDOW.name:
        return WINDOW
    is_text = of.model is None and not isinstance(of, TypedSerde)

    def encode(value: Any) -> bytes:
        if type(value) is not WindowResult or value.value is None or of.encode is None:
            return _encode_window(value)
        data = of.encode(value.value)
        if is_text:
            data = strict_json.write(data.decode())
        return b'{"start":%d,"end":%d,"value":%b}' % (value.start, value.end, data)

    def decode(data: bytes) -> Any:
        found = _decode_window(data)
        if type(found) is not WindowResult or found.value is None or of.decode is None:
            return found
        inner = strict_json.member(data, "value")
        if is_text:
            inner = str.encode(strict_json.read(inner))
        return WindowResult(found.start, found.end, of.decode(inner))

    return Serde(f"window({of.name})", encode, decode)


_SERDES: dict[str, Serde] = {s.name: s for s in (BYTES, STRING, INTEGER, FLOAT, JSON, WINDOW)}
"""The serdes that a topology can name without a module."""

_NAMES: dict[Any, str] = {
    bytes: "bytes",
    str: "string",
    int: "integer",
    float: "float",
    dict: "json",
    list: "json",
}

_TYPES: dict[str, Any] = {"bytes": bytes, "string": str, "integer": int, "float": float}
