"""Values as their Avro schema declares them, before an encoder changes them in silence.

fastavro writes 1.5 as the long 1, 2**40 as an int, 1e300 as the float infinity, a naive time in the
zone of the process; in a union it takes the first type that fits. Here each of these is decided or
refused, and the type within a union is named. A schema with fewer fields than the value has is a
selection: the others are left out.

    value                                  its branch
    ------------------------------------   -------------------------------------------------
    None                                   null
    a record that was read (NamedRecord)   that of its name
    a model                                that of its class
    (name, value), {"-type": name, ...}    that of the name, as confluent_kafka's serializers do
    any other map                          the record with most of its members and the fewest
                                           others; refused if there are two, or a map
    any other                              that of its type (an int is a long before a double),
                                           else the first that holds it
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from numbers import Integral
from typing import Any, cast
from uuid import UUID

from pydantic import BaseModel

from eosframework.serialization.strict_json import any_part

Convert = Callable[[Any], Any]
"""Returns what the encoder writes for a value.

Raises:
    _Unfit: the schema does not hold it.
"""

_EPOCH = datetime(1970, 1, 1)
_NAMED_TYPES = frozenset({"record", "error", "enum", "fixed"})
_BRANCHES: dict[Any, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("int", "long"),
    float: ("double", "float"),
    str: ("string",),
    bytes: ("bytes",),
}
"""Branches of a union that hold a Python type best."""


class NamedRecord(dict[str, Any]):
    """The members of a record in a union of several; `name` is that of its type."""

    __slots__ = ("name",)

    def __init__(self, name: str, members: Mapping[str, Any]) -> None:
        super().__init__(members)
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedRecord, (self.name, dict(self))


class _Unfit(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.path = ""


def value_converter(schema: str) -> Convert:
    """Return the function that makes of a value what the encoder writes for a schema.

    It raises ValueError with the place of the value that the schema does not hold.
    """
    from fastavro.schema import parse_schema  # pyright: ignore[reportUnknownVariableType]

    named: dict[str, Any] = {}
    convert = _Compiler().of(parse_schema(json.loads(schema), named))

    def converted(value: Any) -> Any:
        try:
            return convert(value)
        except _Unfit as error:
            place = error.path.removeprefix(".")
            raise ValueError(f"{place}: {error}" if place else str(error)) from None

    return converted


def has_record_choice(schema: Any) -> bool:
    """Return whether a parsed schema has a union with several named types."""
    if isinstance(schema, list):
        branches = cast("list[Any]", schema)
        named = [b for b in branches if _kind(b) not in _PRIMITIVES and _kind(b) != "array"]
        return len(named) > 1 or any(map(has_record_choice, branches))
    if not isinstance(schema, dict):
        return False
    given = cast("dict[str, Any]", schema)
    parts = [given.get("type"), given.get("items"), given.get("values")]
    parts += [field.get("type") for field in given.get("fields") or ()]
    return any(map(has_record_choice, parts))


def classes_of(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return the models of a model's values, by the names of their records."""
    found: dict[str, type[BaseModel]] = {}

    def note(part: dict[str, Any]) -> bool:
        if part.get("type") == "model":
            found.setdefault(_record_name(part["cls"]), part["cls"])
        return False

    any_part(model.__pydantic_core_schema__, note)
    return found


def with_names(value: Any, classes: Mapping[str, type[BaseModel]] | None) -> Any:
    """Return a decoded value whose records in unions have their names.

    Args:
        value: with (name, members) for each record in a union.
        classes: of the model that the value becomes; None: it becomes none.
    """
    if isinstance(value, tuple):
        name, members = cast("tuple[str, Any]", value)
        inner = with_names(members, classes)
        if classes is None:
            return NamedRecord(name, inner)
        found = classes.get(name.rpartition(".")[2])
        return inner if found is None else found.model_validate(inner)
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {name: with_names(member, classes) for name, member in given.items()}
    if isinstance(value, list):
        return [with_names(item, classes) for item in cast("list[Any]", value)]
    return value


def with_classes(value: Any, dumped: Any) -> Any:
    """Return the data of a model, with the name of its class on that of each model in it.

    Args:
        value: the model, or a part of it.
        dumped: its data.
    """
    if isinstance(value, BaseModel) and isinstance(dumped, dict):
        members = cast("dict[str, Any]", dumped)
        for name, field in type(value).model_fields.items():
            key = field.serialization_alias or name
            if key in members:
                members[key] = with_classes(getattr(value, name), members[key])
        return NamedRecord(_record_name(type(value)), members)
    if isinstance(value, list | tuple) and isinstance(dumped, list | tuple):
        pairs = zip(cast("Iterable[Any]", value), cast("Iterable[Any]", dumped), strict=True)
        return [with_classes(one, data) for one, data in pairs]
    if isinstance(value, dict) and isinstance(dumped, dict):
        given = cast("dict[Any, Any]", value)
        return {k: with_classes(given.get(k), v) for k, v in cast("Any", dumped).items()}
    return dumped


