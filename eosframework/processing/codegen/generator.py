"""Turns a source and everything behind it into one Python function over a batch of messages.

A call per operator and record would cost more than the operators. So the steps are written out
as nested statements of one generated function: a filter is an `if`, a flat map a `for`, a sink an
`append`. Nothing is looked up per record, and a step costs nothing but its own function.

The generated function for `filter → map_values → to`, shortened:

    def run(messages, out, stream_time, failed):
        for m in messages:
            mark = len(out)
            try:
                v1 = decode(m.value())
                t1 = m.timestamp()[1]
                if filter2(v1):
                    v3 = map3(v1)
                    emit(("flights.late", encode(v3), m.key(), -1, None, None, t1, m.headers()))
            except raised_by_functions() as error:
                del out[mark:]
                failed(site_of(error), m, error, out)
        return stream_time

With receipts, `out.seal(mark, m)` follows for what a record gave, dead letters included. A keyed
operator is an object of the task: the function finds it in its slot of the task's state, and
takes back what a failed record changed there as well: `undo(journal)`.

`del out[mark:]` makes a record all or nothing. The line on which an error was raised tells the
step that failed, so that naming it costs nothing as long as nothing fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from types import CodeType
from typing import Any, Protocol

from eosframework.operators.expiry import StreamTime
from eosframework.operators.store_transaction import Journal
from eosframework.processing.codegen.batch_lines import BatchLines, is_batch
from eosframework.processing.codegen.join_lines import JoinLines, table_sides
from eosframework.processing.codegen.process_lines import ProcessLines
from eosframework.processing.codegen.source_lines import Current, Site
from eosframework.processing.ports import Message, Output
from eosframework.processing.transaction.run_slices import RUN_OUTPUTS
from eosframework.records import EARLIEST_OUTPUT_MS
from eosframework.topology.graph.graph import (
    Aggregate,
    Emit,
    Function,
    JoinSide,
    Lookup,
    Node,
    Operator,
    Processor,
    Sink,
    Source,
    Step,
    StreamJoin,
    Table,
)
from eosframework.topology.graph.walk import multiplies


class State(Protocol):
    """What keyed operators of one task work on."""

    @property
    def operators(self) -> Sequence[Any]:
        """What runs each keyed node, in the order of their slots."""
        ...

    @property
    def journal(self) -> Journal:
        """What the record that is being run has changed."""
        ...

    @property
    def time(self) -> StreamTime:
        """Stream time, for stores whose entries expire."""
        ...

    @property
    def late(self) -> Callable[[Site, Message, int, list[Output]], None]:
        """Takes a record that came too late for a step."""
        ...

    @property
    def windows(self) -> Any:
        """Closes the windows of the task."""
        ...


Failed = Callable[[Site, Message, BaseException, list[Output]], None]
"""Told about a record that failed; may append what stands for it, or raise."""


class Run(Protocol):
    """What a source or an emission is compiled into."""

    __code__: CodeType

    def __call__(
        self,
        messages: Iterable[Message],
        out: list[Output],
        stream_time: int,
        failed: Failed,
        state: State | None = None,
        /,
    ) -> int:
        """Run messages of one partition, append their outputs, return the stream time after them.

        Args:
            messages: in offset order; a sequence, unless an emission gives them.
            out: takes the outputs.
            stream_time: before them, in milliseconds.
            failed: is told about records that fail.
            state: of the task; None: the sub-topology has no keyed nodes.
        """
        ...


ENDING = f"  if len(out) > {RUN_OUTPUTS}: end_run(messages)"
"""Ends a run of records that has given much: what it gave goes out before the next one."""


class Writer(JoinLines, ProcessLines, BatchLines):
    """Writes the function line by line and remembers which step each line belongs to."""

    def compiled(self, name: str) -> tuple[Run, str]:
        """Return the function that was written, and its text."""
        text = "\n".join(self.lines)
        exec(compile(text, f"<topology {name}>", "exec"), self.names)
        return self.names["run"], text

    def write_source(self, source: Source, *, receipts: bool) -> None:
        """Write what happens to each record of a source."""
        self._ahead_ms = source.ahead_ms
        self._refused = Site("output", source.on_error)
        begin = self._write_begin()
        current = self._write_decode(source)
        for are_batches, children in groupby(source.children, is_batch):
            if not are_batches:
                self._write_children(3, list(children), current)
                continue
            for child in children:
                assert isinstance(child, Step), "batch operators are steps"
                self._write_batches(3, source, child, current)
        self._write_loop(begin)
        self._leave_out_unread(current.headers)
        self._write_end(begin, receipts=receipts, closes=self._slots.has_windows)
        if self._slots.has_windows or multiplies(source):
            # Behind everything else of the loop: no line that may raise changes its number.
            self._insert(len(self.lines) - 1, [ENDING])

    def write_emission(self, node: Aggregate | StreamJoin | Processor) -> None:
        """Write what happens to each record that a keyed node gives later."""
        self._refused = Site(node.name, node.on_error)
        begin = self._write_begin()
        if isinstance(node, StreamJoin | Processor):
            if isinstance(node, StreamJoin):
                self._write_unpaired(node)
            else:
                self._write_timers(node)
            self._write_end(begin)
            return
        self._site = Site(node.name, node.on_error)
        key = self._decode(3, "m.key()", node.store.key)
        self._line(3, "v, t, h, kb = m.entry_value, m.timestamp()[1], None, m.key()")
        current = Current(key, "v", "t", "h", "kb", node.store.key)
        self._write_children(3, node.children, current)
        self._write_end(begin)

    def _write_begin(self) -> int:
        """Return the line before which `_write_end` puts what the loop looks up once."""
        self._line(0, "def run(messages, out, stream_time, failed, state=None):")
        self._line(1, "emit = out.append")
        begin = len(self.lines)
        self._line(1, "for m in messages:")
        self._line(2, "mark = len(out)")
        self._line(2, "try:")
        return begin

    def _write_end(self, begin: int, *, receipts: bool = False, closes: bool = False) -> None:
        self._line(2, "except raised_by_functions() as error:")
        self._line(3, "del out[mark:]")
        if self._used:
            self._line(3, "undo(journal, 0)")
        self._line(3, "failed(site_of(error), m, error, out)")
        if closes:
            self._write_closing(receipts=receipts)
        elif receipts:
            self._line(2, "if len(out) > mark: out.seal(mark, m)")
        self._line(1, "return stream_time")
        if self._used:
            slots = [f" {name} = state.operators[{slot}]" for slot, name in self._used.items()]
            self._insert(begin + 1, ["  journal.clear()"])
            self._insert(begin, [" journal = state.journal", *slots])
        if self._bounds:
            self._insert(begin, [f" {line}" for line in self._bounds.values()])
        if self._slots.has_ttl:
            self._insert(begin, [" time = state.time", " time.now = stream_time"])
        if closes:
            self._insert(begin, [" alarm, close = state.windows.alarm, state.windows.close"])

    def _write_decode(self, source: Source) -> Current:
        self._site = Site(f"{source.name}: decode value as {source.value.name}", source.on_error)
        value = "None"
        others = [child for child in source.children if not is_batch(child)]
        if others or not source.children or source.timestamp is not None:
            value = self._decode(3, "m.value()", source.value)
        self._site = Site(f"{source.name}: decode key as {source.key.name}", source.on_error)
        key_bytes = self._variable("kb")
        self._line(3, f"{key_bytes} = m.key()")
        key = self._decode(3, key_bytes, source.key)
        timestamp, headers = self._variable("t"), self._variable("h")
        self._line(3, f"{headers} = m.headers()")
        if source.timestamp is None:
            self._line(3, f"{timestamp} = m.timestamp()[1]")
        else:
            self._site = Site(f"{source.name}: timestamp({source.timestamp.name})", source.on_error)
            call = self._function(source.timestamp)
            self._line(3, f"{timestamp} = m.timestamp()[1]")
            self._line(3, f"if {value} is not None: {timestamp} = as_milliseconds({call}({value}))")
            self._write_limit(3, timestamp)
        moves = "stream_time = time.now" if self._slots.has_ttl else "stream_time"
        self._line(3, f"if {timestamp} > stream_time: {moves} = {timestamp}")
        return Current(key, value, timestamp, headers, key_bytes, source.key)

    def _leave_out_unread(self, headers: str) -> None:
        """Take out what fetches headers where nothing reads them; lines keep their numbers."""
        read = re.compile(rf"\b{headers}\b")
        [first, *others] = [n for n, line in enumerate(self.lines) if read.search(line)]
        if not others:
            self.lines[first] = ""

    def _write_children(self, depth: int, children: Sequence[Node], current: Current) -> None:
        if not children:
            self._line(depth, "pass")
        for child in children:
            match child:
                case Sink():
                    self._write_sink(depth, child, current)
                case Aggregate():
                    self._write_aggregate(depth, child, replace(current, before=None))
                case Processor():
                    self._write_processor(depth, child, replace(current, before=None))
                case Table():
                    self._write_table(depth, child, current)
                case Lookup():
                    self._write_lookup(depth, child, current)
                case JoinSide():
                    self._write_side(depth, child, current)
                case Step():
                    self._write_step(depth, child, current)

    def _write_sink(self, depth: int, sink: Sink, current: Current) -> None:
        self._site = Site(sink.name, sink.on_error)
        if isinstance(sink.topic, Function):
            topic = self._variable("topic")
            call = self._function(sink.topic)
            self._line(depth, f"{topic} = as_topic({call}({self._record(current)}))")
        else:
            topic = repr(sink.topic)
        value = self._value_bytes(current, sink.value)
        if isinstance(sink.topic, str) and sink.topic in self._slots.limits:
            encoded = self._variable("b")
            self._line(depth, f"{encoded} = {value}")
            self._write_refusals(depth, sink.topic, encoded, current.timestamp)
            self._site, value = Site(sink.name, sink.on_error), encoded
        key = self._key_bytes(current, sink.key)
        time = current.timestamp
        time = f"{time} if {time} > 0 else {EARLIEST_OUTPUT_MS}"
        self._line(
            depth,
            f"emit(({topic}, {value}, {key}, -1, None, None, {time}, {current.headers}))",
        )

    def _write_aggregate(self, depth: int, node: Aggregate, current: Current) -> None:
        """A record without a key or a value is passed over, as in Kafka Streams."""
        self._site = Site(node.name, node.on_error)
        slot = self._slots.of(node)
        update = self._used.setdefault(slot, f"update{slot}")
        self._line(depth, f"if {current.key} is not None and {current.value} is not None:")
        key_bytes = self._variable("kb")
        self._line(depth + 1, f"{key_bytes} = {self._key_bytes(current, node.store.key)}")
        if node.store.window is not None:
            keyed = replace(current, key_bytes=key_bytes, key_serde=node.store.key)
            self._write_windowed(depth + 1, node, node.store.window, update, keyed)
            return
        call = f"{update}({key_bytes}, {current.value}, {current.timestamp})"
        if node.emit is not Emit.EACH:
            self._line(depth + 1, call)
            return
        value, timestamp = self._variable("v"), self._variable("t")
        before = self._write_before(depth + 1, node, key_bytes)
        self._line(depth + 1, f"{value}, {timestamp} = {call}")
        changed = replace(
            current,
            value=value,
            timestamp=timestamp,
            key_bytes=key_bytes,
            key_serde=node.store.key,
        )
        if before is not None:
            changes = replace(changed, before=before)
            self._write_children(depth + 1, table_sides(node), changes)
        others = [child for child in node.children if child not in table_sides(node)]
        self._write_children(depth + 1, others, changed)

    def _write_step(self, depth: int, step: Step, current: Current) -> None:
        self._site = Site(step.name, step.on_error)
        if current.before is not None:
            if step.operator in (Operator.FILTER, Operator.MAP_VALUES):
                self._write_shown(depth, step, current)
                return
            current = replace(current, before=None)
        match step.operator:
            case Operator.BRANCH:
                self._write_branches(depth, step, current)
            case Operator.FILTER:
                self._line(depth, f"if {self._function(step.function)}({current.value}):")
                self._write_children(depth + 1, step.children, current)
            case Operator.PEEK:
                self._line(depth, f"{self._function(step.function)}({current.value})")
                self._write_children(depth, step.children, current)
            case Operator.MAP_VALUES:
                value = self._variable("v")
                self._line(depth, f"{value} = {self._function(step.function)}({current.value})")
                self._write_children(depth, step.children, replace(current, value=value))
            case Operator.FLAT_MAP_VALUES:
                value = self._variable("v")
                call = self._function(step.function)
                self._line(depth, f"for {value} in {call}({current.value}):")
                self._write_children(depth + 1, step.children, replace(current, value=value))
            case Operator.SELECT_KEY:
                key = self._variable("k")
                call = self._function(step.function)
                self._line(depth, f"{key} = {call}({self._record(current)})")
                self._write_children(
                    depth, step.children, replace(current, key=key, key_bytes=None)
                )
            case Operator.MAP | Operator.FLAT_MAP | Operator.PROCESS:
                self._write_record_step(depth, step, current)
            case Operator.MAP_BATCH | Operator.FILTER_BATCH:
                raise AssertionError(f"{step.name} stands behind a step for single records")

    def _write_branches(self, depth: int, step: Step, current: Current) -> None:
        """`if … elif … else`: the first predicate that holds takes the record."""
        keyword = "if"
        for predicate, children in step.branches:
            self._site = Site(step.name, step.on_error)
            if predicate is None:
                self._line(depth, "else:" if keyword == "elif" else "if True:")
            else:
                call = self._function(predicate)
                self._line(depth, f"{keyword} {call}({current.value}):")
                keyword = "elif"
            self._write_children(depth + 1, children, current)

    def _write_record_step(self, depth: int, step: Step, current: Current) -> None:
        call = f"{self._function(step.function)}({self._record(current)})"
        result = self._variable("r")
        if step.operator is Operator.MAP:
            self._line(depth, f"{result} = {call}")
        elif step.operator is Operator.FLAT_MAP:
            self._line(depth, f"for {result} in {call}:")
            depth += 1
        else:
            self._line(depth, f"for {result} in {call} or ():")
            depth += 1
        changed = self._write_unpacked(depth, result, current)
        self._write_children(depth, step.children, changed)
