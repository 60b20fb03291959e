"""The writer of generated code: its lines, its names, and the step of each line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import orjson

from eosframework.engine.codegen.compile_context import Slots
from eosframework.engine.conversions import (
    as_bytes,
    as_milliseconds,
    refuse_ahead,
    unpack_record,
)
from eosframework.engine.failures.failure_handler import Site
from eosframework.engine.failures.refused_outputs import (
    NO_LIMITS,
    bounds_of,
    refuse_size,
    refuse_time,
)
from eosframework.engine.operators.entries import of_store
from eosframework.engine.operators.folds import owned
from eosframework.engine.operators.store_transaction import undo
from eosframework.errors import raised_by_functions
from eosframework.records import Record
from eosframework.serialization import strict_json
from eosframework.serialization.key_bytes import key_encoder
from eosframework.serialization.serdes import JSON, KEPT_JSON, Serde
from eosframework.topology.graph.graph import Function, Keyed, Node, OnError, Store
from eosframework.topology.graph.node_kinds import excludes_none, refuse_none


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables that hold a record at one place of the generated code.

    Args:
        key_bytes: variable with the encoded key of the message; None once the key changed.
        key_serde: the serde of `key_bytes`.
        before: variable with the previous row, for a change of a table; None: no such change.
        encoded: a variable with a value, one with its bytes, and their serde; for this value only.
            KEPT_JSON: the bytes that it was read from, for stores and internal topics alone.
        now: the variable with the time at which the record is judged: late or not.
        written: the variable with its time of writing; None: its event time.
        is_shared: steps after the next ones use the value as well.
    """

    key: str
    value: str
    timestamp: str
    headers: str
    key_bytes: str | None
    key_serde: Serde
    before: str | None = None
    encoded: tuple[str, str, Serde] | None = None
    now: str = "stream_time"
    written: str | None = "stream_time"
    is_shared: bool = False


GENERATED = "<topology "
"""The beginning of the file name of generated code, with which its frames are recognized."""

WriteChildren = Callable[["CodeWriter", int, Sequence[Node], Variables], None]
"""Writes nodes at an indentation, for the record in some variables."""


