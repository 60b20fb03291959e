"""The lines of a generated function, the names that it uses, and the step each line belongs to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from eosframework.errors import raised_by_functions
from eosframework.operators.store_transaction import undo
from eosframework.processing.conversions import (
    TopicChoice,
    as_bytes,
    as_milliseconds,
    refuse_ahead,
    unpack_record,
)
from eosframework.processing.failures.refused_outputs import (
    NO_LIMITS,
    OutputLimits,
    bounds_of,
    refuse_size,
    refuse_time,
)
from eosframework.processing.transaction.run_slices import end_run
from eosframework.records import Record
from eosframework.serialization.serdes import JSON, Serde
from eosframework.topology.graph.graph import (
    Aggregate,
    Emit,
    Function,
    Keyed,
    OnError,
    Processor,
    StreamJoin,
)


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the topology where a record can fail, and what happens to it then."""

    name: str
    on_error: OnError


class Slots:
    """Numbers the keyed nodes of a sub-topology, each once however many paths lead to it."""

    def __init__(
        self,
        *,
        has_windows: bool = False,
        has_ttl: bool = False,
        batch_rows: int | None = None,
        closed_topics: Collection[str] = (),
        ahead_ms: int | None = None,
        limits: Mapping[str, OutputLimits] | None = None,
        is_missing: Callable[[str], bool] | None = None,
    ) -> None:
        self.has_windows = has_windows
        self.has_ttl = has_ttl
        self.batch_rows = batch_rows
        self.choice = TopicChoice(closed_topics, is_missing)
        self.ahead_ms = ahead_ms
        self.limits = limits or {}
        self.keyed: list[Keyed] = []
        self.emitting: list[Aggregate | StreamJoin | Processor] = []

    def of(self, node: Keyed) -> int:
        """Return the slot of a node."""
        if node not in self.keyed:
            self.keyed.append(node)
            emits = isinstance(node, Aggregate | StreamJoin | Processor)
            if emits and node.emit is not Emit.EACH:
                self.emitting.append(node)
        return self.keyed.index(node)


@dataclass(frozen=True, slots=True)
class Current:
    """The variables that hold a record at one place of the generated function.

    Args:
        key_bytes: variable with the encoded key as it came in; None once the key changed.
        key_serde: what `key_bytes` is encoded with.
        before: variable with what the row was, of a change of a table; None: no such change.
        encoded: a variable with a value, and one that has its JSON; for that value only.
    """

    key: str
    value: str
    timestamp: str
    headers: str
    key_bytes: str | None
    key_serde: Serde
    before: str | None = None
    encoded: tuple[str, str] | None = None