def _record_name(model: type[BaseModel]) -> str:
    return model.model_config.get("title") or model.__name__


class _Compiler:
    """Compiles a schema that fastavro parsed, so that names are full names."""

    def __init__(self) -> None:
        self._named: dict[str, Convert] = {}
        self._fields: dict[str, frozenset[str]] = {}
        """Names of the fields of each record."""

    def of(self, schema: Any) -> Convert:
        if isinstance(schema, list):
            return self._union(cast("list[Any]", schema))
        if isinstance(schema, str):
            known = _PRIMITIVES.get(schema)
            return (lambda value: self._named[schema](value)) if known is None else known
        given = cast("dict[str, Any]", schema)
        kind = given["type"]
        if (logical := _LOGICAL.get((kind, given.get("logicalType")))) is not None:
            convert = logical(given)
        elif kind in ("record", "error"):
            convert = self._record(given)
        elif kind == "array":
            return _array(self.of(given["items"]))
        elif kind == "map":
            return _map(self.of(given["values"]))
        elif kind == "enum":
            convert = _enum(given["symbols"])
        elif kind == "fixed":
            convert = _fixed(given["size"])
        else:
            return self.of(kind)
        if kind in _NAMED_TYPES:
            self._named[given["name"]] = convert
        return convert

    def _record(self, schema: dict[str, Any]) -> Convert:
        record = schema["name"]
        self._fields[record] = frozenset(field["name"] for field in schema["fields"])
        fields = [(f["name"], self.of(f["type"])) for f in schema["fields"]]
        optional = {f["name"]: f for f in schema["fields"] if "default" in f}
        nullable = {f["name"] for f in schema["fields"] if f["type"] == "null" or _has_null(f)}

        def convert(value: Any) -> dict[str, Any]:
            if type(value) is not dict and not isinstance(value, Mapping):
                raise _expected(f"a map with the fields of {record}", value)
            given = cast("Mapping[str, Any]", value)
            made: dict[str, Any] = {}
            name = ""
            try:
                for name, one in fields:
                    if name in given:
                        made[name] = one(given[name])
                    elif name not in optional:
                        if name not in nullable:
                            raise _Unfit(f"{record} lacks it, and the schema has no default")
                        made[name] = None
            except _Unfit as error:
                error.path = f".{name}{error.path}"
                raise
            return made

        return convert

    def _union(self, branches: list[Any]) -> Convert:
        compiled = [(b, self.of(b)) for b in branches if b != "null"]
        made = [_Branch(b, self._fields.get(_name(b), frozenset()), one) for b, one in compiled]
        has_null = "null" in branches
        by_name = {name: b for b in made for name in (b.name.rpartition(".")[2], b.name)}

        def convert(value: Any) -> Any:
            if value is None and has_null:
                return None
            if isinstance(value, tuple | dict):
                name, inner = _named(cast("Any", value), by_name)
                if name is not None:
                    return by_name[name].converted(inner)
                if len(made) > 1 and isinstance(value, dict):
                    return _record_or_map(made, cast("Mapping[str, Any]", value))
            return made[0].converted(value) if len(made) == 1 else _first(made, value)

        return convert


class _Branch:
    """A type of a union.

    Attributes:
        fields: names of a record's.
    """

    __slots__ = ("convert", "fields", "kind", "name")

    def __init__(self, schema: Any, fields: frozenset[str], convert: Convert) -> None:
        self.kind = _kind(schema)
        self.name = _name(schema)
        self.fields = fields
        self.convert = convert

    def converted(self, value: Any) -> tuple[str, Any]:
        return self.name, self.convert(value)


def _named(
    value: tuple[Any, ...] | dict[str, Any], branches: Mapping[str, _Branch]
) -> tuple[str | None, Any]:
    """Return the branch that a value names, and the value in it; None: it names none."""
    if isinstance(value, NamedRecord):
        name = value.name if value.name in branches else value.name.rpartition(".")[2]
        return (name if name in branches else None), value
    if isinstance(value, tuple):
        if len(value) == 2 and isinstance(value[0], str) and value[0] in branches:
            return value[0], value[1]
    elif (name := value.get("-type")) in branches:
        return name, value
    return None, value


