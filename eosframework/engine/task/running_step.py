"""Frames of generated code: the record and the step that a thread is running, or was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

from eosframework.engine.codegen.code_writer import GENERATED
from eosframework.engine.failures.failure_handler import describe
from eosframework.engine.task.late_results import EmittedResult
from eosframework.transactions.ports import Message


def locals_where(error: BaseException, codes: Sequence[CodeType]) -> Mapping[str, Any]:
    """Return the local variables of the innermost of some functions in an error's traceback."""
    found: Mapping[str, Any] = {}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            found = trace.tb_frame.f_locals
        trace = trace.tb_next
    return found


def running_step(frame: FrameType | None) -> str | None:
    """Return the record and the step of a thread, innermost first; None: it runs none.

    A step after a window that closes runs for a result, and that for the record that closes it.

    Args:
        frame: the thread's innermost.
    """
    found: list[str] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(GENERATED):
            found.append(_named(frame))
        frame = frame.f_back
    return ", due to ".join(found) or None


def _named(frame: FrameType) -> str:
    values = frame.f_locals
    message: Message | None = values.get("m")
    if message is not None:
        return f"{_record(message)} in step {frame.f_globals['site_at'](frame.f_lineno).name!r}"
    # Batch operators take all messages before the first record is run.
    source = frame.f_code.co_filename.removeprefix(GENERATED).rstrip(">")
    messages: Sequence[Message] = values["messages"]
    ends = f"{_record(messages[0])} to {_record(messages[-1])}" if messages else "no record"
    return f"{ends} in a batch operator of {source!r}"


def _record(message: Message) -> str:
    if isinstance(message, EmittedResult):
        return f"the result of {message.topic()}[{message.partition()}] for key {message.key()!r}"
    return describe(message)
