"""Results that go out later than the records behind them, and which of them the brokers refuse.

Windows that close, records of a join that met nothing, timers that come due, and what nodes give at
the commit are nobody's but their node's: the record behind which they go out may be in order. A
commit that fails because of its data says neither which record nor which result was at fault. So
a transaction of a single record that was refused is tried again in parts, each delivered before the
next one is sent:

    part 0         what the record itself gave; nothing, where the clock closes windows
    parts 1 to n   one for each result, in the order in which they go out

The parts are the same each time, because the transaction was dropped and begins with the same
record, stores and stream time. It is tried with few deliveries at first, then with some in the
stretch that was refused, until a single part is known:

    0 | 1 | 2 3 | 4 5 6 7 | 8 ... 15 |       refused: 4 to 7
            0 ... 3 | 4 | 5 | 6 | 7 |        refused: 6

The part that is a result goes the way of its node's `on_error` from then on; its window is closed,
and the record is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eosframework.errors import DataRejected
from eosframework.processing.codegen.generator import Failed
from eosframework.processing.codegen.source_lines import Site
from eosframework.processing.ports import Message, Output
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Aggregate, Processor, StreamJoin, Table

STRETCHES = 16
"""Into so many a refused stretch of parts is divided."""

Node = Aggregate | StreamJoin | Table | Processor


@dataclass(frozen=True, slots=True)
class Trial:
    """What is known of a refused transaction.

    Args:
        record: the only one in it; None: it is of the clock.
        suspects: parts among which the refused one is; None: it may be any.
        refused: parts that are known to be refused, and why.
    """

    record: tuple[TopicPartition, int] | None
    suspects: range | None = None
    refused: Mapping[int, DataRejected] = field(default_factory=dict[int, DataRejected])

    def among(self, suspects: range) -> Trial:
        """Return what is known once the refused part is known to be in a stretch."""
        return replace(self, suspects=suspects)

    def without(self, part: int, error: DataRejected) -> Trial:
        """Return what is known once a part is known to be refused; others may be as well."""
        return Trial(self.record, refused={**self.refused, part: error})

    def is_delivered(self, part: int) -> bool:
        """Tell whether everything up to a part is delivered before the next one is sent."""
        if self.suspects is None:
            return part & (part + 1) == 0
        first, last = self.suspects[0], self.suspects[-1]
        stretch = -(-len(self.suspects) // STRETCHES)
        return first - 1 <= part <= last and (part - first + 1) % stretch == 0


class LateResults:
    """The late results of one task's open transaction.

    Attributes:
        trial: the refused transaction that is tried again; None: there is none.
        found: parts among which the refused one is, after a delivery failed; None: none did.
        were_any: whether the transaction has any.
    """

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, trial: Trial | None) -> None:
        """Begin a transaction."""
        self.trial = trial
        self.found: range | None = None
        self.were_any = False
        self._ends: list[int] = []
        self._ended = 0
        self._delivered = 0

    def of(
        self, node: Node, messages: Iterable[Message], out: list[Output], failed: Failed
    ) -> Iterable[Message]:
        """Return which results are run; those that are refused go the way of `on_error` here.

        Args:
            node: gave them.
            messages: the results.
            out: takes what they give, and dead letters.
            failed: is told about the refused ones.
        """
        self.were_any = True
        trial = self.trial
        return messages if trial is None else self._tried(trial, node, messages, out, failed)

    def hand_out(
        self,
        out: Sequence[Output],
        produce: Callable[[Sequence[Output]], None],
        deliver: Callable[[], None],
    ) -> None:
        """Produce a trial's outputs part by part; deliver them where it says so, and at the end.

        Args:
            out: what was given since the last time.
            produce: sends outputs.
            deliver: waits until what was sent is delivered.

        Raises:
            DataRejected: a part is refused; `found` says among which it is.
        """
        assert self.trial is not None, "only a trial is handed out in parts"
        self._ends.append(len(out))
        start, last = 0, self._ended + len(self._ends) - 1
        for part, end in enumerate(self._ends, self._ended):
            try:
                produce(out[start:end])
            except DataRejected:
                self.found = range(part, part + 1)
                raise
            start = end
            if part == last or self.trial.is_delivered(part):
                self._deliver(part, deliver)
        self._ended = last + 1
        self._ends.clear()

    def _deliver(self, part: int, deliver: Callable[[], None]) -> None:
        try:
            deliver()
        except DataRejected:
            self.found = range(self._delivered, part + 1)
            raise
        self._delivered = part + 1

    def _tried(
        self,
        trial: Trial,
        node: Node,
        messages: Iterable[Message],
        out: list[Output],
        failed: Failed,
    ) -> Iterator[Message]:
        for message in messages:
            self._ends.append(len(out))
            part = self._ended + len(self._ends)
            if part in trial.refused:
                failed(Site(node.name, node.on_error), message, trial.refused[part], out)
            else:
                yield message
