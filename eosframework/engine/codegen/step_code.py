"""The generated code of sinks, of steps for single records, and of `process` with its timers."""

from __future__ import annotations

from dataclasses import replace

from eosframework.engine.codegen.code_writer import CodeWriter, Variables
from eosframework.engine.codegen.join_code import write_table_step
from eosframework.engine.failures.failure_handler import Site
from eosframework.engine.operators.watermarks import with_writer, with_written
from eosframework.records import EARLIEST_OUTPUT_MS
from eosframework.topology.graph.graph import (
    Function,
    Operator,
    Processor,
    Sink,
    Step,
    TableOutput,
    WallClock,
)


def write_sink(code: CodeWriter, depth: int, sink: Sink, current: Variables) -> None:
    """Write a sink: an append to the outputs."""
    code.site = Site(sink.name, sink.on_error)
    if isinstance(sink.topic, Function):
        topic = code.variable("topic")
        call = code.function(sink.topic)
        code.line(depth, f"{topic} = as_topic({call}({code.record_of(current)}))")
    else:
        topic = repr(sink.topic)
    value = code.value_bytes(depth, current, sink.value)
    if isinstance(sink.topic, str) and sink.topic in code.slots.context.limits:
        if not value.isidentifier():
            encoded = code.variable("b")
            code.line(depth, f"{encoded} = {value}")
            value = encoded
        code.write_output_limits(depth, sink.topic, value, current.timestamp)
        code.site = Site(sink.name, sink.on_error)
    key = code.key_bytes(current, sink.key)
    time = current.timestamp
    time = f"{time} if {time} > 0 else {EARLIEST_OUTPUT_MS}"
    headers = current.headers
    timed = code.slots.context.timed_topics.get(str(sink.topic))
    if timed is not None and timed.is_ordered:
        code.names["with_writer"] = with_writer
        written = f"max({time}, {current.written})" if current.written else time
        headers = f"with_writer({headers}, {written}, m.partition())"
    elif timed is not None and current.written is not None:
        code.names["with_written"] = with_written
        out_of_order = f"with_written({headers}, {current.written})"
        headers = f"{headers} if {current.timestamp} >= {current.written} else {out_of_order}"
    code.line(depth, f"emit(({topic}, {value}, {key}, -1, None, None, {time}, {headers}))")


def write_table_output(code: CodeWriter, depth: int, node: TableOutput, current: Variables) -> None:
    """Write rows: an append to the outputs, with the message that is running.

    The encoding keeps what the value is now: a later step may change it before the commit.
    """
    code.site = Site(node.name, node.on_error)
    tables = node.tables
    value = code.value_bytes(depth, current, tables.value)
    key = code.key_bytes(current, tables.key)
    if (refused := code.slots.context.refused_rows) is not None:
        code.names["refused_rows"] = refused
        code.line(depth, "if refused_rows: refused_rows.check(m)")
    code.line(
        depth,
        f"emit(({tables.topic!r}, {value}, {key}, -1, None, m, {current.timestamp}, "
        f"{current.headers}))",
    )


def write_step(code: CodeWriter, depth: int, step: Step, current: Variables) -> None:
    """Write a step without state."""
    code.site = Site(step.name, step.on_error)
    if current.before is not None:
        if step.operator in (Operator.FILTER, Operator.MAP_VALUES):
            write_table_step(code, depth, step, current)
            return
        current = replace(current, before=None)
    match step.operator:
        case Operator.BRANCH:
            _write_branches(code, depth, step, current)
        case Operator.FILTER:
            is_kept = code.variable("f")
            code.line(depth, f"{is_kept} = {code.function(step.function)}({current.value})")
            code.write_needs_value(depth, is_kept, step.function)
            code.line(depth, f"if {is_kept}:")
            code.children(depth + 1, step.children, current)
        case Operator.PEEK:
            code.line(depth, f"{code.function(step.function)}({current.value})")
            code.children(depth, step.children, current)
        case Operator.MAP_VALUES:
            value = code.variable("v")
            code.line(depth, f"{value} = {code.function(step.function)}({current.value})")
            code.write_needs_value(depth, value, step.function)
            code.children(depth, step.children, replace(current, value=value))
        case Operator.FLAT_MAP_VALUES:
            value = code.variable("v")
            call = code.function(step.function)
            code.line(depth, f"for {value} in {call}({current.value}):")
            code.children(depth + 1, step.children, replace(current, value=value))
        case Operator.SELECT_KEY:
            key = code.variable("k")
            call = code.function(step.function)
            code.line(depth, f"{key} = {call}({code.record_of(current)})")
            code.children(depth, step.children, replace(current, key=key, key_bytes=None))
        case Operator.MAP | Operator.FLAT_MAP | Operator.PROCESS:
            _write_record_step(code, depth, step, current)
        case Operator.MAP_BATCH | Operator.FILTER_BATCH:
            raise AssertionError(f"{step.name} follows a step for single records")
        case (
            Operator.MAP_ASYNC
            | Operator.FILTER_ASYNC
            | Operator.FOR_EACH_ASYNC
            | Operator.MAP_BATCH_ASYNC
            | Operator.CALL_ONCE
        ):
            raise AssertionError(f"{step.name} follows a step that remembers")


