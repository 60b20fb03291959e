"""The generated code of batch operators: their results for a slice are used record by record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from eosframework.processing.codegen.source_lines import Current, Lines, Site, Slots
from eosframework.processing.event_times import event_time
from eosframework.serialization.serdes import JSON
from eosframework.topology.graph.graph import Node, Sink, Source, Step

if TYPE_CHECKING:
    from eosframework.operators.batch.batch_stage import Stage

Way = tuple[tuple[int, Site], ...]
"""The nodes of a stage that lead to an exit, each with its site for errors."""


def is_batch(node: Node) -> bool:
    """Return whether a node works on many records at once."""
    return isinstance(node, Step) and node.is_batch


class BatchLines(Lines):
    """Writes the code of batch operators, which run before the first record of a slice.

    The error of a record is raised at its turn, in the line of the operator at which it failed: so
    every failure takes the same path, in the order of the records.
    """

    def __init__(self, slots: Slots) -> None:
        super().__init__(slots)
        self._stage: Stage | None = None
        self._exits: dict[int, str] = {}

    @abstractmethod
    def _write_children(self, depth: int, children: Sequence[Node], current: Current) -> None: ...

    def _write_batches(self, depth: int, source: Source, step: Step, current: Current) -> None:
        """Write a batch operator directly after the source."""
        assert step.columns is not None, "the first batch operator declares columns"
        stage = self._stage = self._stage or self._new_stage(source)
        reading = stage.reading(step.columns)
        site = Site(f"{source.name}: read columns for {step.name}", source.on_error)
        self._write_batch(depth, stage, step, ((reading, site),), current)

    def _write_batch(
        self, depth: int, stage: Stage, step: Step, way: Way, current: Current
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
        self, depth: int, stage: Stage, way: Way, children: Sequence[Node], current: Current
    ) -> None:
        node = way[-1][0]
        if node not in self._exits:
            stage.exit(node)
            self._exits[node] = self._variable("j")
        encoded = self._exits[node]
        self._line(depth, f"if {encoded}.__class__ is Refused:")
        for number, site in way:
            self._site = site
            self._line(depth + 1, f"if {encoded}.at == {number}: raise {encoded}.error")
        self._line(depth, f"if {encoded} is not GONE:")
        value = encoded
        if not all(_takes_json(child) for child in children):
            self._site = way[0][1]
            value = self._variable("v")
            decode = self._name("decode", JSON.decode)
            self._line(depth + 1, f"{value} = None if {encoded} is None else {decode}({encoded})")
        changed = replace(current, value=value, encoded=(value, encoded))
        self._write_children(depth + 1, children, changed)

    def _write_loop(self, line: int) -> None:
        """Extend the loop over the messages, at a line, to their results."""
        if self._exits:
            names = ", ".join(self._exits.values())
            stage = self._name("batches", self._stage)
            self.lines[line] = f" for m, {names} in zip(messages, *{stage}(messages), strict=True):"

    def _new_stage(self, source: Source) -> Stage:
        from eosframework.operators.batch.batch_stage import GONE, Refused, Stage

        self.names |= {"GONE": GONE, "Refused": Refused}
        return Stage(source.key, partial(event_time, source), self._slots.batch_rows)


def _takes_json(node: Node) -> bool:
    """Return whether a node takes a value as JSON, so that it need not be decoded."""
    return isinstance(node, Sink) and isinstance(node.topic, str) and node.value == JSON