class CodeWriter:
    """Writes one generated function line by line, and records the step of each line.

    Args:
        slots: the slots of the sub-topology.
        write_children: writes the nodes that follow one.

    Attributes:
        site: the place to which the next lines belong.
        refused_site: the place to which outputs belong that brokers reject.
        operators: by slot, the variable of a keyed node's operator.
        bounds: by topic, the line that reads the bounds of its timestamps.
    """

    def __init__(self, slots: Slots, write_children: WriteChildren) -> None:
        self.lines: list[str] = []
        self.slots = slots
        self._write_children = write_children
        self.ahead_ms = slots.ahead_ms
        self.operators: dict[int, str] = {}
        self._sites: dict[int, Site] = {}
        self.site = self.refused_site = Site("", OnError())
        self.bounds: dict[str, str] = {}
        self._again: dict[str, str] = {}
        """By variable, the expression that decodes its value once more."""
        self._count = 0
        self.names: dict[str, Any] = {
            "Record": Record,
            "new": cast("Any", tuple).__new__,
            "as_bytes": as_bytes,
            "as_milliseconds": as_milliseconds,
            "refuse_ahead": refuse_ahead,
            "refuse_size": refuse_size,
            "refuse_time": refuse_time,
            "bounds_of": bounds_of,
            "as_topic": slots.choice,
            "unpack_record": unpack_record,
            "site_of": self._site_of,
            "site_at": self._site_at,
            "raised_by_functions": raised_by_functions,
            "undo": undo,
            "owned": owned,
            "dumps": orjson.dumps,
            "as_iso": strict_json.as_iso,
            "TIMES": strict_json.TIMES,
            "without_nan": strict_json.without_nan,
            "write_large": strict_json.write_large,
        }

    def sites(self) -> list[Site]:
        """Return the sites of the lines so far, each once."""
        return [*dict.fromkeys(self._sites.values())]

    def insert(self, before: int, lines: list[str]) -> None:
        """Insert lines before an index; the lines after it keep their sites."""
        self._sites = {
            number + len(lines) if number > before else number: site
            for number, site in self._sites.items()
        }
        self.lines[before:before] = lines

    def _site_of(self, error: BaseException) -> Site:
        """Return the step whose line raised `error`: the traceback starts in the frame of `run`."""
        assert error.__traceback__ is not None
        return self._site_at(error.__traceback__.tb_lineno)

    def _site_at(self, line: int) -> Site:
        return self._sites.get(line, self.refused_site)

    def decode(self, depth: int, expression: str, serde: Serde) -> str:
        """Write the decoding of an expression; return the variable of the result."""
        return self._decode_by(depth, expression, serde.decode)

    def stored_key(self, depth: int, serde: Serde, store: Store) -> str:
        """Write the decoding of a result's key, which comes out of a store; see `decode`."""
        held = of_store(store.name, store.changelog)
        read = None if serde.decode is None else held.reading(serde.decode)
        return self._decode_by(depth, "m.key()", read)

    def _decode_by(
        self, depth: int, expression: str, function: Callable[[bytes], Any] | None
    ) -> str:
        if function is None:
            if expression.isidentifier():
                return expression
            raw = self.variable("v")
            self.line(depth, f"{raw} = {expression}")
            return raw
        variable = self.variable("v")
        decode = self.name("decode", function)
        self.line(depth, f"{variable} = {expression}")
        self.line(depth, f"if {variable} is not None: {variable} = {decode}({variable})")
        self._again[variable] = f"None if {variable} is None else {decode}({expression})"
        return variable

    def key_bytes(self, current: Variables, serde: Serde) -> str:
        """Return an expression of the encoded key, if possible the bytes of the message."""
        known = current.key_serde
        # The same format in another topic may have another subject.
        same = known.name == serde.name and (serde.codec is None or serde.codec is known.codec)
        if current.key_bytes is not None and same:
            return current.key_bytes
        return self.encode_key(current.key, serde)

    def encode_key(self, variable: str, serde: Serde) -> str:
        """Return an expression that encodes a variable as a key."""
        return self._encode_by(variable, key_encoder(serde))

    def value_bytes(self, depth: int, current: Variables, serde: Serde) -> str:
        """Write what the encoded value needs, and return an expression of it.

        Bytes are taken if they are already known, and JSON is otherwise written without a call of
        Python, which would cost a tenth of a record's time in the generated code.
        """
        if (known := current.encoded) is not None and known[0] == current.value:
            _, data, of = known
            if of == serde:
                return data
        if serde != JSON:
            return self.encode(current.value, serde)
        data = self.variable("b")
        self.line(depth, f"try: {data} = dumps({current.value}, as_iso, TIMES)")
        large = f"write_large({current.value}, error, as_iso, TIMES)"
        self.line(depth, f"except TypeError as error: {data} = {large}")
        self.line(
            depth,
            f"if {data}.rpartition(b'null')[1]: {data} = without_nan({current.value}, {data})",
        )
        return data

    def json_as_read(self, current: Variables, serde: Serde) -> str | None:
        """Return the variable with the JSON that a value was read from; None: it has no such."""
        known = current.encoded
        if known is None or known[0] != current.value or known[2] != KEPT_JSON:
            return None
        return known[1] if serde in (JSON, KEPT_JSON) else None

    def encode(self, variable: str, serde: Serde) -> str:
        """Return an expression that encodes a variable."""
        return self._encode_by(variable, serde.encode)

    def _encode_by(self, variable: str, function: Callable[[Any], bytes] | None) -> str:
        if function is None:
            return f"as_bytes({variable})"
        encode = self.name("encode", function)
        return f"(None if {variable} is None else {encode}({variable}))"

    def record_of(self, current: Variables) -> str:
        """Return an expression that makes a `Record`, without a call of Python."""
        return (
            f"new(Record, ({current.key}, {current.value}, {current.timestamp}, "
            f"{current.headers} or (), m.topic(), m.partition(), m.offset()))"
        )

    def write_unpacked(self, depth: int, result: str, current: Variables) -> Variables:
        """Write the unpacking of a function's result; a new event time is checked."""
        key, value = self.variable("k"), self.variable("v")
        timestamp, headers = self.variable("t"), self.variable("h")
        self.line(
            depth,
            f"{key}, {value}, {timestamp}, {headers} = "
            f"unpack_record({result}, {current.timestamp}, {current.headers})",
        )
        self.write_time_limit(depth, timestamp, f"{timestamp} is not {current.timestamp} and ")
        return replace(
            current,
            key=key,
            value=value,
            timestamp=timestamp,
            headers=headers,
            key_bytes=None,
            before=None,
            encoded=None,
        )

    def write_needs_value(self, depth: int, value: str, function: Function) -> None:
        """Write the check that a function returned no None that its annotation excludes."""
        if excludes_none(function.call):
            self.names["refuse_none"] = refuse_none
            self.line(depth, f"if {value} is None: refuse_none({function.name!r})")

    def write_keyless(self, depth: int, node: Keyed, current: Variables) -> None:
        """Write the count of a record that a node skips for its key, after the node's `if`."""
        self.line(depth, f"elif {current.key} is None: state.keyless.note({node.name!r}, m)")

    def write_time_limit(self, depth: int, timestamp: str, condition: str = "") -> None:
        """Write the check of an event time against the limit of the source."""
        if self.ahead_ms is not None:
            own = "m.timestamp()[1]"
            self.line(
                depth,
                f"if {condition}{timestamp} - {own} > {self.ahead_ms}: "
                f"refuse_ahead({timestamp}, {own}, {self.ahead_ms})",
            )

    def write_output_limits(self, depth: int, topic: str, value: str, timestamp: str) -> None:
        """Write the checks of outputs against the limits of their topic.

        A rejection here has the same site as one by the broker.
        """
        limits = self.slots.context.limits.get(topic, NO_LIMITS)
        self.site = self.refused_site
        if limits.value_bytes is not None:
            size = f"len({value})"
            self.line(
                depth,
                f"if {value} is not None and {size} > {limits.value_bytes}: "
                f"refuse_size({topic!r}, {size}, {limits.value_bytes})",
            )
        if limits.before_ms is not None or limits.after_ms is not None:
            if topic not in self.bounds:
                number, known = len(self.bounds), self.name("limits", limits)
                self.bounds[topic] = f"earliest{number}, latest{number} = bounds_of({known})"
            number = list(self.bounds).index(topic)
            is_early = f"{timestamp} < earliest{number} or " if limits.before_ms is not None else ""
            self.line(
                depth,
                f"if {is_early}{timestamp} > latest{number}: refuse_time({topic!r}, {timestamp})",
            )

    def own(self, depth: int, current: Variables) -> Variables:
        """Write a copy of a value, for a step that may change it; later steps have the original."""
        value, before = self.variable("v"), current.before
        again = self._again.get(current.value, f"owned({current.value})")
        self.line(depth, f"{value} = {again}")
        if before is not None:
            before = self.variable("o")
            self.line(depth, f"{before} = owned({current.before})")
        return replace(current, value=value, before=before, encoded=None, is_shared=False)

    def children(self, depth: int, children: Sequence[Node], current: Variables) -> None:
        """Write the nodes that follow one."""
        self._write_children(self, depth, children, current)

    def operator(self, node: Keyed, kind: str) -> str:
        """Return the variable of a keyed node's operator."""
        slot = self.slots.of(node)
        return self.operators.setdefault(slot, f"{kind}{slot}")

    def function(self, function: Function) -> str:
        """Return the name of a user function."""
        return self.name("call", function.call)

    def name(self, kind: str, value: Any) -> str:
        """Return a new name that refers to a value."""
        name = self.variable(kind)
        self.names[name] = value
        return name

    def variable(self, kind: str) -> str:
        """Return a new variable."""
        self._count += 1
        return f"{kind}{self._count}"

    def line(self, depth: int, text: str) -> None:
        """Write a line of the current site."""
        self.lines.append(" " * depth + text)
        self._sites[len(self.lines)] = self.site
