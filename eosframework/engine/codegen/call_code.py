"""The generated code of steps that call a coroutine: the part of a source that runs ahead.

The steps on the way to a call become functions of their own, which begin calls and note the records
that leave the way (ADR 35). For `filter → map_async → to`, shortened:

    def begin(m, f):
        try:
            v1 = decode(m.value())
            if filter2(v1):
                f.call(node3, k1, v1, t1, h1, kb1)
        except raised_by_functions() as error:
            f.fail(site_of(error), error)

    def after3(m, f, k, v, t, h, kb):
        f.places[0].append((k, v, t, h))

The function of the source resumes at the noted records, in the transaction:

    for f in landed(messages):
        ...
        for k5, v5, t5, h5 in f.places[0]:
            emit(("orders.priced", encode(v5), …))

An error on the way is raised there, in a line of the step at which it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from eosframework.engine.calls.flights import CallNode, FlightPlan
from eosframework.engine.calls.landing import Landing
from eosframework.engine.codegen.code_writer import GENERATED, CodeWriter, Variables
from eosframework.engine.failures.failure_handler import Site
from eosframework.engine.operators.watermarks import WATERMARK_KEY
from eosframework.topology.graph.graph import Node, Source, Step
from eosframework.topology.graph.walk import followers_of

WriteDecode = Callable[[CodeWriter, Source], Variables]
WriteStep = Callable[[CodeWriter, int, Step, Variables], None]


def leads_to_call(node: Node) -> bool:
    """Return whether a node is a call, or one follows it."""
    if isinstance(node, Step) and node.calls is not None:
        return True
    return any(leads_to_call(child) for _, child in followers_of(node))


@dataclass(frozen=True, slots=True)
class _Place:
    """A place at which the transaction resumes.

    Args:
        nodes: those that follow.
        keeps_key: the records have the keys of their messages.
    """

    nodes: Sequence[Node]
    keeps_key: bool


class CallCode:
    """Writes the part of a source that runs ahead, and the lines that resume after it.

    Args:
        source: with those children alone that lead to calls.
        code: the writer of the source's own function.
        write_decode: writes the decoding of a message.
        write_step: writes a step for single records.
    """

    def __init__(
        self, source: Source, code: CodeWriter, write_decode: WriteDecode, write_step: WriteStep
    ) -> None:
        self._code = code
        self._write_step = write_step
        self._ahead = ahead = CodeWriter(code.slots, self._write_children)
        ahead.ahead_ms = source.ahead_ms
        ahead.refused_site = Site("output", source.on_error)
        ahead.names["WATERMARK_KEY"] = WATERMARK_KEY
        self._places: list[_Place] = []
        self._calls: list[tuple[CallNode, Variables]] = []
        self._is_resumed = False
        ahead.line(0, "def begin(m, f):")
        ahead.line(1, "if m.key() == WATERMARK_KEY: return")
        ahead.line(1, "try:")
        current = write_decode(ahead, source)
        self._decoding = ahead.sites()
        self._write_children(ahead, 3, source.children, current)
        self._write_except()
        for node, before in self._calls:  # Grows, as calls follow from calls.
            self._write_after(node, before)
        self.plan = self._compiled(source.name)

    def _compiled(self, name: str) -> FlightPlan:
        names = self._ahead.names
        exec(compile("\n".join(self._ahead.lines), f"{GENERATED}{name}, ahead>", "exec"), names)
        for number, (node, _) in enumerate(self._calls):
            node.after = names[f"after{number}"]
        concurrency = max(node.options.limits.concurrency for node, _ in self._calls)
        onces = (node.step.name for node, _ in self._calls if node.once is not None)
        return FlightPlan(names["begin"], len(self._places), concurrency, next(onces, None))

    def _write_except(self) -> None:
        self._ahead.line(1, "except raised_by_functions() as error:")
        self._ahead.line(2, "f.fail(site_of(error), error)")

    def _write_after(self, node: CallNode, before: Variables) -> None:
        ahead, number = self._ahead, [one for one, _ in self._calls].index(node)
        ahead.line(0, f"def after{number}(m, f, k, v, t, h, kb):")
        ahead.line(1, "try:")
        known = None if before.key_bytes is None else "kb"
        current = Variables("k", "v", "t", "h", known, before.key_serde)
        self._write_children(ahead, 2, node.step.children, current)
        self._write_except()

    def _write_children(
        self, ahead: CodeWriter, depth: int, children: Sequence[Node], shared: Variables
    ) -> None:
        """Write the nodes on the way to calls, and note the record for the others."""
        way = [child for child in children if leads_to_call(child)]
        if others := [child for child in children if not leads_to_call(child)]:
            noted = ahead.own(depth, shared) if way else shared
            given = f"({noted.key}, {noted.value}, {noted.timestamp}, {noted.headers})"
            ahead.line(depth, f"f.places[{len(self._places)}].append({given})")
            self._places.append(_Place(others, noted.key_bytes is not None))
        for number, child in enumerate(way, 1):
            assert isinstance(child, Step), "calls follow steps for single records"
            current = shared if number == len(way) else ahead.own(depth, shared)
            if child.calls is None:
                self._write_step(ahead, depth, child, current)
            else:
                self._write_call(depth, child, current)
        if not children:
            ahead.line(depth, "pass")

    def _write_call(self, depth: int, step: Step, current: Variables) -> None:
        node = CallNode(step)
        self._calls.append((node, current))
        self._ahead.site = node.site
        name = self._ahead.name("node", node)
        self._ahead.line(
            depth,
            f"f.call({name}, {current.key}, {current.value}, {current.timestamp}, "
            f"{current.headers}, {current.key_bytes})",
        )

    # --- in the function of the source ---------------------------------------------------------

    def write_decoding_failures(self, depth: int) -> None:
        """Write the raising of what failed while a message was decoded."""
        self._write_failures(depth, self._decoding)

    def write_failures(self, depth: int) -> None:
        """Write the raising of all other failures."""
        sites = [*self._ahead.sites(), *(node.site for node, _ in self._calls)]
        self._write_failures(depth, sites)
        self._code.site = self._ahead.refused_site
        self._code.line(depth, "if f.error is not None: raise f.error")

    def _write_failures(self, depth: int, sites: Sequence[Site]) -> None:
        self._code.line(depth, "if f.error is not None:")
        for site in dict.fromkeys(sites):
            self._code.site = site
            name = self._code.name("site", site)
            self._code.line(depth + 1, f"if f.site == {name}: raise f.error")

    def write_places(self, depth: int, current: Variables) -> None:
        """Write the nodes that follow the part that ran ahead, once."""
        if self._is_resumed:
            return
        self._is_resumed = True
        for number, place in enumerate(self._places):
            names = [self._code.variable(kind) for kind in "kvth"]
            self._code.line(depth, f"for {', '.join(names)} in f.places[{number}]:")
            resumed = replace(
                current,
                key=names[0],
                value=names[1],
                timestamp=names[2],
                headers=names[3],
                key_bytes=current.key_bytes if place.keeps_key else None,
                encoded=None,
                is_shared=False,
            )
            self._code.children(depth + 1, place.nodes, resumed)

    def extend_loop(self, line: int, *, is_batch: bool) -> None:
        """Let the loop over messages take records whose calls have ended.

        Args:
            line: index of the loop.
            is_batch: batch operators take the messages before the loop.
        """
        landing = Landing(self.plan)
        self._code.names["landed"] = landing.all_of if is_batch else landing
        self._code.lines[line + 1] = "  mark, f, m = len(out), m, m.message"
        self._code.insert(line, [" messages = landed(messages)"])
