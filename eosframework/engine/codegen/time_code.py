"""The generated code of time: the stream time of a source, and the time of writing of its records.

    source                                   stream time T            a record is judged at
    of a task without timed topics           its greatest event time  T
    a table's that is looked up only         not moved by its rows    max(T, t)
    a timed topic (`graph/timed_topics`)     moved by watermarks      max(T, L)
    another one of a task with timed topics  the least of its times   max(T, its greatest time);
                                                                      rows by arrival: max(T, t)
    a timed topic in a backfill              greatest L: sorted by it T

L is the time of writing (`engine/operators/watermarks`). T moves between records only: a watermark
stands in the log like a record, and its code closes the windows that it makes due.
"""

from __future__ import annotations

from enum import StrEnum

from eosframework.engine.codegen.code_writer import CodeWriter
from eosframework.engine.operators.watermarks import WATERMARK_KEY, take_written
from eosframework.topology.graph.graph import Source


class Pace(StrEnum):
    """The way the stream time of a source moves; see the table of the module."""

    RECORDS = "records"
    WATERMARKS = "watermarks"
    BESIDE_WATERMARKS = "alongside watermarks"
    SORTED = "sorted"


def pace_of(code: CodeWriter, source: Source) -> Pace:
    """Return the pace of a source."""
    context = code.slots.context
    if source.topic in context.timed_topics:
        return Pace.SORTED if context.is_sorted else Pace.WATERMARKS
    if code.slots.has_watermarks and not context.is_sorted:
        return Pace.BESIDE_WATERMARKS
    return Pace.RECORDS


def write_times(
    code: CodeWriter, source: Source, pace: Pace, timestamp: str, headers: str
) -> tuple[str, str]:
    """Write the move of stream time by a record.

    Returns:
        The variables of the time at which the record is judged, and of its headers.
    """
    moves = "stream_time = time.now" if code.slots.has_ttl else "stream_time"
    if pace in (Pace.RECORDS, Pace.SORTED) and source.topic in code.slots.timeless:
        own = timestamp
        if pace is Pace.SORTED:
            headers, own = _write_taken(code, timestamp, headers)
        return _write_judged(code, own), headers
    if pace is Pace.RECORDS:
        _write_move(code, timestamp, moves)
        return "stream_time", headers
    if pace is Pace.BESIDE_WATERMARKS:
        own = timestamp
        if source.retry_of is not None:
            headers, own = _write_taken(code, timestamp, headers)
        elif source.topic in code.slots.own_times:
            own = f"times.moved({source.topic!r}, {timestamp})"
        return _write_judged(code, own), headers
    left, written = _write_taken(code, timestamp, headers)
    if pace is Pace.SORTED:
        _write_move(code, written, moves)
        return "stream_time", left
    now = code.variable("now")
    code.line(3, f"{now} = {written} if {written} >= stream_time else times.passed()")
    return now, left


def _write_judged(code: CodeWriter, own: str) -> str:
    """Write the time at which a record is judged that moves none; return its variable."""
    now = code.variable("now")
    code.line(3, f"{now} = max({own}, stream_time)")
    return now


def _write_move(code: CodeWriter, time: str, moves: str) -> None:
    """Write the move of stream time by a record; it may close windows before the record is run."""
    code.line(3, f"if {time} > stream_time: {moves} = {time}")
    if code.slots.closes_first:
        code.line(3, "if stream_time >= state.windows.alarm.due:")
        code.line(4, "state.windows.close_before(m, out, stream_time, failed, state)")
        if code.slots.context.receipts:
            code.line(4, "if len(out) > mark: out.seal(mark, m)")
        code.line(4, "mark = len(out)")
        code.line(4, "state.journal.clear()")


def _write_taken(code: CodeWriter, timestamp: str, headers: str) -> tuple[str, str]:
    """Write the removal of the time of writing; return the variables of headers and that time."""
    code.names["take_written"] = take_written
    left, written = code.variable("h"), code.variable("w")
    code.line(3, f"{left}, {written} = {headers}, {timestamp}")
    code.line(3, f"if {left}: {left}, {written} = take_written({left}, {timestamp})")
    return left, written


def write_watermark(code: CodeWriter, key: str, *, closes: bool, is_paced: bool) -> None:
    """Write the treatment of a watermark in place of a record.

    Args:
        code: the writer, in front of a record's code.
        key: the variable for the key.
        closes: whether windows may close.
        is_paced: whether the task takes watermarks; otherwise they are skipped.
    """
    code.names["WATERMARK_KEY"] = WATERMARK_KEY
    code.line(2, f"{key} = m.key()")
    code.line(2, f"if {key} == WATERMARK_KEY:")
    if is_paced:
        moves = "stream_time = time.now" if code.slots.has_ttl else "stream_time"
        code.line(3, f"{moves} = times.take(m, stream_time)")
        if closes:
            write_closing(code, 3, receipts=code.slots.context.receipts)
    code.line(3, "continue")


def write_closing(code: CodeWriter, depth: int, *, receipts: bool) -> None:
    """Write the closing of windows, whose results belong to the current record."""
    closing = "if stream_time >= alarm.due: close(m, out, stream_time, failed, state)"
    if not receipts:
        code.line(depth, closing)
        return
    code.line(depth, "try:")
    code.line(depth + 1, closing)
    code.line(depth, "finally:")
    code.line(depth + 1, "if len(out) > mark: out.seal(mark, m)")
