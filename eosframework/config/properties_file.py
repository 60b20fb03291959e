"""Java's `.properties` files, the format of Kafka's own client configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eosframework.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Property:
    """One property of a file.

    Args:
        place: file and line, for messages.
    """

    place: str
    name: str
    value: str


def read_properties(text: str, file: Path) -> list[Property]:
    """Return the properties of a file in its order.

    Stricter than Java: `=` or `:` must separate name and value, and a name occurs once.

    Args:
        text: content of the file, with newlines only.
        file: for messages.

    Raises:
        ConfigurationError: names the file and the line of the first malformed line or repeated
            name; not its content, which may be a password.
    """
    # Import the library, which also reads XML, only for a file.
    from javaproperties import (
        InvalidUEscapeError,
        KeyValue,
        parse,  # pyright: ignore[reportUnknownVariableType]
    )

    found: dict[str, Property] = {}
    number = 1
    try:
        for line in parse(text):
            place = f"{file}:{number}"
            number += line.source.count("\n")
            if not isinstance(line, KeyValue):
                continue
            if not line.key or not {"=", ":"}.intersection(line.source):
                raise ConfigurationError(
                    f"config file {place}: malformed line; expected NAME=VALUE, as in the "
                    f"properties of Kafka's clients"
                )
            if line.key in found:
                raise ConfigurationError(
                    f"config file {place}: property {line.key} is also given at "
                    f"{found[line.key].place}; remove one of them"
                )
            found[line.key] = Property(place, line.key, line.value)
    except InvalidUEscapeError:
        raise ConfigurationError(
            f"config file {file}:{number}: \\u without four hexadecimal digits; write \\\\ for a "
            f"backslash"
        ) from None
    return list(found.values())
