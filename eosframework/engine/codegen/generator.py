"""Generated code: a source and its following steps as one function over a batch of messages.

A call per operator and record would cost more than the operators. So the steps become nested
statements of one generated function: a filter is an `if`, a flat map a `for`, a sink an `append`.
Nothing is looked up per record, and a step costs no more than its own function.

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

With receipts, `out.seal(mark, m)` follows for the outputs of a record, dead letters included. A
keyed operator is an object of the task: the function reads it from its slot of the task's state,
and reverts the state changes of a failed record as well: `undo(journal)`.

`del out[mark:]` makes a record all or nothing. The line on which an error was raised identifies the
step that failed, so naming the step costs nothing as long as nothing fails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from itertools import groupby

from eosframework.engine.calls.flights import FlightPlan
from eosframework.engine.codegen.aggregate_code import write_aggregate
from eosframework.engine.codegen.batch_code import BatchCode, is_batch
from eosframework.engine.codegen.call_code import CallCode, leads_to_call
from eosframework.engine.codegen.code_writer import GENERATED, CodeWriter, Variables
from eosframework.engine.codegen.compile_context import YEAR_MS, Slots, UnitCheck
from eosframework.engine.codegen.foreign_code import write_subscribe
from eosframework.engine.codegen.generated_run import Run
from eosframework.engine.codegen.group_code import write_table_aggregate, write_table_group
from eosframework.engine.codegen.join_code import (
    write_join_side,
    write_lookup,
    write_table,
    write_unpaired,
)
from eosframework.engine.codegen.reorder_code import in_turn, write_hold
from eosframework.engine.codegen.step_code import (
    write_processor,
    write_sink,
    write_step,
    write_table_output,
    write_timers,
    write_wall_clock,
)
from eosframework.engine.codegen.time_code import (
    Pace,
    pace_of,
    write_closing,
    write_times,
    write_watermark,
)
from eosframework.engine.failures.failure_handler import Site
from eosframework.errors import RecordFailed
from eosframework.serialization.serdes import JSON, KEPT_JSON
from eosframework.topology.graph.graph import (
    Aggregate,
    Emit,
    JoinSide,
    Lookup,
    Node,
    Processor,
    Sink,
    Source,
    Step,
    StreamJoin,
    Subscribe,
    Table,
    TableGroup,
    TableOutput,
    WallClock,
)
from eosframework.topology.graph.walk import may_change


def generate_source(source: Source, slots: Slots) -> tuple[Run, str, FlightPlan | None]:
    """Return the function of a source, its text, and the part that runs ahead, if any."""
    code = CodeWriter(slots, _write_children)
    batches = BatchCode(code)
    code.ahead_ms = source.ahead_ms
    code.refused_site = Site("output", source.on_error)
    pace = pace_of(code, source)
    held = slots.held(source)
    source = replace(source, children=[one for one in source.children if one not in held])
    way = [child for child in source.children if leads_to_call(child)]
    calls = None
    if way:
        ahead = replace(source, children=way)
        calls = CallCode(ahead, code, _write_decode_ahead, write_step)
    begin = _write_begin(code)
    key_bytes = "m.key()"
    if source.topic in slots.context.own_topics and source.retry_of is None:
        key_bytes = code.variable("kb")
        write_watermark(code, key_bytes, closes=slots.has_windows, is_paced=pace is Pace.WATERMARKS)
    _write_try(code)
    rest = replace(source, children=[child for child in source.children if child not in way])
    current = _write_decode(code, rest, key_bytes, skips_value=bool(held or way))
    if calls is not None:
        calls.write_decoding_failures(3)
    now, headers = write_times(code, source, pace, current.timestamp, current.headers)
    if calls is not None:
        calls.write_failures(3)
    current = replace(current, headers=headers, now=now, written=now)
    groups = [(kind, list(found)) for kind, found in groupby(source.children, _kind_of)]
    for number, (kind, children) in enumerate(groups, 1):
        if kind is _Kind.CALLS and calls is not None:
            calls.write_places(3, current)
        elif kind is _Kind.BATCH:
            for child in children:
                assert isinstance(child, Step), "batch operators are steps"
                batches.write(3, source, child, current)
        else:
            is_shared = any(other is _Kind.RECORD for other, _ in groups[number:])
            code.children(3, children, replace(current, is_shared=is_shared))
    if slots.reorder is not None and held:
        write_hold(code, slots.reorder, current)
    batches.extend_loop(begin)
    if calls is not None:
        calls.extend_loop(begin, is_batch=any(map(is_batch, source.children)))
        begin += 1
    _leave_out_unread(code, current.headers)
    _write_end(code, begin, pace)
    return *_compiled(code, source.name), None if calls is None else calls.plan


class _Kind(Enum):
    """The way in which a child of a source is written."""

    RECORD = "record"
    BATCH = "batch"
    CALLS = "calls"


def _kind_of(child: Node) -> _Kind:
    if leads_to_call(child):
        return _Kind.CALLS
    return _Kind.BATCH if is_batch(child) else _Kind.RECORD


def generate_emission(node: Aggregate | StreamJoin | Processor | WallClock, slots: Slots) -> Run:
    """Return the function of the results that a keyed node emits later."""
    code = CodeWriter(slots, _write_children)
    code.refused_site = Site(node.name, node.on_error)
    begin = _write_begin(code)
    _write_try(code)
    match node:
        case StreamJoin():
            write_unpaired(code, node)
        case Processor():
            write_timers(code, node)
        case WallClock():
            write_wall_clock(code, node)
        case Aggregate():
            code.site = Site(node.name, node.on_error)
            key = code.stored_key(3, node.store.key, node.store)
            code.line(3, "v, t, h, kb = m.entry_value, m.timestamp()[1], None, m.key()")
            written = None if node.emit is Emit.CLOSE else "stream_time"
            current = Variables(key, "v", "t", "h", "kb", node.store.key, written=written)
            code.children(3, node.children, current)
    _write_end(code, begin, None)
    return _compiled(code, node.name)[0]


def generate_release(sources: Sequence[Source], slots: Slots) -> Run:
    """Return the function of the records that a reorder step releases.

    Args:
        sources: those whose records it holds.
        slots: of the sub-topology.
    """
    return in_turn({source.topic: _generate_held(source, slots) for source in sources})


def _generate_held(source: Source, slots: Slots) -> Run:
    code = CodeWriter(slots, _write_children)
    code.ahead_ms = source.ahead_ms
    code.refused_site = Site("output", source.on_error)
    held = replace(source, children=[*slots.held(source)])
    begin = _write_begin(code)
    _write_try(code)
    current = _write_decode(code, held, "m.key()")
    code.line(3, "w = time.now = m.written" if slots.has_ttl else "w = m.written")
    code.children(3, held.children, replace(current, now="w", written="w"))
    _write_end(code, begin, None)
    return _compiled(code, source.name)[0]


def _compiled(code: CodeWriter, name: str) -> tuple[Run, str]:
    text = "\n".join(code.lines)
    exec(compile(text, f"{GENERATED}{name}>", "exec"), code.names)
    return code.names["run"], text


def _write_begin(code: CodeWriter) -> int:
    """Write the head; return the line before which `_write_end` inserts lookups."""
    code.line(0, "def run(messages, out, stream_time, failed, state=None):")
    code.line(1, "emit = out.append")
    begin = len(code.lines)
    code.line(1, "for m in messages:")
    code.line(2, "mark = len(out)")
    return begin


def _write_try(code: CodeWriter) -> None:
    code.line(2, "try:")


def _write_end(code: CodeWriter, begin: int, pace: Pace | None) -> None:
    """Write the end of the loop, and what precedes it; `pace` is None for an emission."""
    closes = pace is not None and code.slots.has_windows
    receipts = pace is not None and code.slots.context.receipts
    if pace is not None and code.slots.closes_first:
        # A result failed in front of the record: the results before it are complete.
        code.names["RecordFailed"] = RecordFailed
        code.line(2, "except RecordFailed:")
        code.line(3, "raise")
    code.line(2, "except raised_by_functions() as error:")
    code.line(3, "del out[mark:]")
    if code.operators:
        code.line(3, "undo(journal, 0)")
    code.line(3, "failed(site_of(error), m, error, out)")
    if pace is Pace.BESIDE_WATERMARKS:
        code.line(2, "stream_time = times.now")
        if code.slots.has_ttl:
            code.line(2, "time.now = stream_time")
    if closes:
        write_closing(code, 2, receipts=receipts)
    elif receipts:
        code.line(2, "if len(out) > mark: out.seal(mark, m)")
    if pace is None and code.slots.has_ttl:
        code.line(1, "time.now = stream_time")
    code.line(1, "return stream_time")
    if code.operators:
        slots = [f" {name} = state.operators[{slot}]" for slot, name in code.operators.items()]
        code.insert(begin + 1, ["  journal.clear()"])
        code.insert(begin, [" journal = state.journal", *slots])
    if code.bounds:
        code.insert(begin, [f" {line}" for line in code.bounds.values()])
    if code.slots.has_ttl:
        code.insert(begin, [" time = state.time", " time.now = stream_time"])
    if pace in (Pace.WATERMARKS, Pace.BESIDE_WATERMARKS):
        code.insert(begin, [" times = state.times"])
    if closes:
        code.insert(begin, [" alarm, close = state.windows.alarm, state.windows.close"])


def _write_decode(
    code: CodeWriter, source: Source, read_key: str, *, skips_value: bool = False
) -> Variables:
    code.site = Site(f"{source.name}: decode value as {source.value.name}", source.on_error)
    value, encoded = "None", None
    others = [child for child in source.children if not is_batch(child)]
    is_read = others or not (source.children or skips_value)
    if is_read or source.timestamp is not None:
        data = "m.value()"
        if source.is_table and source.value == JSON:
            data = code.variable("b")
            code.line(3, f"{data} = m.value()")
        value = code.decode(3, data, source.value)
        encoded = (value, data, KEPT_JSON) if data.isidentifier() else None
    code.site = Site(f"{source.name}: decode key as {source.key.name}", source.on_error)
    key_bytes = code.variable("kb")
    code.line(3, f"{key_bytes} = {read_key}")
    key = code.decode(3, key_bytes, source.key)
    timestamp, headers = code.variable("t"), code.variable("h")
    code.line(3, f"{headers} = m.headers()")
    if source.timestamp is None:
        code.line(3, f"{timestamp} = m.timestamp()[1]")
    else:
        code.site = Site(f"{source.name}: timestamp({source.timestamp.name})", source.on_error)
        call, own = code.function(source.timestamp), code.variable("o")
        check = code.name("check", UnitCheck(source.name))
        code.line(3, f"{timestamp} = {own} = m.timestamp()[1]")
        code.line(3, f"if {value} is not None: {timestamp} = as_milliseconds({call}({value}))")
        code.line(3, f"if {own} - {timestamp} > {YEAR_MS}: {check}({timestamp}, {own})")
        code.write_time_limit(3, timestamp)
    return Variables(key, value, timestamp, headers, key_bytes, source.key, encoded=encoded)


def _write_decode_ahead(code: CodeWriter, source: Source) -> Variables:
    return _write_decode(code, source, "m.key()")


def _leave_out_unread(code: CodeWriter, headers: str) -> None:
    """Blank the line that reads headers if nothing uses them; line numbers stay."""
    read = re.compile(rf"\b{headers}\b")
    [first, *others] = [n for n, line in enumerate(code.lines) if read.search(line)]
    if not others:
        code.lines[first] = ""


def _write_children(
    code: CodeWriter, depth: int, children: Sequence[Node], shared: Variables
) -> None:
    """Write the nodes that follow one; each that may change the value has one of its own."""
    if not children:
        code.line(depth, "pass")
    for number, child in enumerate(children, 1):
        is_last = number == len(children) and not shared.is_shared
        current = shared
        if not is_last and may_change(child):
            code.site = Site(child.name, child.on_error)
            current = code.own(depth, shared)
        match child:
            case Sink():
                write_sink(code, depth, child, current)
            case TableOutput():
                write_table_output(code, depth, child, current)
            case Aggregate(of_table=True):
                write_table_aggregate(code, depth, child, current)
            case Aggregate():
                write_aggregate(code, depth, child, replace(current, before=None))
            case TableGroup():
                write_table_group(code, depth, child, current)
            case Processor():
                write_processor(code, depth, child, replace(current, before=None))
            case Table():
                write_table(code, depth, child, current)
            case Lookup():
                write_lookup(code, depth, child, current)
            case Subscribe():
                write_subscribe(code, depth, child, current)
            case JoinSide():
                write_join_side(code, depth, child, current)
            case Step():
                write_step(code, depth, child, current)
