"""The resolve pass over a whole topology."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from eosframework.serialization.serdes import BYTES, CHECKED_BYTES, JSON, KEPT_JSON, STRING, Serde
from eosframework.topology.graph.graph import (
    Aggregate,
    Calls,
    Emit,
    Every,
    FoldKind,
    Function,
    Graph,
    Node,
    Once,
    OnError,
    Operator,
    Policy,
    Processor,
    Repartition,
    Sink,
    SinkTable,
    Source,
    Step,
    Store,
    SubTopology,
    TableMode,
    TableOutput,
    TableSink,
    WallClock,
)
from eosframework.topology.graph.node_kinds import tagged
from eosframework.topology.graph.patterns import divided, not_read, refuse_timed
from eosframework.topology.graph.timed_topics import (
    refuse_circles,
    with_reordering,
    with_time_stores,
)
from eosframework.topology.graph.walk import retry_topics_of, with_retry_sources
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.lint.lint_steps import declared_columns
from eosframework.topology.lowering.lowering import (
    Lowered,
    RecordFacts,
    aggregate_serde,
    lower,
    rows_serdes,
)
from eosframework.topology.lowering.parts import Part, connected_parts, in_order, name_of_part
from eosframework.topology.resolve.resolve_joins import JoinResolver, append
from eosframework.topology.spec.keyed_spec import (
    DeduplicateSpec,
    KeyedSpec,
    StoredSpec,
    Window,
    milliseconds,
    order_of,
)
from eosframework.topology.spec.loaded import Kind, LoadedApp, Severity, refusal
from eosframework.topology.spec.once_spec import OnceSpec
from eosframework.topology.spec.step_spec import ProcessSpec, StepSpec
from eosframework.topology.spec.topology_spec import (
    DeadLetter,
    SinkSpec,
    StreamSpec,
    TableSpec,
    TopologySpec,
)
from eosframework.txnid import changelog_topic, effects_topic, repartition_topic


def table_sinks(
    app: LoadedApp,
    policies: Mapping[str, OnError],
    serdes_of_rows: Mapping[str, tuple[Serde, Serde]],
    own: Mapping[str, str],
) -> tuple[TableSink, ...]:
    """Return the table sinks of a topology, one for each topic.

    Args:
        app: the topology; it has no errors.
        policies: by stream.
        serdes_of_rows: of key and value, by the streams that have a topic of rows.
        own: these topics, by stream.
    """
    spec = app.spec
    writers = {
        stream: name_of_part(spec, part)
        for part in connected_parts(spec)
        for stream in part.streams
    }
    found: dict[str, TableSink] = {}
    for name, stream in spec.streams.items():
        if not stream.later_tables:
            continue
        if name in own:
            key, value = serdes_of_rows[name]
            topic, policy, writer = own[name], Policy.FAIL, writers[name]
        else:
            source = spec.sources[stream.from_[0]]
            key = app.serde_at(source.key, source.topic, is_key=True)
            value = app.serde_at(source.value, source.topic)
            topic, policy, writer = source.topic, _decoding(source.on_error, policies[name]), None
        tables = tuple(_tables(app, name, stream.later_tables, value, policies[name].policy))
        if (twin := found.get(topic)) is not None:
            tables, name, policy = (*twin.tables, *tables), twin.name, twin.on_error
        found[topic] = TableSink(name, topic, key, value, tables, policy, writer)
    return tuple(found.values())


def _tables(
    app: LoadedApp, name: str, tables: Sequence[TableSpec], value: Serde, policy: Policy
) -> Iterator[SinkTable]:
    for table in tables:
        row = None if table.row is None else Function(table.row, app.find(table.row))
        model = None if row is not None else value.model
        yield SinkTable(
            name=f"{name}.to({table.label})",
            table=table.table,
            mode=TableMode(table.mode),
            keys=table.keys,
            row=row,
            model=model if table.model is None else app.find_model(table.model),
            on_error=policy if table.on_error is None else Policy(table.on_error),
        )


def _decoding(declared: Any, inherited: OnError) -> Policy:
    if declared is None:
        return inherited.policy
    return Policy(declared) if isinstance(declared, str) else Policy.DEAD_LETTER


Nodes = list[Node]


def resolve(topology: LoadedApp | TopologySpec) -> Graph:
    """Return the graph of a topology.

    Raises:
        TopologyError: lists every error that `lint` finds, each with its place.
    """
    app = topology if isinstance(topology, LoadedApp) else LoadedApp(topology)
    findings = lint(app)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise refusal(findings)
    return _Resolver(lower(app)).graph()


class _Resolver:
    """Creates the nodes of every stream and appends them to the nodes that it reads."""

    def __init__(self, lowered: Lowered) -> None:
        self._app = app = replace(lowered.app, codecs=[])
        self._spec = app.spec
        self._facts = lowered.facts
        self._types = lowered.types
        self._repartitions = lowered.repartitions
        self._sources: dict[str, Source] = {}
        self._ends: dict[str, list[Nodes]] = {}
        """By source, stream or branch: the lists of children to which its readers are added."""
        self._policies: dict[str, OnError] = {}
        self._stores: dict[str, list[Store]] = {}
        """By source or stream: its stores."""
        self._joins = JoinResolver(app, self._facts, self._ends, self._store, self._function)
        self._foreign = lowered.foreign
        self._rows_topics = lowered.rows
        named = {kind: {k.name: k for k in lowered.kept if k.kind is kind} for kind in Kind}
        self._store_names = named[Kind.STORE]
        self._repartition_names = {
            repartition_topic(app.spec.application, name): kept
            for name, kept in named[Kind.REPARTITION].items()
        }
        self._rows: dict[str, Sink] = {}
        """By stream: the sink of its topic of rows."""
        self._together: dict[str, TableSink] = {}
        """By stream: the tables that are decided with its outputs."""
        self._patterns = {
            source.topic: source.pattern for source in self._spec.sources.values() if source.pattern
        }

    def graph(self) -> Graph:
        """Return the whole graph."""
        ordered = in_order(self._spec)[0]
        self._set_policies(ordered)
        for name in self._spec.sources:
            self._add_source(name)
        for name in ordered:
            self._add_stream(name, self._spec.streams[name])
        self._joins.prune()
        connected = [part for part in connected_parts(self._spec) if part.streams]
        whole = [self._sub_topology(part) for part in connected]
        patterns, whole = divided(whole, self._patterns)
        parts = [with_retry_sources(self._spec.application, part) for part in whole if part.sources]
        writers = {s: name_of_part(self._spec, part) for part in connected for s in part.streams}
        graph = Graph(
            self._spec.application,
            tuple(parts),
            table_sinks(
                self._app,
                self._policies,
                {name: (sink.key, sink.value) for name, sink in self._rows.items()},
                self._rows_topics,
            ),
            (
                *(
                    Repartition(
                        topic,
                        writers[stream],
                        partitions,
                        declared=self._repartition_names[topic],
                        follows=stream in self._foreign and self._foreign[stream].follows == topic,
                    )
                    for topic, (stream, partitions) in self._repartitions.items()
                ),
                *(own for part in parts for own in retry_topics_of(part)),
            ),
            tuple(self._joins.global_tables.values()),
            tuple(self._app.codecs),
            patterns,
        )
        refuse_timed(graph)
        refuse_circles(graph)
        return with_reordering(with_time_stores(graph))

    def _set_policies(self, ordered: list[str]) -> None:
        """Set the policy of each stream and branch; every stream of a lowered spec states one."""
        for name in ordered:
            stream = self._spec.streams[name]
            policy = _on_error(stream.on_error) or OnError()
            for member in (name, *stream.branch_names):
                self._policies[member] = policy

    def _add_source(self, name: str) -> None:
        declared = self._spec.sources[name]
        if declared.global_:
            self._joins.global_table(name, declared)
            return
        twin = next((s for s in self._sources.values() if s.topic == declared.topic), None)
        if twin is None:
            readers = (n for n, s in self._spec.streams.items() if name in s.from_)
            inherited = (self._policies[reader] for reader in readers)
            timestamp = declared.timestamp
            twin = Source(
                name=name,
                topic=declared.topic,
                key=self._app.serde_at(declared.key, declared.topic, is_key=True),
                value=self._app.serde_at(declared.value, declared.topic),
                timestamp=None if timestamp is None else self._function(timestamp),
                on_error=_on_error(declared.on_error) or next(inherited, OnError()),
            )
        self._sources[name] = twin
        self._ends[name] = [twin.children]
        if declared.is_table:
            ends = self._joins.table(name, declared, self._ends[name], twin.on_error)
            self._ends[name] = ends

    def _add_stream(self, name: str, stream: StreamSpec) -> None:
        ends = [end for parent in stream.from_ for end in self._ends[parent]]
        facts = self._facts[stream.from_[0]]
        view = self._joins.views.get(stream.from_[0]) if len(stream.from_) == 1 else None
        if stream.steps and stream.steps[0].cogroup is not None:
            ends = self._tagged(name, stream)
        policy = self._policies[name]
        for i, declared in enumerate(stream.steps):
            before, facts = facts, facts.after(declared, self._types)
            if declared.join is not None:
                ends, view = self._joins.join(
                    name, f"steps[{i}]", declared.join, before, view, ends, policy
                )
                continue
            if declared.group_by is not None:
                assert view is not None, "only the group_by of a table is a step of its own"
                topic = stream.to[0].label
                ends = self._joins.group(name, i, declared.group_by, topic, view, policy)
                view = None
                continue
            step = self._step(name, i, declared, facts, before.is_grouped)
            append(step, ends)
            view = self._joins.after(view, step, ends)
            ends = [step.children]
        if (piece := self._foreign.get(name)) is not None:
            sinks = [self._sink(name, declared, facts) for _, declared in stream.sinks]
            self._ends[name] = self._joins.foreign(name, piece, ends, view, sinks, policy)
            return
        self._ends[name] = ends
        if view is not None:
            self._joins.views[name] = view
        facts = self._facts.get(name, facts)
        for _, declared in stream.sinks:
            append(self._sink(name, declared, facts), ends)
        if name in self._rows_topics:
            self._rows[name] = self._sink(
                name, self._through(self._rows_topics[name], name, facts), facts
            )
            append(self._rows[name], ends)
        if stream.together_tables:
            append(self._table_output(name, stream, facts), ends)
        if stream.branch:
            append(self._branch(name, stream), ends)

    def _tagged(self, name: str, stream: StreamSpec) -> list[Nodes]:
        """Return the ends of the inputs of a `cogroup`, whose values say which input they are of.

        Their types and serdes are their own up to here, and no topic follows before the aggregate.
        """
        ends: list[Nodes] = []
        for number, parent in enumerate(stream.from_):
            step = Step(
                name=f"{name}.steps[0] input {number + 1}",
                stream=name,
                operator=Operator.MAP_VALUES,
                function=Function(f"input {number + 1} of cogroup", partial(tagged, number)),
                on_error=self._policies[name],
            )
            append(step, self._ends[parent])
            ends.append(step.children)
        return ends

    def _table_output(self, name: str, stream: StreamSpec, facts: RecordFacts) -> TableOutput:
        """Return the end of a stream at the tables that are decided with its outputs.

        A row that the database refuses is put aside until all of a transaction are known; then
        `on_error` of their records applies.
        """
        policy = self._policies[name]
        rows = self._sink(name, self._through(name, name, facts), facts)
        tables = _tables(self._app, name, stream.together_tables, rows.value, Policy.DEAD_LETTER)
        label = ", ".join(table.label for table in stream.together_tables)
        others = {sink.topic for sink in self._together.values()}
        among_outputs = f"{label} of {name}" if label in others else label
        sink = TableSink(
            name, among_outputs, rows.key, rows.value, tuple(tables), Policy.DEAD_LETTER
        )
        self._together[name] = sink
        return TableOutput(f"{name}.to({label})", name, sink, policy)

    def _through(self, topic: str, name: str, facts: RecordFacts) -> SinkSpec:
        key, value = rows_serdes(self._spec, name, facts)
        return SinkSpec(topic=topic, key=key, value=value)

    def _step(
        self, stream: str, index: int, declared: StepSpec, facts: RecordFacts, of_table: bool
    ) -> Step | Aggregate | Processor:
        name = f"{stream}.steps[{index}] {declared.operator}({declared.function})"
        if declared.handler is not None:
            return self._processor(stream, name, declared.handler, facts)
        if declared.keyed is not None:
            return self._keyed(stream, name, declared, declared.keyed, facts, of_table)
        return Step(
            name=name,
            stream=stream,
            operator=Operator(declared.operator),
            function=self._function(declared.function),
            on_error=self._policies[stream],
            columns=declared_columns(self._app, declared),
            calls=self._calls(stream, declared),
        )

    def _calls(self, stream: str, declared: StepSpec) -> Calls | None:
        if (given := declared.calls) is None:
            return None
        opened = {name: self._function(opener) for name, opener in given.resources.items()}
        once = None if declared.call_once is None else self._once(stream, declared.call_once)
        return Calls(given.limits, opened, given.options, once)

    def _once(self, stream: str, declared: OnceSpec) -> Once:
        return Once(
            f"{stream}.{declared.label}",
            declared.on_doubt,
            declared.timing,
            None if declared.look_up is None else self._function(declared.look_up),
            None if declared.key is None else self._function(declared.key),
        )

    def _processor(
        self, stream: str, name: str, declared: ProcessSpec, facts: RecordFacts
    ) -> Processor:
        key = self._app.serde(facts.written_key)
        stores = {
            given: self._store(
                stream,
                f"{declared.name}.{given}",
                key if kept.key is None else self._app.serde(kept.key),
                self._app.serde(kept.value),
                version=kept.version,
                upgrade=kept.upgrade,
                ttl=kept.ttl,
            )
            for given, kept in declared.declared_stores.items()
        }
        timers = None
        if declared.on_timer is not None:
            timers = self._store(stream, f"{declared.name}.timers", key, JSON)
        return Processor(
            name=name,
            stream=stream,
            function=None if declared.call is None else self._function(declared.call),
            on_timer=None if declared.on_timer is None else self._function(declared.on_timer),
            stores=stores,
            timers=timers,
            key=key,
            on_error=self._policies[stream],
            order=declared.records_order,
            wall_clock=tuple(self._wall_clock(stream, name, declared, key)),
        )

    def _wall_clock(
        self, stream: str, name: str, declared: ProcessSpec, key: Serde
    ) -> Iterator[WallClock]:
        """Yield the functions of a `process` step that the wall clock calls."""
        policy = self._policies[stream]
        if declared.on_every is not None and declared.every is not None:
            yield WallClock(
                f"{name} on_every",
                stream,
                self._function(declared.on_every),
                self._store(stream, f"{declared.name}.every", STRING, JSON),
                Every(milliseconds(declared.every), declared.per == "application"),
                policy,
            )
        if declared.on_wall_timer is not None:
            store = self._store(stream, f"{declared.name}.wall_timers", key, JSON)
            function = self._function(declared.on_wall_timer)
            yield WallClock(f"{name} on_wall_timer", stream, function, store, None, policy)

    def _store(
        self,
        owner: str,
        name: str,
        key: Serde,
        value: Serde,
        *,
        version: int = 1,
        upgrade: str | None = None,
        ttl: timedelta | None = None,
        window: Window | None = None,
    ) -> Store:
        """Create a store of a source or stream."""
        store = Store(
            name=name,
            changelog=changelog_topic(self._spec.application, name),
            key=key,
            value=KEPT_JSON if value is JSON else value,
            version=version,
            upgrade=None if upgrade is None else self._function(upgrade),
            window=window,
            ttl_ms=None if ttl is None else milliseconds(ttl),
            declared=self._store_names[name],
        )
        self._stores.setdefault(owner, []).append(store)
        return store

    def _keyed(
        self,
        stream: str,
        name: str,
        step: StepSpec,
        declared: StoredSpec,
        facts: RecordFacts,
        of_table: bool,
    ) -> Aggregate:
        folded, window = step.aggregates, _window(declared)
        return Aggregate(
            name=name,
            stream=stream,
            fold=FoldKind(step.operator),
            functions={name: self._function(f) for name, f in declared.functions.items()},
            store=self._store(
                stream,
                f"{declared.store}",
                self._app.serde(facts.written_key),
                self._app.serde(
                    aggregate_serde(step, folded, self._types) if folded else BYTES.name
                ),
                version=folded.version if folded else 1,
                upgrade=folded.upgrade if folded else None,
                ttl=folded.ttl if folded else None,
                window=window,
            ),
            emit=Emit(folded.emit) if folded else Emit.EACH,
            on_error=self._policies[stream],
            order=order_of(declared, window),
            bound=declared.bound,
            of_table=of_table,
        )

    def _branch(self, stream: str, declared: StreamSpec) -> Step:
        predicates: list[Function | None] = [
            self._function(reference) for reference in declared.predicates.values()
        ]
        if len(declared.branch_names) > len(predicates):
            predicates.append(None)
        branches: list[tuple[Function | None, Nodes]] = []
        for name, predicate in zip(declared.branch_names, predicates, strict=True):
            nodes: Nodes = []
            branches.append((predicate, nodes))
            self._ends[name] = [nodes]
        label = f"branch({', '.join(declared.branch_names)})"
        return Step(
            name=f"{stream}.{label}",
            stream=stream,
            operator=Operator.BRANCH,
            function=Function(label, _chooser(predicates)),
            on_error=self._policies[stream],
            branches=tuple(branches),
        )

    def _sink(self, stream: str, declared: SinkSpec, facts: RecordFacts) -> Sink:
        topic: str | Function
        if declared.topic is not None:
            topic = declared.topic
        else:
            chooser = self._function(f"{declared.topic_from}")
            topic = _restricted(chooser, declared.topics) if declared.topics else chooser
            topic = not_read(topic, [*self._patterns.values()]) if self._patterns else topic
        partitions, settings = declared.creation
        return Sink(
            name=f"{stream}.to({declared.label})",
            topic=topic,
            key=self._sink_serde(declared, facts.written_key, facts.new_key, is_key=True),
            value=self._sink_serde(declared, facts.written_value, facts.new_value),
            on_error=self._policies[stream],
            partitions=partitions,
            settings=settings,
        )

    def _sink_serde(
        self, declared: SinkSpec, known: str, changed: bool, *, is_key: bool = False
    ) -> Serde:
        """Return the serde of a sink; bytes that come unchanged from the source need no check."""
        stated = declared.key if is_key else declared.value
        name = stated or known
        serde = self._app.serde_at(name, declared.topic, is_key=is_key, written=True)
        return CHECKED_BYTES if serde is BYTES and (changed or stated) else serde

    def _function(self, reference: str) -> Function:
        return Function(reference, self._app.find(reference))

    def _sub_topology(self, part: Part) -> SubTopology:
        sources = tuple(
            {id(s): s for n in part.sources if (s := self._sources[n]).children}.values()
        )
        topics: set[str] = {s.on_error.topic for s in sources if s.on_error.topic is not None}
        dynamic: list[str] = []
        for name in part.streams:
            stream = self._spec.streams[name]
            policy = self._policies[name]
            own = {self._rows_topics[name]} if name in self._rows_topics else set[str]()
            topics.update(own)
            ends = stream.steps or stream.sinks or stream.branch or stream.together_tables or own
            ends = ends or name in self._foreign
            if policy.topic is not None and ends:
                topics.add(policy.topic)
            for store in self._stores.get(name, ()):
                if store.window is not None and store.window.late is not None:
                    topics.add(store.window.late)
            topics.update(step.join.late for step in stream.steps if step.join and step.join.late)
            for _, sink in stream.sinks:
                topics.update((sink.topic,) if sink.topic else sink.topics)
                if sink.topic_from is not None:
                    dynamic.append(f"{name}.to({sink.label})")
        name = name_of_part(self._spec, part)
        steps = (step for stream in part.streams for step in self._spec.streams[stream].steps)
        has_effects = any(step.call_once is not None for step in steps)
        return SubTopology(
            name,
            sources,
            tuple(sorted(topics)),
            tuple(dynamic),
            tuple(
                store
                for name in (*part.sources, *part.streams)
                for store in self._stores.get(name, ())
            ),
            together=tuple(self._together[n] for n in part.streams if n in self._together),
            effects_topic=effects_topic(self._spec.application, name) if has_effects else None,
        )


def _window(declared: StoredSpec) -> Window | None:
    match declared:
        case DeduplicateSpec():
            return declared.window()
        case KeyedSpec() if declared.window is not None:
            return declared.window.window()
        case _:
            return None


def _on_error(policy: str | DeadLetter | None) -> OnError | None:
    if policy is None:
        return None
    if isinstance(policy, DeadLetter):
        delays = tuple(milliseconds(delay) for delay in policy.retry)
        replay = policy.replay or bool(delays)
        return OnError(Policy.DEAD_LETTER, policy.dead_letter, delays, replay)
    return OnError(Policy(policy))


def _chooser(predicates: list[Function | None]) -> Callable[[Any], int | None]:
    """Return a function that gives the index of the first branch that takes a value, or None."""
    calls = [None if predicate is None else predicate.call for predicate in predicates]

    def choose(value: Any) -> int | None:
        for index, call in enumerate(calls):
            if call is None or call(value):
                return index
        return None

    return choose


def _restricted(chooser: Function, topics: tuple[str, ...]) -> Function:
    """Return a chooser that refuses topics that the sink does not declare."""
    allowed, call = frozenset(topics), chooser.call

    def choose(record: Any) -> str:
        topic = call(record)
        if topic not in allowed:
            raise ValueError(
                f"{chooser.name} chose topic {topic!r}; the sink declares {', '.join(topics)}"
            )
        return topic

    return Function(chooser.name, choose)
