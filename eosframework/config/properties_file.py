"""Java's `.properties` files, the format of Kafka's own client configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eosframework.errors import ConfigurationError

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_COMMENT = re.compile(r"\s*([#!]|$)")
_CONTINUED = re.compile(r"(?<!\\)(\\\\)*\\$")
"""A line that ends with an odd number of backslashes; the next line continues it."""
_LINE = re.compile(r"((?:[^\s=:\\]|\\.)+)\s*[=:]\s*((?:[^\\]|\\.)*?)\s*", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


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
        text: content of the file.
        file: for messages.

    Raises:
        ConfigurationError: names the file and the line of the first malformed line or repeated
            name; not its content, which may be a password.
    """
    found: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        place = f"{file}:{number}"
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigurationError(
                f"config file {place}: malformed line; expected NAME=VALUE, as in the properties "
                f"of Kafka's clients"
            )
        name, value = (_unescaped(part, place) for part in match.groups())
        if name in found:
            raise ConfigurationError(
                f"config file {place}: property {name} is also given at {found[name].place}; "
                f"remove one of them"
            )
        found[name] = Property(place, name, value)
    return list(found.values())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each first line with its text; comments and blank lines are omitted."""
    lines = enumerate(_LINE_BREAK.split(text), 1)
    for number, line in lines:
        if _COMMENT.match(line):
            continue
        whole = line.lstrip()
        while _CONTINUED.search(whole):
            whole = whole[:-1] + next(lines, (0, ""))[1].lstrip()
        yield number, whole


def _unescaped(text: str, place: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code, character = match.groups()
        if code is not None:
            return chr(int(code, 16))
        if character == "u":
            raise ConfigurationError(
                f"config file {place}: \\u without four hexadecimal digits; write \\\\ for a "
                f"backslash"
            )
        return _CONTROL.get(character, character)

    return _ESCAPE.sub(replace, text)
