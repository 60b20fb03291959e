"""The topologies that hostile records go through: a lane for each kind of step and serde."""

from __future__ import annotations

PLAIN = {
    "raw": ("bytes", "bytes"),
    "text": ("string", "string"),
    "whole": ("integer", "integer"),
    "real": ("float", "float"),
    "any": ("json", "json"),
    "item": ("string", "tests.hostile.functions:Item"),
}
"""By lane the serdes of key and value; each record goes out as it came, and with its place."""

REGISTERED = {
    "avro": ("AVRO", "avro()"),
    "shaped": ("JSON", "json_schema(schema=tests.hostile.functions:SHAPE)"),
    "message": ("PROTOBUF", "protobuf(message=tests.hostile.functions:Message)"),
}
"""By lane the type of its schemas in the registry, and the serde of its values."""

KEPT = "kept"
"""The lane that ends in a table."""

IDENTIFIED = ("again", "window", "session", "left", "right", "asks")
"""Lanes whose outputs have the ids that the values give: they lose sight of offsets."""

ROWS = "rows"
"""The lane of a table's rows: of these only dead letters are seen."""

LANES = (*PLAIN, *REGISTERED, "act", *IDENTIFIED, ROWS, KEPT)

JOIN_MS = 10_000
WINDOW_MS = 10_000

_FUNCTIONS = "tests.hostile.functions"


def _source(lane: str, key: str, value: str, *more: str) -> str:
    parts = (f"topic: NAME.{lane}", f"key: {key}", f'value: "{value}"', *more)
    return f"  {lane}: {{{', '.join(parts)}}}\n"


def _plain_streams(lane: str) -> str:
    return f"""\
  {lane}_same:
    from: {lane}
    on_error: {{dead_letter: NAME.dead}}
    to: {{topic: NAME.same.{lane}}}
""" + _placed_stream(lane)


def _placed_stream(lane: str) -> str:
    return f"""\
  {lane}_placed:
    from: {lane}
    on_error: {{dead_letter: NAME.dead}}
    steps: [{{map: "{_FUNCTIONS}:place"}}]
    to: {{topic: NAME.placed, value: json}}
"""


def _windowed(lane: str, window: str) -> str:
    return f"""\
  {lane}_closed:
    from: {lane}
    on_error: {{dead_letter: NAME.dead}}
    steps:
      - group_by: {{by: "{_FUNCTIONS}:group", key: string}}
      - aggregate:
          initial: "{_FUNCTIONS}:nothing"
          add: "{_FUNCTIONS}:collect"
          value: json
          window: {window}
          emit: close
    to: {{topic: NAME.closed.{lane}, value: json}}
"""


_TIMED = f'timestamp: "{_FUNCTIONS}:moment"'

TRANSFORMS = (
    "application: NAME\nsources:\n"
    + "".join(_source(lane, *serdes) for lane, serdes in PLAIN.items())
    + "".join(_source(lane, "bytes", serde) for lane, (_, serde) in REGISTERED.items())
    + _source("act", "bytes", "json", _TIMED)
    + _source("again", "bytes", "json")
    + _source("window", "bytes", "json", _TIMED)
    + _source("session", "bytes", "json", _TIMED)
    + _source("left", "string", "json", _TIMED, "on_error: {dead_letter: NAME.dead}")
    + _source("right", "string", "json", _TIMED, "on_error: {dead_letter: NAME.dead}")
    + _source(ROWS, "string", "json", "table: true", "on_error: {dead_letter: NAME.dead}")
    + _source("asks", "string", "json", "on_error: {dead_letter: NAME.dead}")
    + "streams:\n"
    + "".join(map(_plain_streams, PLAIN))
    + "".join(map(_placed_stream, REGISTERED))
    + f"""\
  acted:
    from: act
    on_error: {{dead_letter: NAME.dead}}
    steps: [{{map: "{_FUNCTIONS}:act"}}]
    to: {{topic: NAME.placed, value: json}}
  sent:
    from: act
    on_error: {{dead_letter: NAME.dead}}
    steps: [{{filter: "{_FUNCTIONS}:is_sent"}}]
    to: {{topic_from: "{_FUNCTIONS}:chosen", value: json}}
  repeated:
    from: again
    on_error: {{dead_letter: NAME.dead, retry: [1s]}}
    steps: [{{map_values: "{_FUNCTIONS}:fail_again"}}]
    to: {{topic: NAME.repeated, value: json}}
"""
    + _windowed("window", f"{{tumbling: {WINDOW_MS}ms, late: NAME.late}}")
    + _windowed("session", "{session: 1s, late: NAME.late}").replace(
        "          value: json\n", f'          merge: "{_FUNCTIONS}:both"\n          value: json\n'
    )
    + f"""\
  paired:
    from: left
    on_error: {{dead_letter: NAME.dead}}
    steps:
      - join: {{with: right, by: "{_FUNCTIONS}:pair", kind: outer, within: {JOIN_MS}ms,
               late: NAME.late}}
    to: {{topic: NAME.paired, value: json}}
  looked:
    from: asks
    on_error: {{dead_letter: NAME.dead}}
    steps: [{{join: {{with: rows, by: "{_FUNCTIONS}:look", kind: left}}}}]
    to: {{topic: NAME.looked, value: json}}
"""
)

TABLES = (
    "application: NAME\nsources:\n"
    + _source(KEPT, "bytes", "json")
    + f"""\
streams:
  filled:
    from: kept
    on_error: {{dead_letter: NAME.dead}}
    to:
      - {{table: kept, mode: append, row: "{_FUNCTIONS}:row", model: "{_FUNCTIONS}:Kept"}}
"""
)

OUTPUTS = (
    "placed",
    "repeated",
    "paired",
    "looked",
    "closed.window",
    "closed.session",
    "dead",
    "late",
    "chosen",
    *(f"same.{lane}" for lane in PLAIN),
)
"""Topics that the transforms write."""
