"""Names of tables as a topology writes them: `orders`, `shop.Orders`, `shop."order lines"`."""

from __future__ import annotations

import re

PATTERN = r'^(?:[A-Za-z_]\w*|"(?:[^"]|"")+")(?:\.(?:[A-Za-z_]\w*|"(?:[^"]|"")+"))?$'
"""A name, with its schema before a dot. A part in double quotes may have any character."""

_PART = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')
_SAFE = re.compile(r"[^A-Za-z0-9._-]")


def relation_parts(name: str) -> tuple[str, ...]:
    """Return the table's name, after its schema if there is one, without quotes.

    Case is kept, with and without quotes.
    """
    return tuple(quoted.replace('""', '"') or plain for quoted, plain in _PART.findall(name))


def extended(name: str, ending: str) -> str:
    """Return a table's name with an ending."""
    return f'{name[:-1]}{ending}"' if name.endswith('"') else f"{name}{ending}"


def as_topic(name: str) -> str:
    """Return a table's name in the characters that a topic may have."""
    return _SAFE.sub("_", ".".join(relation_parts(name)))