def _record_or_map(branches: list[_Branch], value: Mapping[str, Any]) -> Any:
    """Return a map as the record with most of its members and the fewest others, or as a map."""
    found: list[tuple[int, int, _Branch, Any]] = []
    reasons: list[str] = []
    for branch in branches:
        try:
            made = branch.convert(value)
        except _Unfit as error:
            reasons.append(f"{branch.name}{error.path}: {error}")
        else:
            kept = len(value if branch.kind == "map" else value.keys() & branch.fields)
            found.append((-kept, len(branch.fields), branch, made))
    if not found:
        raise _Unfit(f"no type of the union holds it ({'; '.join(reasons)})")
    first = min(rank[:2] for rank in found)
    best = [each for each in found if each[:2] == first or each[2].kind == "map"]
    if len(best) > 1:
        names = [branch.name for _, _, branch, _ in best]
        raise _Unfit(
            f"a map with {', '.join(map(repr, value))} may be any of {', '.join(names)}; name the "
            f"one that is meant: ({names[0]!r}, {{...}}), or a model class of that name"
        )
    [(_, _, branch, made)] = best
    return branch.name, made


def _first(branches: list[_Branch], value: Any) -> Any:
    kind: Any = value.__class__
    ranks = {kind: rank for rank, kind in enumerate(_BRANCHES.get(kind, ()))}
    reasons: list[str] = []
    for branch in sorted(branches, key=lambda b: ranks.get(b.kind, len(ranks))):
        try:
            return branch.converted(value)
        except _Unfit as error:
            reasons.append(f"{branch.name}{error.path}: {error}")
    raise _Unfit(f"no type of the union holds it ({'; '.join(reasons)})")


def _kind(schema: Any) -> str:
    kind: Any = schema if isinstance(schema, str) else schema["type"]
    return kind if isinstance(kind, str) else _kind(kind)


def _name(schema: Any) -> str:
    kind = _kind(schema)
    return schema["name"] if not isinstance(schema, str) and kind in _NAMED_TYPES else kind


def _has_null(field: Mapping[str, Any]) -> bool:
    return isinstance(field["type"], list) and "null" in field["type"]


def _expected(what: str, value: Any) -> _Unfit:
    return _Unfit(f"expected {what}, got {type(value).__name__} {value!r:.80}")


def _null(value: Any) -> None:
    if value is not None:
        raise _expected("None", value)


def _boolean(value: Any) -> bool:
    if value is not True and value is not False:
        raise _expected("a bool", value)
    return value


def _is_integral(value: Any) -> bool:
    return isinstance(value, Integral) and value is not True and value is not False


def _within(bits: int) -> Convert:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def convert(value: Any) -> int:
        if type(value) is not int:
            if not _is_integral(value):
                raise _expected(f"an integer of {bits} bits", value)
            value = int(value)
        if not low <= value <= high:
            raise _expected(f"an integer of {bits} bits", value)
        return value

    return convert


def _floating(form: struct.Struct, what: str) -> Convert:
    def convert(value: Any) -> float:
        if type(value) is float and what == "double":
            return value
        is_float = isinstance(value, float)
        if not is_float and (not _is_integral(value)):
            raise _expected(f"a number for a {what}", value)
        try:
            [written] = form.unpack(form.pack(value))
        except (OverflowError, struct.error):
            raise _expected(f"a number that a {what} holds", value) from None
        if not is_float and written != value:
            raise _expected(f"an integer that a {what} holds exactly", value)
        return float(value)

    return convert


def _string(value: Any) -> str:
    if type(value) is str:
        return value
    if not isinstance(value, str):
        raise _expected("a str", value)
    return value.value if isinstance(value, Enum) else value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _expected("bytes", value)
    return bytes(cast("bytes", value))


def _fixed(size: int) -> Convert:
    def convert(value: Any) -> bytes:
        data = _bytes(value)
        if len(data) != size:
            raise _expected(f"{size} bytes", value)
        return data

    return convert


def _enum(symbols: list[str]) -> Convert:
    def convert(value: Any) -> str:
        found = value.value if isinstance(value, Enum) else value
        if found not in symbols:
            raise _expected(f"one of {', '.join(symbols)}", value)
        return found

    return convert


