"""When a record happened, as far as that can be told before it is run."""

from __future__ import annotations

from typing import Any

from eosframework.errors import SchemasAway, SchemasRefused, raised_by_functions
from eosframework.processing.conversions import as_milliseconds
from eosframework.processing.ports import Message
from eosframework.topology.graph.graph import Source


def event_time(source: Source, message: Message) -> int:
    """Return a message's event time; of one that has none its own timestamp.

    That it does not decode, its function fails, or the time lies too far ahead, is found when it
    is run.

    Raises:
        SchemasAway: when it happened cannot be told yet.
        SchemasRefused: it cannot be told at all.
    """
    own = message.timestamp()[1]
    if source.timestamp is None:
        return own
    try:
        value: Any = message.value()
        if value is not None and source.value.decode is not None:
            value = source.value.decode(value)
        if value is not None:
            time_ms = as_milliseconds(source.timestamp.call(value))
            if source.ahead_ms is None or time_ms - own <= source.ahead_ms:
                return time_ms
    except (SchemasAway, SchemasRefused):
        raise
    except raised_by_functions():
        pass
    return own
