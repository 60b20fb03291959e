"""One dead letter as plain data, decoded with the serdes of its source where possible."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import BaseModel

from eosframework.errors import raised_by_functions
from eosframework.operations.dead_letters.dead_letter import DeadLetter
from eosframework.serialization.serdes import BYTES, Serde
from eosframework.topology.graph.graph import Graph


def shown(graph: Graph, letter: DeadLetter, *, was_replayed: bool) -> dict[str, Any]:
    """Return the data of a dead letter for display.

    Key and value are decoded with the serdes of the record's source topic. Where that fails, or no
    source reads this topic, they are text; bytes that are not UTF-8 become `{"hex": …}`.

    Args:
        graph: of the application.
        letter: the dead letter.
        was_replayed: the dead letter has a replay mark.
    """
    sources = {s.topic: s for part in graph.sub_topologies for s in part.sources}
    source = sources.get(letter.origin.topic)
    return {
        "letter": letter.place,
        "input": letter.input,
        "step": letter.step,
        "error": letter.error,
        "failed_at": None if letter.failed_at is None else _moment(letter.failed_at),
        "attempts": letter.attempts,
        "replayed": was_replayed,
        "replayed_from": letter.replayed_from,
        "timestamp": _moment(letter.timestamp),
        "key": _decoded(letter.key, source.key if source else BYTES),
        "value": _decoded(letter.value, source.value if source else BYTES),
        "headers": [{"name": name, "value": _plain(value)} for name, value in letter.headers],
    }


def _decoded(data: bytes | None, serde: Serde) -> Any:
    if data is None or serde.decode is None:
        return _plain(data)
    try:
        value = serde.decode(data)
        plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        orjson.dumps(plain)
    except raised_by_functions():  # the undecodable value may be the reason of the dead letter
        return _plain(data)
    return plain


def _plain(data: Any) -> Any:
    if not isinstance(data, bytes):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _moment(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