def _array(item: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if type(value) is not list and not _is_series(value):
            raise _expected("a list", value)
        made: list[Any] = []
        try:
            for one in cast("Iterable[Any]", value):
                made.append(item(one))
        except _Unfit as error:
            error.path = f"[{len(made)}]{error.path}"
            raise
        return made

    return convert


def _is_series(value: Any) -> bool:
    is_one = isinstance(value, str | bytes | bytearray | Mapping)
    return not is_one and isinstance(value, Iterable)


def _map(item: Convert) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise _expected("a map", value)
        made: dict[str, Any] = {}
        key: Any = None
        try:
            for key, one in cast("Mapping[Any, Any]", value).items():
                if not isinstance(key, str):
                    raise _expected("a str as a key of a map", key)
                made[key] = item(one)
        except _Unfit as error:
            error.path = f"[{key!r}]{error.path}"
            raise
        return made

    return convert


_INT, _LONG = _within(32), _within(64)

_PRIMITIVES: dict[str, Convert] = {
    "null": _null,
    "boolean": _boolean,
    "int": _INT,
    "long": _LONG,
    "float": _floating(struct.Struct("<f"), "float"),
    "double": _floating(struct.Struct("<d"), "double"),
    "string": _string,
    "bytes": _bytes,
}


def _date(_: Any) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, datetime):
            raise _expected("a date without a time of day", value)
        try:
            return date.fromisoformat(value) if isinstance(value, str) else _or_int(value, date)
        except ValueError:
            raise _expected("a date", value) from None

    return convert


def _time_of_day(_: Any) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, time) and value.tzinfo is not None:
            raise _expected("a time of day without a zone", value)
        return _or_int(value, time)

    return convert


def _or_int(value: Any, of: type) -> Any:
    """Return a value of a class, or an integer that counts its units."""
    if isinstance(value, of):
        return value
    if type(value) is not int:
        raise _expected(f"a {of.__name__}", value)
    return _LONG(value)


def _instant(per_second: int) -> Callable[[Any], Convert]:
    """Times of a zone; one without a zone is UTC, as everywhere in the framework."""

    def convert(value: Any) -> int:
        if isinstance(value, datetime):
            value = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return _units(value, per_second)

    return lambda _: convert


def _local(per_second: int) -> Callable[[Any], Convert]:
    def convert(value: Any) -> int:
        if isinstance(value, datetime) and value.tzinfo is not None:
            raise _expected("a datetime without a zone, since the type has none", value)
        return _units(value, per_second)

    return lambda _: convert


def _units(value: Any, per_second: int) -> int:
    """Return the units since 1970; what lies below a unit is cut, as the schema declares."""
    if isinstance(value, datetime):
        return _LONG((value - _EPOCH) // timedelta(microseconds=1) * per_second // 1_000_000)
    units = _or_int(value, datetime)
    if not -62_135_596_800 <= units // per_second < 253_402_300_800:
        raise _expected("a time of the years 1 to 9999", value)
    return units


def _decimal(schema: dict[str, Any]) -> Convert:
    precision, scale = schema["precision"], schema.get("scale", 0)

    def convert(value: Any) -> Any:
        if isinstance(value, bytes):
            return value
        if type(value) is int:
            value = Decimal(value)
        if not isinstance(value, Decimal) or not value.is_finite():
            raise _expected("a Decimal", value)
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        zeros = exponent + scale
        while zeros < 0 and digits[-1] == 0 and len(digits) > 1:
            digits, zeros = digits[:-1], zeros + 1
        if value == 0:
            digits, zeros = (0,), 0
        if zeros < 0 or len(digits) + zeros > precision:
            raise _expected(
                f"a Decimal with {precision} digits, {scale} of them after the point", value
            )
        return Decimal((sign, digits + (0,) * zeros, -scale))

    return convert


def _uuid(_: Any) -> Convert:
    def convert(value: Any) -> UUID:
        if isinstance(value, UUID):
            return value
        try:
            return UUID(_string(value))
        except ValueError:
            raise _expected("a UUID", value) from None

    return convert


_LOGICAL: dict[tuple[Any, Any], Callable[[dict[str, Any]], Convert]] = {
    ("int", "date"): _date,
    ("int", "time-millis"): _time_of_day,
    ("long", "time-micros"): _time_of_day,
    ("long", "timestamp-millis"): _instant(1_000),
    ("long", "timestamp-micros"): _instant(1_000_000),
    ("long", "timestamp-nanos"): _instant(1_000_000_000),
    ("long", "local-timestamp-millis"): _local(1_000),
    ("long", "local-timestamp-micros"): _local(1_000_000),
    ("long", "local-timestamp-nanos"): _local(1_000_000_000),
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("string", "uuid"): _uuid,
}
