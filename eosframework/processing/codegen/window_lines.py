"""The generated code of windows and deduplication."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from eosframework.processing.codegen.source_lines import Current, Lines, Site
from eosframework.topology.graph.graph import Aggregate, Emit, Node, OnError, Policy
from eosframework.topology.spec.window_spec import Window


class WindowLines(Lines):
    """Writes windowed steps and the closing of windows.

    A record may change several windows, or none; it is late if the operator returns None. If a
    record moves stream time to the end of a window, the window closes directly after it, so that
    the division of records into slices and transactions makes no difference.
    """

    @abstractmethod
    def _write_children(self, depth: int, children: Sequence[Node], current: Current) -> None: ...

    def _write_windowed(
        self, depth: int, node: Aggregate, window: Window, update: str, current: Current
    ) -> None:
        self._site = Site(node.name, node.on_error)
        results = self._variable("r")
        self._line(
            depth,
            f"{results} = {update}({current.key_bytes}, {current.value}, {current.timestamp}, "
            f"stream_time)",
        )
        policy = Policy.DEAD_LETTER if window.late else Policy.SKIP
        site = self._name("site", Site(node.name, OnError(policy, window.late)))
        self._line(depth, f"if {results} is None: state.late({site}, m, stream_time, out)")
        if node.emit is not Emit.EACH:
            return
        value, timestamp = self._variable("v"), self._variable("t")
        self._line(depth, "else:")
        self._line(depth + 1, f"for {value}, {timestamp} in {results}:")
        changed = replace(current, value=value, timestamp=timestamp)
        self._write_children(depth + 2, node.children, changed)

    def _write_closing(self, *, receipts: bool) -> None:
        """Write the closing of windows, whose results belong to the current record."""
        closing = "if stream_time >= alarm.due: close(m, out, stream_time, failed, state)"
        if not receipts:
            self._line(2, closing)
            return
        self._line(2, "try:")
        self._line(3, closing)
        self._line(2, "finally:")
        self._line(3, "if len(out) > mark: out.seal(mark, m)")
