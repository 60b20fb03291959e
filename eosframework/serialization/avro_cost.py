"""The cost of decoding values of an Avro schema, from the schema alone.

A decoder in C checks neither depth nor counts: a value of a few bytes may hold 10**13 nulls, or be
nested as often as it has bytes. From the schema follows how many values and levels a number of
bytes can encode at most:

    values   those of a value whose arrays and maps are empty, plus a number for each byte, since
             each item of an array or map, and each level of a recursive type, takes a byte or more
    levels   those of the schema; of a recursive one, as many for each byte

An array of items of zero bytes, such as nulls, can hold any number of values.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from eosframework.serialization.bounds import (
    AVRO_DECIMAL_BYTES,
    AVRO_LEVELS,
    AVRO_VALUES,
    SCHEMA_TYPES,
)

LEAST_BYTES = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}
"""Bytes of the shortest encoding of each primitive type."""

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*+"')
_OPEN = {"[": 1, "{": 1, "]": -1, "}": -1}


@dataclass(frozen=True, slots=True)
class Cost:
    """The most that a value can cost.

    Args:
        values: of a value whose arrays and maps are empty.
        values_per_byte: in addition; None: any number.
        levels: of nested values; of a recursive type, for each byte.
    """

    values: int
    values_per_byte: int | None
    levels: int
    is_recursive: bool
    has_decimals: bool

    def fits(self, size: int, defaults: int = 0) -> bool:
        """Return whether a decoder in C may decode so many bytes in this process.

        Args:
            size: of the encoded value.
            defaults: values that the reader's schema may add to each.
        """
        if self.values_per_byte is None:
            return False
        per_byte = self.values_per_byte and self.values_per_byte + defaults
        levels = self.levels * (size if self.is_recursive else 1)
        return (
            levels <= AVRO_LEVELS.value
            and self.values + defaults + per_byte * size <= AVRO_VALUES.value
            # Their digits are converted in a time that grows with the square of their number.
            and (not self.has_decimals or size <= AVRO_DECIMAL_BYTES.value)
        )


def cost_of(schema: Any, named: Mapping[str, Any] | None = None) -> Cost:
    """Return the cost of a schema.

    Args:
        schema: parsed JSON, of few levels (`levels_of`).
        named: schemas that it refers to, by full name.

    Raises:
        ValueError: no value can be encoded, or named types repeat each other too often.
    """
    first = _Walk(named or {}, {})
    first.visit(schema, "")
    # The first walk does not yet know how many bytes a recursive type takes at least.
    walk = _Walk(named or {}, {name: found.least for name, found in first.done.items()})
    root = walk.visit(schema, "")
    if root.written > SCHEMA_TYPES.value:
        raise ValueError(
            f"the schema has {root.written} types if each named one is written out where it is "
            f"used; expected at most {SCHEMA_TYPES.value}"
        )
    return Cost(root.values, walk.per_byte, root.levels, walk.is_recursive, walk.has_decimals)


def levels_of(text: str) -> int:
    """Return how deep the brackets of a JSON text are nested."""
    level = deepest = 0
    for found in re.findall(r"[\[\]{}]", _TEXT.sub("", text)):
        level += _OPEN[found]
        deepest = max(deepest, level)
    return deepest


@dataclass(frozen=True, slots=True)
class _Type:
    """The known facts of a type.

    Args:
        least: bytes of its shortest encoding.
        values: in an encoding whose arrays and maps are empty.
        written: number of types, if named ones are written out.
        levels: of nested types.
    """

    least: int
    values: int = 1
    written: int = 1
    levels: int = 1


class _Walk:
    """One walk through a schema.

    Args:
        named: schemas outside of it, by full name.
        least: bytes of recursive types, as far as they are known.
    """

    def __init__(self, named: Mapping[str, Any], least: Mapping[str, int]) -> None:
        self.done: dict[str, _Type] = {}
        self.per_byte: int | None = 0
        self.is_recursive = False
        self.has_decimals = False
        self._outside = dict(named)
        self._least = least
        self._open: list[str | None] = []
        """Records around the current type, from the outside; None: a byte lies between."""

    def visit(self, schema: Any, namespace: str) -> _Type:
        """Return the known facts of a type."""
        if isinstance(schema, str):
            known = LEAST_BYTES.get(schema)
            return self._named(schema, namespace) if known is None else _Type(known)
        if isinstance(schema, list):
            return self._union(cast("list[Any]", schema), namespace)
        if not isinstance(schema, dict):
            raise ValueError(f"{schema!r:.60} is no Avro type")
        given = cast("dict[str, Any]", schema)
        self.has_decimals |= given.get("logicalType") == "decimal"
        match given.get("type"):
            case "array":
                return self._repeated(given.get("items"), namespace, 0)
            case "map":
                return self._repeated(given.get("values"), namespace, 1)
            case "record" | "error":
                return self._record(given, namespace)
            case "enum":
                return self._declare(given, namespace, _Type(1))
            case "fixed":
                size = given.get("size")
                return self._declare(
                    given, namespace, _Type(max(size, 0) if isinstance(size, int) else 0)
                )
            case inner:
                return self.visit(inner, namespace)

    def _named(self, name: str, namespace: str) -> _Type:
        for full in dict.fromkeys((_full_name(name, namespace), name)):
            if full in self._open:
                return self._again(full)
            if full in self.done:
                return self.done[full]
            if full in self._outside:
                return self.visit(self._outside.pop(full), full.rpartition(".")[0])
        raise ValueError(f"the schema has no type {name!r:.60}")

    def _again(self, name: str) -> _Type:
        self.is_recursive = True
        if None not in self._open[self._open.index(name) :]:
            raise ValueError(f"type {name!r:.60} contains itself, so it has no values")
        return _Type(self._least.get(name, 0))

    def _union(self, branches: list[Any], namespace: str) -> _Type:
        with self._byte_between():
            found = [self.visit(branch, namespace) for branch in branches]
        return _Type(
            1 + min((each.least for each in found), default=0),
            # A reader compares a value's branch with all of its own.
            len(found) + max((each.values for each in found), default=0),
            1 + sum(each.written for each in found),
            1 + max((each.levels for each in found), default=0),
        )

    def _repeated(self, item: Any, namespace: str, key_bytes: int) -> _Type:
        with self._byte_between():
            found = self.visit(item, namespace)
        self._add_per_byte(found.values, found.least + key_bytes)
        return _Type(1, 1, 1 + found.written, 1 + found.levels)

    def _record(self, given: Mapping[str, Any], namespace: str) -> _Type:
        name = _full_name(str(given.get("name")), given.get("namespace") or namespace)
        namespace = name.rpartition(".")[0]
        self._open.append(name)
        fields = given.get("fields")
        types = [f.get("type") for f in fields] if isinstance(fields, list) else []  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        found = [self.visit(each, namespace) for each in types]  # pyright: ignore[reportUnknownVariableType]
        self._open.pop()
        made = _Type(
            sum(each.least for each in found),
            1 + sum(each.values for each in found),
            1 + sum(each.written for each in found),
            1 + max((each.levels for each in found), default=0),
        )
        if self.is_recursive:
            self._add_per_byte(made.values, 1)
        self.done[name] = made
        return made

    def _declare(self, given: Mapping[str, Any], namespace: str, made: _Type) -> _Type:
        name = _full_name(str(given.get("name")), given.get("namespace") or namespace)
        self.done[name] = made
        return made

    def _add_per_byte(self, values: int, least: int) -> None:
        if least == 0:
            self.per_byte = None
        elif self.per_byte is not None:
            self.per_byte = max(self.per_byte, -(-values // least))

    @contextmanager
    def _byte_between(self) -> Generator[None]:
        self._open.append(None)
        try:
            yield
        finally:
            self._open.pop()


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
