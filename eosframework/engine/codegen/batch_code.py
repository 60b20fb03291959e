"""The generated code of batch operators: their results for a slice are used record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from eosframework.engine.codegen.code_writer import CodeWriter, Variables
from eosframework.engine.conversions import event_time
from eosframework.engine.failures.failure_handler import Site
from eosframework.serialization.serdes import JSON
from eosframework.topology.graph.graph import Node, Sink, Source, Step

if TYPE_CHECKING:
    from eosframework.engine.operators.batch_stage import Stage

Way = tuple[tuple[int, Site], ...]
"""The nodes of a stage that lead to an exit, each with its site for errors."""


def is_batch(node: Node) -> bool:
    """Return whether a node works on many records at once."""
    return isinstance(node, Step) and node.is_batch


class BatchCode:
    """Writes the code of batch operators, which run before the first record of a slice.

    The error of a record is raised at its turn, in the line of the operator at which it failed: so
    every failure takes the same path, in the order of the records.
    """

    def __init__(self, code: CodeWriter) -> None:
        self._code = code
        self._stage: Stage | None = None
        self._exits: dict[int, str] = {}

    def write(self, depth: int, source: Source, step: Step, current: Variables) -> None:
        """Write a batch operator directly after the source."""
        assert step.columns is not None, "the first batch operator declares columns"
        stage = self._stage = self._stage or self._new_stage(source)
        reading = stage.reading(step.columns)
        site = Site(f"{source.name}: read columns for {step.name}", source.on_error)
        self._write_batch(depth, stage, step, ((reading, site),), current)

    def _write_batch(
        self, depth: int, stage: Stage, step: Step, way: Way, current: Variables
    ) -> None:
        node = stage.calling(way[-1][0], step)
        way = (*way, (node, Site(step.name, step.on_error)))
        for are_batches, children in groupby(step.children, is_batch):
            if not are_batches:
                self._write_exit(depth, stage, way, list(children), current)
                continue
            for child in children:
                assert isinstance(child, Step), "batch operators are steps"
                self._write_batch(depth, stage, child, way, current)

    def _write_exit(
        self, depth: int, stage: Stage, way: Way, children: Sequence[Node], current: Variables
    ) -> None:
        node = way[-1][0]
        if node not in self._exits:
            stage.exit(node)
            self._exits[node] = self._code.variable("j")
        encoded = self._exits[node]
        self._code.line(depth, f"if {encoded}.__class__ is Refused:")
        for number, site in way:
            self._code.site = site
            self._code.line(depth + 1, f"if {encoded}.at == {number}: raise {encoded}.error")
        self._code.line(depth, f"if {encoded} is not GONE:")
        value = encoded
        if not all(_takes_json(child) for child in children):
            self._code.site = way[0][1]
            value = self._code.variable("v")
            decode = self._code.name("decode", JSON.decode)
            self._code.line(
                depth + 1, f"{value} = None if {encoded} is None else {decode}({encoded})"
            )
        changed = replace(current, value=value, encoded=(value, encoded, JSON))
        self._code.children(depth + 1, children, changed)

    def extend_loop(self, line: int) -> None:
        """Extend the loop over the messages, at a line, to the values of the batch operators."""
        if self._exits:
            names = ", ".join(self._exits.values())
            stage = self._code.name("batches", self._stage)
            self._code.lines[line] = (
                f" for m, {names} in zip(messages, *{stage}(messages), strict=True):"
            )

    def _new_stage(self, source: Source) -> Stage:
        from eosframework.engine.operators.batch_stage import GONE, Refused, Stage

        self._code.names |= {"GONE": GONE, "Refused": Refused}
        return Stage(source.key, partial(event_time, source), self._code.slots.context.batch_rows)


def _takes_json(node: Node) -> bool:
    """Return whether a node takes a value as JSON, so that it need not be decoded."""
    return isinstance(node, Sink) and isinstance(node.topic, str) and node.value == JSON
