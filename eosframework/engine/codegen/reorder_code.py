"""The generated code of the reorder step: the holding of records, and their release.

The function of a source holds each record for the branches that need order. The function of the
step's emission decodes the held records, and runs those branches. A record is judged at its time of
writing, as in the sorted run of a backfill:

    read at T, written at L    held under max(T, L)
    T is greater               run, in order, at that time
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from eosframework.engine.codegen.code_writer import CodeWriter, Variables
from eosframework.engine.codegen.generated_run import Failed, Run, RunState
from eosframework.engine.failures.failure_handler import Site
from eosframework.engine.operators.reordering import HeldRecord
from eosframework.engine.operators.watermarks import writer_in
from eosframework.topology.graph.graph import Reorder
from eosframework.transactions.ports import Message, Output


def write_hold(code: CodeWriter, node: Reorder, current: Variables) -> None:
    """Write the holding of a source's record."""
    code.site = Site(node.name, node.on_error)
    code.names |= {"HeldRecord": HeldRecord, "writer_in": writer_in}
    held = code.variable("held")
    code.line(
        3,
        f"{held} = HeldRecord(m.topic(), m.partition(), m.offset(), {current.now}, "
        f"m.timestamp()[1], {current.key_bytes}, m.value(), {current.headers})",
    )
    code.line(3, f"{code.operator(node, 'reorder')}.hold({held}, writer_in(m.headers()))")


def in_turn(runs: Mapping[str, Run]) -> Run:
    """Return the function of records of several topics."""
    if len(runs) == 1:
        return next(iter(runs.values()))

    def run(
        messages: Iterable[Message],
        out: list[Output],
        stream_time: int,
        failed: Failed,
        state: RunState | None = None,
        /,
    ) -> int:
        for topic, some in groupby(messages, _topic_of):
            runs[topic](some, out, stream_time, failed, state)
        return stream_time

    return run


def _topic_of(message: Message) -> str:
    return message.topic()
