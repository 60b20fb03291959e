"""The rows of decisions: made of outputs, as a table writer makes them of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eosframework.errors import RowRefused, RowsRefused
from eosframework.postgres.tables.table_ports import Batch, Claim, RefusedRow, RowMaker
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import TableSink
from eosframework.transactions.ports import Message, Output


class DecidedRows:
    """Makes rows.

    Args:
        sinks: the tables that are written in decisions.
    """

    def __init__(self, sinks: Sequence[TableSink]) -> None:
        self._makers = {sink.topic: RowMaker(sink) for sink in sinks}

    def made(self, rows: Sequence[Output]) -> list[Batch]:
        """Return the rows of each stream, in their order; those that cannot be made are refused."""
        by_stream: dict[str, list[Message]] = {}
        for row in rows:
            by_stream.setdefault(row[0], []).append(_RowMessage(row))
        made: list[Batch] = []
        for stream, messages in by_stream.items():
            origin = messages[0]
            claim = Claim(TopicPartition(origin.topic(), origin.partition()), 0, None)
            made.append(self._makers[stream].empty(claim, 0))
            self._makers[stream].add(messages, made[-1])
        return made


def refusal(refused: Sequence[RefusedRow]) -> RowsRefused:
    """Return the error of a transaction with refused rows, at least one."""
    first = refused[0]
    return RowsRefused(
        f"{len(refused)} rows are refused, the first by table {first.table}: {first.error}",
        refused=[(_origin(row), _as_error(row)) for row in refused],
    )


class _RowMessage:
    """A row among the outputs, as the message of a rows topic; its place is that of its origin."""

    __slots__ = ("_row", "offset", "origin", "partition", "topic")

    def __init__(self, row: Output) -> None:
        origin = row[5]
        assert origin is not None, "a row has an origin"
        self._row = row
        self.origin = origin
        self.topic = origin.topic
        self.partition = origin.partition
        self.offset = origin.offset

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
