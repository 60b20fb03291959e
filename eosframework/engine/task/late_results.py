"""Results emitted later than the records that caused them, and their rejection by brokers.

A late result is a message of its keyed node. Results of closing windows, unmatched join records,
due timers and emissions at the commit belong to their node: the record after which they are emitted
may be valid. A commit that is rejected for its data names neither the record nor the result. So a
rejected transaction with a single record is tried again in parts, each delivered before the next
one is sent:

    part 0         the outputs of the record itself; none, if the clock closes windows
    parts 1 to n   one for each result, in order of emission

The parts are the same each time, because the transaction was dropped and begins with the same
record, stores and stream time. The first trial has few deliveries, the next ones some within the
rejected stretch, until a single part is known:

    0 | 1 | 2 3 | 4 5 6 7 | 8 ... 15 |       rejected: 4 to 7
            0 ... 3 | 4 | 5 | 6 | 7 |        rejected: 6

If the part is a result, its node's `on_error` applies from then on; its window is closed, and the
record is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eosframework.engine.codegen.generated_run import Failed
from eosframework.engine.failures.failure_handler import Site, writable
from eosframework.engine.operators.stream_joins import Unpaired
from eosframework.errors import DataRejected, raised_by_functions
from eosframework.records import TopicPartition
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import (
    Aggregate,
    Processor,
    Reorder,
    StreamJoin,
    Table,
    WallClock,
)
from eosframework.transactions.ports import Message, Output


@dataclass(frozen=True, slots=True)
class EmittedResult:
    """A result that a keyed node emits at a commit, or when a window closes.

    Args:
        store: changelog topic of the node's store, the origin that a dead letter names.
        partition_: partition of the task.
        key_: the encoded key.
        entry_value: the decoded value.
        timestamp_: in milliseconds since the epoch.
        serde: serde of the value.
    """

    store: str
    partition_: int
    key_: bytes
    entry_value: Any
    timestamp_: int
    serde: Serde

    def topic(self) -> str:
        """The changelog of its store."""
        return self.store

    def partition(self) -> int:
        """The task's partition."""
        return self.partition_

    def offset(self) -> int:
        """Always 0: it has no offset."""
        return 0

    def key(self) -> bytes:
        """The encoded key."""
        return self.key_

    def value(self) -> bytes | None:
        """The encoded value; as text if its serde does not encode it.

        A dead letter of the result needs it, and the serde may be why there is one.
        """
        value = self.entry_value
        if value is None or isinstance(value, bytes):
            return value
        try:
            return self.serde.encode(value) if self.serde.encode is not None else shown(value)
        except raised_by_functions():
            return shown(value)

    def timestamp(self) -> tuple[int, int]:
        """The timestamp's type, and the timestamp in milliseconds."""
        return 1, self.timestamp_

    def headers(self) -> None:
        """None: it results from many records."""
        return


def shown(value: Any) -> bytes:
    """Return a value as text for a reader."""
    try:
        return writable(repr(value)).encode()
    except raised_by_functions():  # Of a user's own class.
        return f"<{type(value).__name__}>".encode()


@dataclass(frozen=True, slots=True)
class UnpairedMessage(EmittedResult):
    """A record of a stream-stream join that can have no match any more."""

    is_left: bool


def unpaired_message(join: StreamJoin, partition: int, record: Unpaired) -> UnpairedMessage:
    """Return a record without a match as a message."""
    return UnpairedMessage(
        store=join.store.changelog,
        partition_=partition,
        key_=record.key,
        entry_value=record.value,
        timestamp_=record.timestamp,
        serde=join.values[0 if record.is_left else 1],
        is_left=record.is_left,
    )


STRETCHES = 16
"""The number of stretches into which a rejected stretch of parts is divided."""

Node = Aggregate | StreamJoin | Table | Processor | Reorder | WallClock


@dataclass(frozen=True, slots=True)
class Trial:
    """The knowledge about a rejected transaction.

    Args:
        record: its only record; None: the clock closed windows.
        suspects: the parts that contain the rejected one; None: any part.
        refused: parts known to be rejected, with the error.
    """

    record: tuple[TopicPartition, int] | None
    suspects: range | None = None
    refused: Mapping[int, DataRejected] = field(default_factory=dict[int, DataRejected])

    def among(self, suspects: range) -> Trial:
        """Return the trial narrowed to a stretch."""
        return replace(self, suspects=suspects)

    def without(self, part: int, error: DataRejected) -> Trial:
        """Return the trial with a part known to be rejected; others may be as well."""
        return Trial(self.record, refused={**self.refused, part: error})

    def is_delivered(self, part: int) -> bool:
        """Return whether everything up to a part is delivered before the next one is sent."""
        if self.suspects is None:
            return part & (part + 1) == 0
        first, last = self.suspects[0], self.suspects[-1]
        stretch = -(-len(self.suspects) // STRETCHES)
        return first - 1 <= part <= last and (part - first + 1) % stretch == 0


class LateResults:
    """The late results of one task's open transaction.

    Attributes:
        trial: the rejected transaction that is tried again; None: there is none.
        found: the parts that contain the rejected one, after a failed delivery; None: none failed.
        were_any: whether the transaction has late results.
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
        """Return the results to run; for rejected ones `on_error` applies here.

        Args:
            node: the node that emits them.
            messages: the results.
            out: takes outputs and dead letters.
            failed: handles the rejected ones.
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
        """Produce a trial's outputs part by part, and deliver them as the trial requires.

        Args:
            out: the outputs since the last call.
            produce: sends outputs.
            deliver: waits until the sent outputs are delivered.

        Raises:
            DataRejected: a part is rejected; `found` is the stretch that contains it.
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
