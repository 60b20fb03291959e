"""The content of an open transaction so far: rows, made as a table writer makes them, and outputs.

Both are made at each slice of records, in the form in which they are kept: objects that stay until
the commit are what the garbage collector visits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eosframework.errors import RowRefused, RowsRefused
from eosframework.postgres.tables.table_ports import Batch, Claim, RefusedRow, RowMaker
from eosframework.records import Position, TopicPartition
from eosframework.serialization import packing
from eosframework.topology.graph.graph import TableSink
from eosframework.transactions.ports import ROW_OF, Decided, Message, Output

Decide = Callable[["OpenRows", Sequence[Position], float], Callable[[], None]]
"""Returns the function that decides a transaction with these positions, within some seconds."""


class DecidedRows:
    """Makes the rows of decisions.

    Args:
        sinks: the tables that are written in decisions.
    """

    def __init__(self, sinks: Sequence[TableSink]) -> None:
        self._makers = {sink.topic: RowMaker(sink) for sink in sinks}

    def begin(self, decide: Decide) -> OpenRows:
        """Return an open transaction without rows and outputs."""
        return OpenRows(self, decide)

    def add(self, rows: Sequence[Output], batches: dict[str, Batch]) -> None:
        """Add rows to the batch of their stream, in their order; some of them may be refused."""
        by_stream: dict[str, list[_RowMessage]] = {}
        for row in rows:
            by_stream.setdefault(row[0], []).append(_RowMessage(row))
        for stream, messages in by_stream.items():
            maker = self._makers[stream]
            if (batch := batches.get(stream)) is None:
                origin = messages[0]
                claim = Claim(TopicPartition(origin.topic(), origin.partition()), 0, None)
                batch = batches[stream] = maker.empty(claim, 0)
            maker.add(messages, batch)


class OpenRows:
    """The `Undecided` transaction.

    Args:
        maker: of rows.
        decide: called with the finished transaction.

    """

    def __init__(self, maker: DecidedRows, decide: Decide) -> None:
        self._maker = maker
        self._decide = decide
        self._by_stream: dict[str, Batch] = {}
        self._outputs: list[bytes] = []

    def add(self, outputs: Sequence[Output]) -> Sequence[Output]:
        """Add rows, and copies of outputs; return the outputs without the rows."""
        produced = [output for output in outputs if output[ROW_OF] is None]
        if len(produced) < len(outputs):
            rows = [output for output in outputs if output[ROW_OF] is not None]
            self._maker.add(rows, self._by_stream)
        if produced:
            self._outputs.append(packing.encoded(produced))  # Without their callbacks.
        return produced

    def prepared(self, positions: Sequence[Position], within_seconds: float) -> Callable[[], None]:
        """Return the function that decides it; see `Undecided`."""
        return self._decide(self, positions, within_seconds)

    @property
    def batches(self) -> list[Batch]:
        """The rows of each stream, in their order; those that cannot be made are refused."""
        return [*self._by_stream.values()]

    def encoded(self, positions: Sequence[Position]) -> bytes:
        """Return what `decoded` turns into the same transaction."""
        stored = [(*p.topic_partition, p.offset, p.metadata) for p in positions]
        return packing.packed((stored, self._outputs))


def decoded(transactional_id: str, stored: bytes) -> Decided:
    """Return a transaction from what is stored of it."""
    positions, outputs = packing.unpacked(stored)
    return Decided(
        transactional_id,
        [Position(*position) for position in positions],
        [
            (topic, value, key, partition, None, None, timestamp, headers and _pairs(headers))
            for part in outputs
            for topic, value, key, partition, _, _, timestamp, headers in packing.decoded(part)
        ],
    )


def refusal(refused: Sequence[RefusedRow]) -> RowsRefused:
    """Return the error of a transaction with refused rows, at least one."""
    first = refused[0]
    return RowsRefused(
        f"{len(refused)} rows are refused, the first by table {first.table}: {first.error}",
        refused=[(_origin(row), _as_error(row)) for row in refused],
    )


class _RowMessage:
    """A row among the outputs, as the message of a rows topic; its place is that of its origin."""

    __slots__ = ("_row",)

    def __init__(self, row: Output) -> None:
        self._row = row

    @property
    def origin(self) -> Message:
        """The message that the row comes from."""
        return self._row[ROW_OF]

    def topic(self) -> str:
        """The topic of its origin."""
        return self._row[ROW_OF].topic()

    def partition(self) -> int:
        """The partition of its origin."""
        return self._row[ROW_OF].partition()

    def offset(self) -> int:
        """The offset of its origin."""
        return self._row[ROW_OF].offset()

    def key(self) -> bytes | None:
        """The encoded key."""
        return self._row[2]

    def value(self) -> bytes | None:
        """The encoded value."""
        return self._row[1]

    def timestamp(self) -> tuple[int, int]:
        """The timestamp's type, and the timestamp in milliseconds."""
        return 1, self._row[6]

    def headers(self) -> Any:
        """The headers in order, or None where there are none."""
        return self._row[7]


def _origin(refused: RefusedRow) -> Message:
    row = refused.origin
    assert isinstance(row, _RowMessage), "rows of decisions come from outputs"
    return row.origin


def _as_error(refused: RefusedRow) -> RowRefused:
    origin = refused.origin
    return RowRefused(
        f"table {refused.table} refuses the row: {refused.error}",
        partition=TopicPartition(origin.topic(), origin.partition()),
        offset=origin.offset(),
    )


def _pairs(headers: Sequence[Sequence[Any]]) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in headers]
