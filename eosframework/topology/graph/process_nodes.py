"""The nodes of `process` steps with stores or timers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eosframework.serialization.serdes import Serde
from eosframework.topology.spec.emission import Emit

if TYPE_CHECKING:
    from eosframework.topology.graph.graph import Function, Node, OnError, Store


@dataclass(frozen=True, slots=True, eq=False)
class Processor:
    """Calls a function with each record, the node's stores and its timers.

    Args:
        function: takes the whole record and a context.
        on_timer: takes key, time and the context; None: there are no timers.
        stores: by the names that the functions use.
        timers: store of pending timers; None: there are no timers.
        key: serde of the records' keys.
        children: nodes that receive the records that the functions return.
    """

    name: str
    stream: str
    function: Function
    on_timer: Function | None
    stores: dict[str, Store]
    timers: Store | None
    key: Serde
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])

    @property
    def emit(self) -> Emit:
        """CLOSE with timers: like windows, they fire when stream time passes their time."""
        return Emit.EACH if self.timers is None else Emit.CLOSE
