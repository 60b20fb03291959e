"""Event times of records before they are run."""

from __future__ import annotations

from typing import Any

from eosframework.errors import SchemasAway, SchemasRefused, raised_by_functions
from eosframework.processing.conversions import as_milliseconds
from eosframework.processing.ports import Message
from eosframework.topology.graph.graph import Source


def event_time(source: Source, message: Message) -> int:
    """Return a message's event time, or its own timestamp where it has none.

    Decoding errors, failing functions and times too far ahead are reported when the record is run.

    Raises:
        SchemasAway: the schema registry is unavailable.
        SchemasRefused: the schema registry refuses the schema.
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
