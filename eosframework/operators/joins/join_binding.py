"""Binding of the tables and joins of a topology to the operators of one task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eosframework.operators.damaged_entries import of_global_table
from eosframework.operators.entries import Entry
from eosframework.operators.joins.history import VersionedRows
from eosframework.operators.joins.stream_joins import StreamJoinOperator, interval_of
from eosframework.operators.joins.table_joins import (
    Row,
    Show,
    TableJoinOperator,
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
from eosframework.operators.store_transaction import StoreTransaction
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


@dataclass(eq=False, slots=True)
class JoinBinding:
    """Binds the tables and joins of one task.

    Args:
        stores: the transactions of the task's stores, by name.
        topics: the rows of global tables, by topic.
        alarms: the alarms of the task.
        limits: limits on the matches of a record.
    """

    stores: Mapping[str, StoreTransaction]
    topics: Mapping[str, WholeTopic]
    alarms: Alarms
    limits: Limits
    _chunks: dict[str, Chunks] = field(init=False, default_factory=dict[str, Chunks])

    def bind(self, node: Table | Lookup | TableJoin | StreamJoin | View) -> Any:
        """Return the operator or function of a node."""
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
                return TableJoinOperator(node.function.call, node.kind.needs, shows, rows)
            case StreamJoin():
                return self._stream_join(node)

    def _table(self, node: Table) -> Any:
        store = self.stores[node.store.name]
        if node.history_ms is not None:
            return self._history(node, self.alarms.ends)
        return changing(store) if node.children else keeping(store)

    def _stream_join(self, node: StreamJoin) -> StreamJoinOperator:
        return StreamJoinOperator(
            self.stores[node.store.name],
            node.function.call,
            interval_of(node),
            node.values,
            node.keeps_unpaired,
            self.alarms.closes if node.emit is Emit.CLOSE else self.alarms.ends,
            self.limits,
        )

    def _looking(self, view: View) -> Callable[..., Entry | None]:
        """Return the row lookup of a record; a versioned table is read at the record's time."""
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
                return self.stores[view.origin.store.name].get
            case Table():
                return self._history(view.origin, Alarm()).row
            case TableJoin():
                join = view.origin
                left, right = self._row(join.left), self._row(join.right)
                return joined_rows(left, right, join.function.call, join.kind.needs)
            case GlobalTable():
                return _whole(self.topics[view.origin.topic], view.origin)

    def _history(self, table: Table, alarm: Alarm) -> VersionedRows:
        """Return the versions of a table; a lookup alone gets an alarm that is never read."""
        assert table.history_ms is not None, "only tables with a past have one"
        name = table.store.name
        if name not in self._chunks:
            self._chunks[name] = Chunks(self.stores[name])
        return VersionedRows(self._chunks[name], table.row, table.history_ms, alarm)


def _whole(topic: WholeTopic, table: GlobalTable) -> Row:
    decode = table.value.decode
    read = None if decode is None else of_global_table(table.topic).reading(decode)

    def row(key: bytes) -> Entry | None:
        found = topic.get(key)
        if found is None or read is None:
            return found
        return read(found[0]), found[1]

    return row


def _shows(view: View) -> list[Show]:
    return [_show(operator, function) for operator, function in view.steps]


def _show(operator: Operator, function: Function) -> Show:
    return filtered(function.call) if operator is Operator.FILTER else function.call
