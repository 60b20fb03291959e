"""The lines of `process` steps that keep something, and of their timers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from eosframework.processing.codegen.source_lines import Current, Lines, Site
from eosframework.topology.graph.graph import Node, Processor


class ProcessLines(Lines):
    """Writes them: a loop over what the function gives."""

    @abstractmethod
    def _write_children(self, depth: int, children: Sequence[Node], current: Current) -> None: ...

    def _write_processor(self, depth: int, node: Processor, current: Current) -> None:
        self._site = Site(node.name, node.on_error)
        call = f"{self._handler(node)}.record({self._record(current)}, stream_time)"
        self._write_given(depth, call, node, current)

    def _write_timers(self, node: Processor) -> None:
        self._site = Site(f"{node.name} on_timer", node.on_error)
        key = self._decode(3, "m.key()", node.key)
        self._line(3, "t, h = m.timestamp()[1], None")
        call = f"{self._handler(node)}.timer({key}, t, stream_time)"
        self._write_given(3, call, node, Current(key, "None", "t", "h", None, node.key))

    def _write_given(self, depth: int, call: str, node: Processor, current: Current) -> None:
        result = self._variable("r")
        self._line(depth, f"for {result} in {call} or ():")
        changed = self._write_unpacked(depth + 1, result, current)
        self._write_children(depth + 1, node.children, changed)

    def _handler(self, node: Processor) -> str:
        slot = self._slots.of(node)
        return self._used.setdefault(slot, f"handler{slot}")
