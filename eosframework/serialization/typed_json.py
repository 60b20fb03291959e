"""Serdes of Python types, which hold their values as JSON: dataclasses, Decimal, list[Order]."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError

from eosframework.errors import TopologyError
from eosframework.serialization import strict_json
from eosframework.serialization.annotations import type_name

Coder = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]


def typed_coder(
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