class Lines:
    """What is written so far; see `generating.Writer`.

    Args:
        slots: of the sub-topology.
    """

    def __init__(self, slots: Slots) -> None:
        self.lines: list[str] = []
        self._slots = slots
        self._ahead_ms = slots.ahead_ms
        self._used: dict[int, str] = {}
        self._sites: dict[int, Site] = {}
        self._site = self._refused = Site("", OnError())
        self._bounds: dict[str, str] = {}
        self._count = 0
        self.names: dict[str, Any] = {
            "Record": Record,
            "as_bytes": as_bytes,
            "as_milliseconds": as_milliseconds,
            "refuse_ahead": refuse_ahead,
            "refuse_size": refuse_size,
            "refuse_time": refuse_time,
            "bounds_of": bounds_of,
            "as_topic": slots.choice,
            "unpack_record": unpack_record,
            "end_run": end_run,
            "site_of": self._site_of,
            "raised_by_functions": raised_by_functions,
            "undo": undo,
        }

    def _insert(self, before: int, lines: list[str]) -> None:
        """Put lines in front of the one at an index; those behind keep their sites."""
        self._sites = {
            number + len(lines) if number > before else number: site
            for number, site in self._sites.items()
        }
        self.lines[before:before] = lines

    def _site_of(self, error: BaseException) -> Site:
        """The step whose line raised `error`: the traceback starts in the frame of `run`."""
        assert error.__traceback__ is not None
        return self._sites[error.__traceback__.tb_lineno]

    def _decode(self, depth: int, expression: str, serde: Serde) -> str:
        if serde.decode is None:
            if expression.isidentifier():
                return expression
            raw = self._variable("v")
            self._line(depth, f"{raw} = {expression}")
            return raw
        variable = self._variable("v")
        decode = self._name("decode", serde.decode)
        self._line(depth, f"{variable} = {expression}")
        self._line(depth, f"if {variable} is not None: {variable} = {decode}({variable})")
        return variable

    def _key_bytes(self, current: Current, serde: Serde) -> str:
        known = current.key_serde
        # The same format in another topic may have another subject.
        same = known.name == serde.name and (serde.codec is None or serde.codec is known.codec)
        if current.key_bytes is not None and same:
            return current.key_bytes
        return self._encode(current.key, serde)

    def _value_bytes(self, current: Current, serde: Serde) -> str:
        if current.encoded is not None and current.encoded[0] == current.value and serde == JSON:
            return current.encoded[1]
        return self._encode(current.value, serde)

    def _encode(self, variable: str, serde: Serde) -> str:
        if serde.encode is None:
            return f"as_bytes({variable})"
        encode = self._name("encode", serde.encode)
        return f"(None if {variable} is None else {encode}({variable}))"

    def _record(self, current: Current) -> str:
        return (
            f"Record({current.key}, {current.value}, {current.timestamp}, "
            f"{current.headers} or (), m.topic(), m.partition(), m.offset())"
        )

    def _write_unpacked(self, depth: int, result: str, current: Current) -> Current:
        """Write how a function's result becomes a record; a new event time has its limit."""
        key, value = self._variable("k"), self._variable("v")
        timestamp, headers = self._variable("t"), self._variable("h")
        self._line(
            depth,
            f"{key}, {value}, {timestamp}, {headers} = "
            f"unpack_record({result}, {current.timestamp}, {current.headers})",
        )
        self._write_limit(depth, timestamp, f"{timestamp} is not {current.timestamp} and ")
        return Current(key, value, timestamp, headers, None, current.key_serde)

    def _write_limit(self, depth: int, timestamp: str, condition: str = "") -> None:
        if self._ahead_ms is not None:
            own = "m.timestamp()[1]"
            self._line(
                depth,
                f"if {condition}{timestamp} - {own} > {self._ahead_ms}: "
                f"refuse_ahead({timestamp}, {own}, {self._ahead_ms})",
            )

    def _write_refusals(self, depth: int, topic: str, value: str, timestamp: str) -> None:
        """Write what tells outputs that the topic is known to refuse.

        They are of the place to which those are charged that brokers refuse.
        """
        limits = self._slots.limits.get(topic, NO_LIMITS)
        self._site = self._refused
        if limits.value_bytes is not None:
            size = f"len({value})"
            self._line(
                depth,
                f"if {value} is not None and {size} > {limits.value_bytes}: "
                f"refuse_size({topic!r}, {size}, {limits.value_bytes})",
            )
        if limits.before_ms is not None or limits.after_ms is not None:
            if topic not in self._bounds:
                number, known = len(self._bounds), self._name("limits", limits)
                self._bounds[topic] = f"earliest{number}, latest{number} = bounds_of({known})"
            number = list(self._bounds).index(topic)
            is_early = f"{timestamp} < earliest{number} or " if limits.before_ms is not None else ""
            self._line(
                depth,
                f"if {is_early}{timestamp} > latest{number}: refuse_time({topic!r}, {timestamp})",
            )

    def _function(self, function: Function) -> str:
        return self._name("call", function.call)

    def _name(self, kind: str, value: Any) -> str:
        name = self._variable(kind)
        self.names[name] = value
        return name

    def _variable(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def _line(self, depth: int, text: str) -> None:
        self.lines.append(" " * depth + text)
        self._sites[len(self.lines)] = self._site