def _write_branches(code: CodeWriter, depth: int, step: Step, current: Variables) -> None:
    """`if … elif … else`: the record takes the branch of the first predicate that holds."""
    keyword = "if"
    for predicate, children in step.branches:
        code.site = Site(step.name, step.on_error)
        if predicate is None:
            code.line(depth, "else:" if keyword == "elif" else "if True:")
        else:
            call = code.function(predicate)
            code.line(depth, f"{keyword} {call}({current.value}):")
            keyword = "elif"
        code.children(depth + 1, children, current)


def _write_record_step(code: CodeWriter, depth: int, step: Step, current: Variables) -> None:
    call = f"{code.function(step.function)}({code.record_of(current)})"
    result = code.variable("r")
    if step.operator is Operator.MAP:
        code.line(depth, f"{result} = {call}")
    elif step.operator is Operator.FLAT_MAP:
        code.line(depth, f"for {result} in {call}:")
        depth += 1
    else:
        code.line(depth, f"for {result} in {call} or ():")
        depth += 1
    changed = code.write_unpacked(depth, result, current)
    code.children(depth, step.children, changed)


def write_processor(code: CodeWriter, depth: int, node: Processor, current: Variables) -> None:
    """Write a `process` step with stores, timers or an interval."""
    code.site = Site(node.name, node.on_error)
    handler = _handler(code, node)
    for clock in node.wall_clock:
        code.slots.of(clock)
    if node.function is None:
        code.line(depth, "pass")
        return
    call = f"{handler}.record({code.record_of(current)}, {current.now})"
    _write_given(code, depth, call, node, current)


def write_timers(code: CodeWriter, node: Processor) -> None:
    """Write the function of a `process` step's timers."""
    code.site = Site(f"{node.name} on_timer", node.on_error)
    assert node.timers is not None, "a step without timers emits nothing later"
    key = code.stored_key(3, node.key, node.timers)
    code.line(3, "t, h = m.timestamp()[1], None")
    call = f"{_handler(code, node)}.timer({key}, t, stream_time)"
    _write_given(
        code, 3, call, node, Variables(key, "None", "t", "h", None, node.key, written=None)
    )


def write_wall_clock(code: CodeWriter, node: WallClock) -> None:
    """Write the call of a function by the wall clock.

    What it returns has the time at which it was due, but no time before stream time: another
    sub-topology would take it as late.
    """
    code.site = Site(node.name, node.on_error)
    step = code.slots.step_of(node)
    handler, call = _handler(code, step), code.function(node.function)
    code.line(3, "d, h = m.timestamp()[1], None")
    code.line(3, "t = d if d > stream_time else stream_time")
    key, called = "None", f"{handler}.every({call}, d, t, stream_time)"
    if node.every is None:
        key = code.stored_key(3, step.key, node.store)
        called = f"{handler}.wall_timer({call}, {key}, d, t, stream_time)"
    _write_given(
        code, 3, called, step, Variables(key, "None", "t", "h", None, step.key, written=None)
    )


def _write_given(
    code: CodeWriter, depth: int, call: str, node: Processor, current: Variables
) -> None:
    result = code.variable("r")
    code.line(depth, f"for {result} in {call} or ():")
    changed = code.write_unpacked(depth + 1, result, current)
    code.children(depth + 1, node.children, changed)


def _handler(code: CodeWriter, node: Processor) -> str:
    slot = code.slots.of(node)
    return code.operators.setdefault(slot, f"handler{slot}")
