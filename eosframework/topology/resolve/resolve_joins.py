"""The resolution of tables, their groups, and joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eosframework.serialization.serdes import BYTES, CHECKED_BYTES, Serde, internal_serde_name
from eosframework.topology.graph.graph import (
    Aggregate,
    Answers,
    ForeignJoin,
    Function,
    GlobalTable,
    JoinKind,
    JoinSide,
    Lookup,
    Node,
    OnError,
    Order,
    Processor,
    Sink,
    Step,
    Store,
    StreamJoin,
    Subscribe,
    Table,
    TableGroup,
    TableJoin,
    View,
)
from eosframework.topology.lowering.foreign_keys import STORES, ForeignPiece, ForeignRole
from eosframework.topology.lowering.lowering import RecordFacts
from eosframework.topology.lowering.parts import VIEW_STEPS
from eosframework.topology.spec.join_spec import JoinSpec
from eosframework.topology.spec.keyed_spec import milliseconds
from eosframework.topology.spec.loaded import LoadedApp
from eosframework.topology.spec.step_spec import GroupSpec
from eosframework.topology.spec.topology_spec import SourceSpec

Ends = list[list[Node]]
"""Lists of children to which the next node is added."""


class JoinResolver:
    """Creates tables and joins, and knows which names are tables.

    Args:
        app: with the streams cut.
        facts: known facts about the records at the end of each source and stream.
        ends: of each source, stream and branch created so far.
        make_store: creates a store and adds it to `stores`.
        function: finds a function by its reference.
    """

    def __init__(
        self,
        app: LoadedApp,
        facts: Mapping[str, RecordFacts],
        ends: Mapping[str, Ends],
        make_store: Callable[..., Store],
        function: Callable[[str], Function],
    ) -> None:
        self.views: dict[str, View] = {}
        self.global_tables: dict[str, GlobalTable] = {}
        self._app = app
        self._facts = facts
        self._ends = ends
        self._make_store = make_store
        self._function = function
        self._tables: dict[str, Table] = {}
        """By topic."""
        self._shown: list[tuple[Step, Ends]] = []

    def global_table(self, name: str, declared: SourceSpec) -> None:
        """Create a global table."""
        key = self._app.serde_at(declared.key, declared.topic, is_key=True)
        value = self._app.serde_at(declared.value, declared.topic)
        self.global_tables[name] = GlobalTable(name, declared.topic, key, value)

    def table(self, name: str, declared: SourceSpec, ends: Ends, on_error: OnError) -> Ends:
        """Create the table of a source and return the ends of its changes."""
        table = self._tables.get(declared.topic)
        if table is None:
            table = self._new_table(name, declared, on_error)
            self._tables[declared.topic] = table
            for end in ends:
                end.append(table)
        self.views[name] = View(name, table, (), self._app.serde(declared.key))
        return [table.children]

    def after(
        self, view: View | None, step: Step | Aggregate | Processor, ends: Ends
    ) -> View | None:
        """Return the view of the table after a step, if it is one."""
        if isinstance(step, Aggregate):
            kept = step.store.window is None
            return View(step.stream, step, (), step.store.key) if kept else None
        if view is None or isinstance(step, Processor) or step.operator not in VIEW_STEPS:
            return None
        self._shown.append((step, ends))
        return view.then(step.stream, step.operator, step.function)

    def prune(self) -> None:
        """Remove the steps of tables that are only looked up: they run with each lookup."""
        for step, ends in reversed(self._shown):
            if not step.children:
                for end in ends:
                    end.remove(step)

    def join(
        self,
        stream: str,
        place: str,
        declared: JoinSpec,
        facts: RecordFacts,
        view: View | None,
        ends: Ends,
        on_error: OnError,
    ) -> tuple[Ends, View | None]:
        """Create a join and append it to `ends`.

        Args:
            stream: that it is declared in.
            place: of the step in it, for messages.
            declared: the declaration.
            facts: facts about the records before it.
            view: the table whose changes these records are, if any.
            ends: of these records.
            on_error: of the stream.

        Returns:
            The ends of its results, and the table whose changes they are, if any.
        """
        name = f"{stream}.{place} join({declared.with_}, {declared.by})"
        function = self._function(declared.by)
        kind = JoinKind(declared.kind)
        other = self.views.get(declared.with_)
        if declared.is_within:
            join = self._stream_join(stream, name, declared, facts, function, on_error)
            append(JoinSide(join, is_left=True), ends)
            append(JoinSide(join, is_left=False), self._ends[declared.with_])
            return [join.children], None
        if view is not None and other is not None:
            table_join = TableJoin(name, stream, view, other, kind, function, on_error)
            append(JoinSide(table_join, is_left=True), _changes(view))
            append(JoinSide(table_join, is_left=False), _changes(other))
            return [table_join.children], View(stream, table_join, (), view.key)
        if other is None:
            rows = self.global_tables[declared.with_]
            other = View(rows.name, rows, (), rows.key)
        of = None if declared.key is None else self._function(declared.key)
        order = _order_of(declared, other)
        lookup = Lookup(name, stream, other, kind, function, of, on_error, order)
        append(lookup, ends)
        return [lookup.children], None

    def foreign(
        self,
        name: str,
        piece: ForeignPiece,
        ends: Ends,
        view: View | None,
        sinks: list[Sink],
        on_error: OnError,
    ) -> Ends:
        """Create a step of a foreign-key join, and return the ends of its results.

        Args:
            name: of the stream that is this step.
            piece: the step.
            ends: of the stream's records.
            view: the left table, for the step that asks.
            sinks: of the stream: rows and subscriptions, or answers.
            on_error: of the stream.
        """
        join, serde = piece.join, self._app.serde
        left, right = (_checked(serde(name)) for name in join.rows)
        function = self._function(join.declared.by)
        subscribed, subscribers, joined = (f"{join.name}.{part}" for part in STORES)
        match piece.role:
            case ForeignRole.ASK:
                assert view is not None, "the left side is a table"
                subscribe = Subscribe(
                    f"{join.label}, foreign keys",
                    join.stream,
                    view,
                    self._function(f"{join.declared.key}"),
                    join.declared.with_,
                    self._make_store(name, subscribed, serde(join.key), BYTES),
                    serde(join.key),
                    _checked(serde(join.foreign)),
                    left,
                    on_error,
                    [sinks[0]],
                    [sinks[1]],
                )
                append(subscribe, ends)
                return []
            case ForeignRole.ANSWER:
                rows = self.views[join.declared.with_]
                store = self._make_store(name, subscribers, serde(join.foreign), BYTES)
                label = f"{join.label}, answers"
                answers = Answers(
                    label, join.stream, rows, store, serde(join.key), right, on_error, [*sinks]
                )
                [subscriptions, *_] = self._app.spec.streams[name].from_
                append(JoinSide(answers, is_left=True), self._ends[subscriptions])
                append(JoinSide(answers, is_left=False), _changes(rows))
                return []
            case ForeignRole.JOIN:
                foreign = ForeignJoin(
                    join.label,
                    join.stream,
                    JoinKind(join.declared.kind),
                    function,
                    self._make_store(name, joined, serde(join.key), BYTES),
                    serde(join.key),
                    (left, right),
                    on_error,
                )
                for parent in self._app.spec.streams[name].from_:
                    is_left = parent == self._app.spec.streams[name].from_[0]
                    append(JoinSide(foreign, is_left=is_left), self._ends[parent])
                self.views[name] = View(join.stream, foreign, (), serde(join.key))
                return [foreign.children]

    def group(
        self,
        stream: str,
        index: int,
        declared: GroupSpec,
        topic: str,
        view: View,
        on_error: OnError,
    ) -> Ends:
        """Create the groups of a table, and return the ends of their changes.

        Args:
            stream: that they are declared in.
            index: of the step in it.
            declared: the declaration, with the serde of the keys.
            topic: the repartition topic.
            view: the table.
            on_error: of the stream.
        """
        name = f"{stream}.steps[{index}] group_by({declared.by})"
        function, key = self._function(declared.by), self._app.serde(f"{declared.key}")
        group = TableGroup(name, stream, view, function, key, topic, on_error)
        append(group, _changes(view))
        return [group.children]

    def _new_table(self, name: str, declared: SourceSpec, on_error: OnError) -> Table:
        row = self._app.serde(internal_serde_name(declared.value))
        history_ms = None if declared.history is None else milliseconds(declared.history)
        past = history_ms is not None
        key = BYTES if past else self._app.serde(declared.key)
        store = self._make_store(name, name, key, BYTES if past else row, ttl=declared.ttl)
        return Table(f"{name}: table", name, store, row, history_ms, on_error)

    def _stream_join(
        self,
        stream: str,
        name: str,
        declared: JoinSpec,
        facts: RecordFacts,
        function: Function,
        on_error: OnError,
    ) -> StreamJoin:
        before, after = declared.interval
        return StreamJoin(
            name=name,
            stream=stream,
            kind=JoinKind(declared.kind),
            function=function,
            store=self._make_store(stream, f"{declared.store}", BYTES, BYTES),
            key=self._app.serde(facts.written_key),
            values=(
                self._waiting(facts, declared.value),
                self._waiting(self._facts[declared.with_], declared.with_value),
            ),
            before_ms=milliseconds(before),
            after_ms=milliseconds(after),
            grace_ms=milliseconds(declared.grace),
            late=declared.late,
            on_error=on_error,
        )

    def _waiting(self, facts: RecordFacts, stated: str | None) -> Serde:
        """Return the serde of values in the store; bytes that a step made are checked."""
        serde = self._app.serde(stated or facts.kept_value)
        return CHECKED_BYTES if serde is BYTES and facts.new_value else serde


def _checked(serde: Serde) -> Serde:
    """Return a serde that refuses other values where it takes bytes as they are."""
    return CHECKED_BYTES if serde is BYTES else serde


def _order_of(declared: JoinSpec, rows: View) -> Order:
    """Return the order in which a lookup gets its records, and its table the rows."""
    if declared.order is not None:
        return Order(declared.order)
    has_past = isinstance(rows.origin, Table) and rows.origin.history_ms is not None
    return Order.TIME if has_past else Order.ARRIVAL


def _changes(view: View) -> Ends:
    """Return the ends of the changes of a view's table."""
    assert not isinstance(view.origin, GlobalTable), "global tables are only looked up"
    return [view.origin.children]


def append(node: Node, ends: Ends) -> None:
    """Make `node` a child of the nodes that end at `ends`, once."""
    for end in ends:
        if node not in end:
            end.append(node)
