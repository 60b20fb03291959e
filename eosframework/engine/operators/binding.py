"""Binding of the keyed nodes of a topology to the operators of one task.

Binding of the tables and joins of a topology to the operators of one task.
Rows of tables, and table-table joins: tables whose rows follow the rows of two tables.
The result row of a join is the value of the function for both rows. A change of either side changes
the result if a result existed before or exists now. So a row that no longer exists is deleted
downstream, and a row that never existed is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eosframework.engine.operators import folds
from eosframework.engine.operators.entries import Entry, EntryFormat, of_global_table, of_store
from eosframework.engine.operators.expiry import Lifetime, StreamTime, open_expiring
from eosframework.engine.operators.folds import Fold, folding, owning, regrouping
from eosframework.engine.operators.foreign_keys import Answering, Subscriptions
from eosframework.engine.operators.foreign_rows import ForeignRows
from eosframework.engine.operators.handlers import Handler, Timers
from eosframework.engine.operators.history import Chunks, VersionedRows
from eosframework.engine.operators.key_windows import SessionWindows, SlidingWindows
from eosframework.engine.operators.list_folds import distinct, ranked
from eosframework.engine.operators.record_windows import RecordWindows
from eosframework.engine.operators.store_transaction import (
    CommittedStore,
    Journal,
    Limits,
    StoreTransaction,
    WholeTopic,
    open_transaction,
)
from eosframework.engine.operators.stream_joins import StreamJoinOperator, interval_of
from eosframework.engine.operators.time_windows import AlignedWindows, Deduplication, ZoneWindows
from eosframework.engine.operators.windows import (
    Alarm,
    Alarms,
    SpansFormat,
    WindowFormat,
    WindowOperator,
)
from eosframework.serialization.serdes import STRING
from eosframework.topology.graph.graph import (
    Aggregate,
    Answers,
    Emit,
    FoldKind,
    ForeignJoin,
    Function,
    GlobalTable,
    Join,
    JoinSide,
    Lookup,
    Node,
    Operator,
    Processor,
    Step,
    Store,
    StreamJoin,
    Subscribe,
    Table,
    TableGroup,
    TableJoin,
    View,
)
from eosframework.topology.graph.node_kinds import with_value
from eosframework.topology.spec.keyed_spec import Window, WindowKind

_Row = Callable[[bytes], Entry | None]
"""Takes an encoded key; returns the row with its timestamp in milliseconds, or None."""

_Show = Callable[[Any], Any]
"""Takes a stored row or None; returns the row of a view, or None."""

_Change = Callable[..., tuple[bool, Any]]
"""Takes key, new row (None: deleted), its timestamp and the stream time, and the bytes of the row,
if they are known; returns whether the current row changed, and its previous value."""


def _changing(store: StoreTransaction) -> _Change:
    """Return a function that keeps the last row, whatever its timestamp (`KTableSource`)."""
    get, put, delete = store.get, store.put, store.delete

    def change(
        key: bytes, value: Any, timestamp: int, stream_time: int, data: bytes | None = None
    ) -> tuple[bool, Any]:
        before = get(key)
        if value is not None:
            put(key, (value, timestamp), data)
        elif before is not None:
            delete(key)
        return value is not None or before is not None, before and before[0]

    return change


def _noting(store: StoreTransaction) -> _Change:
    """Return the same function for tables whose previous rows are not read: none is decoded."""
    get, put, delete = store.get, store.put, store.delete

    def change(
        key: bytes, value: Any, timestamp: int, stream_time: int, data: bytes | None = None
    ) -> tuple[bool, Any]:
        if value is not None:
            put(key, (value, timestamp), data)
        elif get(key) is not None:
            delete(key)
        else:
            return False, None
        return True, None

    return change


def _keeping(store: StoreTransaction) -> _Change:
    """Return the same function for tables whose changes nothing reads."""
    put, delete = store.put, store.delete

    def change(
        key: bytes, value: Any, timestamp: int, stream_time: int, data: bytes | None = None
    ) -> tuple[bool, Any]:
        if value is None:
            delete(key)
        else:
            put(key, (value, timestamp), data)
        return True, None

    return change


def _viewed(row: _Row, shows: list[_Show]) -> _Row:
    """Return a row lookup through filters and maps; a row that a filter drops is absent."""
    if not shows:
        return row
    show = _showing(shows)

    def look(key: bytes) -> Entry | None:
        entry = row(key)
        if entry is None:
            return None
        value = show(entry[0])
        return None if value is None else (value, entry[1])

    return look


def _showing(shows: list[_Show]) -> _Show:
    """Return the composition of `shows`."""

    def show(value: Any) -> Any:
        for function in shows:
            if value is None:
                return None
            value = function(value)
        return value

    return show


def _filtered(predicate: Callable[[Any], Any]) -> _Show:
    """Return a function that drops rows for which a predicate is false."""
    return lambda value: value if predicate(value) else None


def _joined_rows(left: _Row, right: _Row, by: Callable[[Any, Any], Any], needs: _Needs) -> _Row:
    """Return a lookup that joins the rows of two tables."""
    result = _joining(by, needs)

    def look(key: bytes) -> Entry | None:
        one, other = left(key), right(key)
        value = result(one and one[0], other and other[0])
        return None if value is None else (value, _latest(one, other))

    return look


_Needs = tuple[bool, bool]
"""A pair of flags: a result needs a left row; a result needs a right row."""


def _joining(by: Callable[[Any, Any], Any], needs: _Needs) -> Callable[[Any, Any], Any]:
    """Return a function that joins two rows, either of which may be None; None: no result."""
    left_needed, right_needed = needs

    def join(left: Any, right: Any) -> Any:
        if left is None and (left_needed or right is None):
            return None
        if right is None and right_needed:
            return None
        return by(left, right)

    return join


def _latest(one: Entry | None, other: Entry | None) -> int:
    """Return the later timestamp of two rows, at least one of which exists."""
    times = [entry[1] for entry in (one, other) if entry is not None]
    return max(times)


_Joined = tuple[Any, Any, int]
"""The new row, the row before, and the timestamp: the later one of both sides."""


class _TableJoinOperator:
    """Joins a change of one side with the current row of the other.

    Args:
        by: takes the left and the right row, one of them None where the kind of join allows it.
        needs: whether a result needs a left row, and a right row.
        shows: for each side, the conversion from the stored row to the row that the join sees.
        rows: for each side, the lookup of the current row.
    """

    def __init__(
        self,
        by: Callable[[Any, Any], Any],
        needs: _Needs,
        shows: tuple[_Show, _Show],
        rows: tuple[_Row, _Row],
    ) -> None:
        self._result = _joining(by, needs)
        self._shows = shows
        self._rows = rows

    def left(self, key: bytes, value: Any, before: Any, timestamp: int) -> _Joined | None:
        """Take a change of the left side; return the change of the result, or None."""
        show, result = self._shows[0], self._result
        new, old = show(value), show(before)
        if new is None and old is None:
            return None
        other = self._rows[1](key)
        # The function may change its arguments, so each call gets a freshly decoded row.
        joined_before = result(old, other and other[0])
        other = self._rows[1](key)
        joined = result(new, other and other[0])
        return _change(joined, joined_before, timestamp, other and other[1])

    def right(self, key: bytes, value: Any, before: Any, timestamp: int) -> _Joined | None:
        """Take a change of the right side; return the change of the result, or None."""
        show, result = self._shows[1], self._result
        new, old = show(value), show(before)
        if new is None and old is None:
            return None
        other = self._rows[0](key)
        joined_before = result(other and other[0], old)
        other = self._rows[0](key)
        joined = result(other and other[0], new)
        return _change(joined, joined_before, timestamp, other and other[1])


def _change(new: Any, old: Any, timestamp: int, other: int | None) -> _Joined | None:
    if new is None and old is None:
        return None
    return new, old, timestamp if other is None or other < timestamp else other


@dataclass(eq=False, slots=True)
class JoinBinding:
    """Binds the tables and joins of one task.

    Args:
        stores: the transactions of the task's stores, by name.
        topics: the rows of global tables, by topic.
        alarms: the alarms of the task.
        limits: limits on the matches of a record.
        partition: of the task.
    """

    stores: Mapping[str, StoreTransaction]
    topics: Mapping[str, WholeTopic]
    alarms: Alarms
    limits: Limits
    partition: int
    _chunks: dict[str, Chunks] = field(init=False, default_factory=dict[str, Chunks])

    def bind(self, node: Table | Lookup | Subscribe | Join | View) -> Any:
        """Return the operator or function of a node."""
        match node:
            case Table():
                return self._table(node)
            case Lookup():
                return self._looking(node.view)
            case View():
                return self._row(node)
            case TableJoin():
                shows = _showing(_shows(node.left)), _showing(_shows(node.right))
                rows = self._row(node.left), self._row(node.right)
                return _TableJoinOperator(node.function.call, node.kind.needs, shows, rows)
            case StreamJoin():
                return self._stream_join(node)
            case Subscribe():
                return Subscriptions(node, self.stores[node.store.name], self.partition)
            case Answers():
                store, show = self.stores[node.store.name], _showing(_shows(node.rows))
                return Answering(store, self._row(node.rows), show, node.row)
            case ForeignJoin():
                return self._foreign_join(node)

    def _foreign_join(self, node: ForeignJoin) -> ForeignRows:
        return ForeignRows(
            self.stores[node.store.name],
            node.function.call,
            node.kind.needs[1],
            node.rows,
            any(map(_reads_before, node.children)),
        )

    def _table(self, node: Table) -> Any:
        store = self.stores[node.store.name]
        if node.history_ms is not None:
            return self._history(node, self.alarms.ends)
        if not node.children:
            return _keeping(store)
        return _changing(store) if any(map(_reads_before, node.children)) else _noting(store)

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
        show = _showing(_shows(view))

        def look(key: bytes, time: int, stream_time: int) -> Entry | None:
            entry = row_at(key, time, stream_time)
            value = None if entry is None else show(entry[0])
            return None if entry is None or value is None else (value, entry[1])

        return look

    def _row(self, view: View) -> _Row:
        return _viewed(self._stored(view), _shows(view))

    def _stored(self, view: View) -> _Row:
        match view.origin:
            case Table(history_ms=None) | Aggregate():
                return self.stores[view.origin.store.name].get
            case Table():
                return self._history(view.origin, Alarm()).row
            case TableJoin():
                join = view.origin
                left, right = self._row(join.left), self._row(join.right)
                return _joined_rows(left, right, join.function.call, join.kind.needs)
            case ForeignJoin():
                return self._foreign_join(view.origin).row
            case GlobalTable():
                return _whole(self.topics[view.origin.topic], view.origin)

    def _history(self, table: Table, alarm: Alarm) -> VersionedRows:
        """Return the versions of a table; a lookup alone gets an alarm that is never read."""
        assert table.history_ms is not None, "only tables with a past have one"
        name = table.store.name
        if name not in self._chunks:
            self._chunks[name] = Chunks(self.stores[name])
        return VersionedRows(self._chunks[name], table.row, table.history_ms, alarm)


def _reads_before(node: Node) -> bool:
    """Return whether a node reads the previous row of a change."""
    return isinstance(node, JoinSide | TableGroup) or (
        isinstance(node, Step) and node.operator in (Operator.FILTER, Operator.MAP_VALUES)
    )


def _whole(topic: WholeTopic, table: GlobalTable) -> _Row:
    decode = table.value.decode
    read = None if decode is None else of_global_table(table.topic).reading(decode)

    def row(key: bytes) -> Entry | None:
        found = topic.get(key)
        if found is None or read is None:
            return found
        return read(found[0]), found[1]

    return row


def showing(view: View) -> Callable[[Any], Any] | None:
    """Return the conversion from a stored row to the row of a view; None: they are the same."""
    shows = _shows(view)
    return _showing(shows) if shows else None


def _shows(view: View) -> list[_Show]:
    return [_show(operator, function) for operator, function in view.steps]


def _show(operator: Operator, function: Function) -> _Show:
    return _filtered(function.call) if operator is Operator.FILTER else function.call


def format_of(store: Store, partition: int | None = None) -> EntryFormat:
    """Return the format of a store's entries.

    Args:
        store: a store of the graph.
        partition: of the task, for errors; None: any.
    """
    upgrade = None if store.upgrade is None else store.upgrade.call
    kind = EntryFormat
    if store.window is not None:
        own = store.window.kind in (WindowKind.SLIDING, WindowKind.SESSION, WindowKind.RECORDS)
        kind = SpansFormat if own else WindowFormat
    holder = of_store(store.name, store.changelog, partition)
    return kind(store.name, store.value, store.version, upgrade, holder)


def transaction_of(
    store: Store, partition: int, committed: CommittedStore, journal: Journal, time: StreamTime
) -> StoreTransaction:
    """Return the transaction of a store in one task.

    Args:
        store: a store of the graph.
        partition: of the task.
        committed: its content after the last commit.
        journal: the journal of the task.
        time: the stream time of the task; used where entries expire.
    """
    if store.ttl_ms is None:
        return open_transaction(format_of(store, partition), committed, journal)
    form = format_of(store, partition)
    return open_expiring(form, committed, journal, Lifetime(store.ttl_ms, time))


def bind(node: Aggregate, store: StoreTransaction, alarms: Alarms, limits: Limits) -> Any:
    """Return the update function or operator of an aggregate in one task.

    Args:
        node: an aggregate of the graph.
        store: the transaction of its store.
        alarms: the alarms of the task.
        limits: limits on the windows of a key.
    """
    window = node.store.window
    if window is not None:
        return _windowed(node, window, store, alarms, limits)
    fold = _fold_of(node)
    return regrouping(store, fold) if node.of_table else folding(store, fold)


def handler(
    node: Processor,
    stores: Mapping[str, StoreTransaction],
    alarms: Alarms,
    wall_timers: Timers | None,
    now: Callable[[], float],
    partition: int,
) -> Handler:
    """Return the operator of a `process` step in one task.

    Args:
        node: a `process` step of the graph.
        stores: the transactions of the task's stores, by name.
        alarms: the alarms of the task.
        wall_timers: its timers of the wall clock; None: it has none.
        now: returns the seconds since the epoch.
        partition: of the task.
    """
    timers = None if node.timers is None else Timers(stores[node.timers.name], alarms.closes)
    return Handler(
        None if node.function is None else node.function.call,
        None if node.on_timer is None else node.on_timer.call,
        {name: (stores[own.name], own.key) for name, own in node.stores.items()},
        timers,
        node.key,
        wall_timers,
        now,
        partition,
    )


def _windowed(
    node: Aggregate, window: Window, store: StoreTransaction, alarms: Alarms, limits: Limits
) -> WindowOperator:
    """Return the operator of a node with a window; see `bind`."""
    alarm = alarms.closes if node.emit is Emit.CLOSE else alarms.ends
    if window.kind is WindowKind.LAST:
        by = node.functions.get("by")
        return Deduplication(store, window, alarm, None if by is None else by.call)
    fold, updates = _fold_of(node), node.emit is Emit.EACH
    overlapping = (WindowKind.HOPPING, WindowKind.SLIDING, WindowKind.RECORDS)
    if window.kind in overlapping and fold is not folds.COUNT:
        fold = owning(fold)
    if window.kind in (WindowKind.TUMBLING, WindowKind.HOPPING):
        aligned = AlignedWindows if window.zone is None else ZoneWindows
        return aligned(store, window, alarm, fold, shows_updates=updates)
    form = store.form
    assert isinstance(form, SpansFormat), "format_of gives it to these kinds"
    if window.kind is WindowKind.RECORDS:
        return RecordWindows(store, window, alarm, fold, form)
    kind = SlidingWindows if window.kind is WindowKind.SLIDING else SessionWindows
    return kind(store, window, alarm, fold, form, limits, shows_updates=updates)


def _fold_of(node: Aggregate) -> Fold:
    """Return the fold that a node declares."""
    calls = {name: with_value(function) for name, function in node.functions.items()}
    match node.fold:
        case FoldKind.COUNT:
            return folds.COUNT
        case FoldKind.SUM:
            return folds.total(calls["of"])
        case FoldKind.MIN:
            return folds.smallest(calls["of"], of_texts=node.store.value.name == STRING.name)
        case FoldKind.MAX:
            return folds.greatest(calls["of"], of_texts=node.store.value.name == STRING.name)
        case FoldKind.REDUCE:
            return folds.reduction(calls["add"], calls.get("subtract"))
        case FoldKind.AGGREGATE:
            more = calls.get("merge"), calls.get("subtract")
            return folds.aggregation(calls["initial"], calls["add"], *more)
        case FoldKind.COGROUP:
            adds = [call for role, call in calls.items() if role.startswith("add ")]
            return folds.cogrouped(calls["initial"], adds, calls.get("merge"))
        case FoldKind.TOP | FoldKind.BOTTOM:
            assert node.bound is not None, "its declaration states n"
            smallest = node.fold is FoldKind.BOTTOM
            return ranked(str(node.fold), calls["by"], node.bound, smallest_first=smallest)
        case FoldKind.DISTINCT:
            assert node.bound is not None, "its declaration states a limit"
            return distinct(calls["by"], node.bound)
        case FoldKind.DEDUPLICATE:
            raise AssertionError("it remembers records and folds nothing")
