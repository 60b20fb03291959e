"""From the tables and joins of a topology to the operators of one task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eosframework.operators.entries import Entry
from eosframework.operators.joins.history import History
from eosframework.operators.joins.stream_joins import StreamJoining, interval_of
from eosframework.operators.joins.table_joins import TableJoining
from eosframework.operators.joins.table_rows import (
    Row,
    Show,
    changing,
    filtered,
    joined_rows,
    keeping,
    showing,
    viewed,
)
from eosframework.operators.joins.version_chunks import Chunks
from eosframework.operators.limits import Limits
from eosframework.operators.operator_ports import WholeTopic
from eosframework.operators.store_transaction import StoreSession
from eosframework.operators.windows.closing import Alarm, Alarms
from eosframework.topology.graph.graph import (
    Aggregate,
    Emit,
    Function,
    GlobalTable,
    Lookup,
    Operator,
    StreamJoin,
    Table,
    TableJoin,
    View,
)


class JoinBinding:
    """Binds the nodes of one task.

    Args:
        sessions: of the task's stores, by name.
        topics: the rows of global tables, by topic.
        alarms: of the task.
        limits: of what a record may meet.
    """

    def __init__(
        self,
        sessions: Mapping[str, StoreSession],
        topics: Mapping[str, WholeTopic],
        alarms: Alarms,
        limits: Limits,
    ) -> None:
        self._sessions = sessions
        self._topics = topics
        self._alarms = alarms
        self._limits = limits
        self._chunks: dict[str, Chunks] = {}

    def bind(self, node: Table | Lookup | TableJoin | StreamJoin | View) -> Any:
        """Return what runs a node."""
        match node:
            case Table():
                return self._table(node)
            case Lookup():
                return self._looking(node.view)
            case View():
                return self._row(node)
            case TableJoin():
                shows = showing(_shows(node.left)), showing(_shows(node.right))
                rows = self._row(node.left), self._row(node.right)
                return TableJoining(node.function.call, node.kind.needs, shows, rows)
            case StreamJoin():
                return self._stream_join(node)

    def _table(self, node: Table) -> Any:
        session = self._sessions[node.store.name]
        if node.history_ms is not None:
            return self._history(node, self._alarms.ends)
        return changing(session) if node.children else keeping(session)

    def _stream_join(self, node: StreamJoin) -> StreamJoining:
        return StreamJoining(
            self._sessions[node.store.name],
            node.function.call,
            interval_of(node),
            node.values,
            node.keeps_unpaired,
            self._alarms.closes if node.emit is Emit.CLOSE else self._alarms.ends,
            self._limits,
        )

    def _looking(self, view: View) -> Callable[..., Entry | None]:
        """Return what finds the row for a record: of a table with a past, the one of its time."""
        origin = view.origin
        if not isinstance(origin, Table) or origin.history_ms is None:
            return self._row(view)
        row_at = self._history(origin, Alarm()).row_at
        show = showing(_shows(view))

        def look(key: bytes, time: int, stream_time: int) -> Entry | None:
            entry = row_at(key, time, stream_time)
            value = None if entry is None else show(entry[0])
            return None if entry is None or value is None else (value, entry[1])

        return look

    def _row(self, view: View) -> Row:
        return viewed(self._stored(view), _shows(view))

    def _stored(self, view: View) -> Row:
        match view.origin:
            case Table(history_ms=None) | Aggregate():
                return self._sessions[view.origin.store.name].get
            case Table():
                return self._history(view.origin, Alarm()).row
            case TableJoin():
                join = view.origin
                left, right = self._row(join.left), self._row(join.right)
                return joined_rows(left, right, join.function.call, join.kind.needs)
            case GlobalTable():
                return _whole(self._topics[view.origin.topic], view.origin)

    def _history(self, table: Table, alarm: Alarm) -> History:
        """Return the past of a table; what only looks gets an alarm that nobody hears."""
        assert table.history_ms is not None, "only tables with a past have one"
        name = table.store.name
        if name not in self._chunks:
            self._chunks[name] = Chunks(self._sessions[name])
        return History(self._chunks[name], table.row, table.history_ms, alarm)


def _whole(topic: WholeTopic, table: GlobalTable) -> Row:
    decode = table.value.decode

    def row(key: bytes) -> Entry | None:
        found = topic.get(key)
        if found is None or decode is None:
            return found
        return decode(found[0]), found[1]

    return row


def _shows(view: View) -> list[Show]:
    return [_show(operator, function) for operator, function in view.steps]


def _show(operator: Operator, function: Function) -> Show:
    return filtered(function.call) if operator is Operator.FILTER else function.call
