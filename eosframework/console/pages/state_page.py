"""The page of the stores: the rows of a key or of a range of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from eosframework.console.drawing.timelines import Timeline, windows_timeline
from eosframework.console.pages.page import Console, Fields, Page
from eosframework.console.readings import Reading
from eosframework.records import WindowResult
from eosframework.state.query.layouts import queried_stores
from eosframework.state.query.text_forms import as_json, plain

SOURCES = {
    "changelog": "the changelog topic, in the cluster",
    "workers": "the workers that are asked",
    "files": "files on this machine",
}
"""Sources of rows, with their names for people."""


def state_page(console: Console, fields: Fields) -> Page:
    """Return the page with a form, and the rows that it asks for.

    Raises:
        TopologyError: the topology does not resolve.
    """
    app = console.app
    stores = queried_stores(app.graph())
    default = "workers" if app.addresses else "changelog"
    source = fields.get("source", default)
    name, key = fields.get("store", ""), fields.get("key", "")
    reading: Reading[dict[str, Any]] | None = None
    if name and source in SOURCES and (key or fields.get("scan")):
        if fields.get("scan"):
            first, last = bounds_of(fields)
            reading = app.rows_of(name, first, last, source)
        else:
            reading = app.row_of(name, key, source)
    rows = [] if reading is None or reading.value is None else shown_rows(reading.value)
    values = {
        "stores": stores,
        "sources": SOURCES if app.addresses else {k: SOURCES[k] for k in ("changelog", "files")},
        "source": source,
        "store": name,
        "fields": fields,
        "reading": reading,
        "rows": rows,
        "timeline": timeline_of(rows) if key and not fields.get("scan") else None,
    }
    return Page("state.html", "State", values, is_live=False)


def bounds_of(fields: Fields) -> tuple[str | None, str | None]:
    """Return the first key and the key to stop before; a prefix gives both."""
    if prefix := fields.get("prefix"):
        return prefix, after_prefix(prefix)
    return fields.get("from") or None, fields.get("to") or None


def after_prefix(prefix: str) -> str | None:
    """Return the least text that is greater than all texts with a prefix; None: there is none.

    UTF-8 has the order of the code points. Surrogates cannot be encoded and are skipped.
    """
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if 0xD800 <= following < 0xE000 else following)


def shown_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return rows with their keys and values as text, and with the windows that they have."""
    rows: list[dict[str, Any]] = []
    for row in found["found"]:
        value = row["value"]
        window: Any = None
        if isinstance(value, Mapping):  # a worker's answer
            window = dict(cast("Mapping[str, Any]", value))
        elif isinstance(value, WindowResult):
            result = cast("WindowResult", value)
            window = {"start": result.start, "end": result.end, "value": result.value}
        key = row.get("key", found.get("key"))
        rows.append(
            {
                "key": key if isinstance(key, str) else as_json(plain_key(key)).decode(),
                "value": as_json(value).decode(),
                "window": window,
                "timestamp": row["timestamp"],
                "partition": row.get("partition", found.get("partition")),
            }
        )
    return rows


def plain_key(key: Any) -> Any:
    """Return a key that JSON can show."""
    return plain(key) if isinstance(key, bytes) else key


def timeline_of(rows: list[dict[str, Any]]) -> Timeline | None:
    """Return the windows of a key as a timeline; None: it has none."""
    return windows_timeline([row["window"] for row in rows if row["window"] is not None])
