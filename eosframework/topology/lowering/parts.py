"""The connected sources and streams of a spec, which become sub-topologies.

The tables of a spec: rows by key that a join can look up.
A table is a source that is declared as one, the store of an aggregate without windows, a join of
two tables, or one of these followed by filters and maps of values only.

The names of what each step keeps: stated, or derived from structure (docs/concepts/names.md).
A derived name has the source, or the stream or `group_by` that the user named last, and the
operator. It has no part of a function's name and no number, so no edit of another line changes
its meaning; where two steps would have the same one, lint refuses both.

The records that replace earlier records: changes of tables, and results of windows.
A table emits its changes: a changed row is sent again under its own key. Windows with `emit: each`
or `commit` do the same, under their key and with the window in the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from eosframework.topology.lowering.foreign_keys import ANSWERS, ROWS, STORES, SUBSCRIPTIONS
from eosframework.topology.spec.keyed_spec import Window
from eosframework.topology.spec.loaded import KEY, KeptName, Kind, LoadedApp, Option, SpecPath
from eosframework.topology.spec.step_spec import GroupSpec, StepSpec
from eosframework.topology.spec.topology_spec import Policy, StreamSpec, TopologySpec, as_topic

VIEW_STEPS = frozenset({"filter", "map_values"})
"""Steps that turn a table into another table."""


def is_table(spec: TopologySpec, name: str) -> bool:
    """Return True if a source or stream is a table; a global table does not count."""
    return _is_table(spec, name, frozenset())


def tables_along(spec: TopologySpec, stream: StreamSpec) -> list[bool]:
    """Return for each position in a stream, before each step and at its end, if it is a table."""
    return _along(spec, stream, frozenset())


def is_global(spec: TopologySpec, name: str) -> bool:
    """Return True if `name` is a global table."""
    return name in spec.sources and spec.sources[name].global_


def _is_table(spec: TopologySpec, name: str, seen: frozenset[str]) -> bool:
    if name in spec.sources:
        return spec.sources[name].is_table and not spec.sources[name].global_
    if name not in spec.streams or name in seen:
        return False
    return _along(spec, spec.streams[name], seen | {name})[-1]


def _along(spec: TopologySpec, stream: StreamSpec, seen: frozenset[str]) -> list[bool]:
    state = len(stream.from_) == 1 and _is_table(spec, stream.from_[0], seen)
    states = [state]
    for step in stream.steps:
        state = _after(spec, step, state, seen)
        states.append(state)
    return states


def _after(spec: TopologySpec, step: StepSpec, before: bool, seen: frozenset[str]) -> bool:
    if step.operator in VIEW_STEPS:
        return before
    if step.join is not None:
        return before and not step.join.is_within and _is_table(spec, step.join.with_, seen)
    return step.aggregates is not None and step.aggregates.window is None


@dataclass(frozen=True, slots=True)
class Base:
    """The start of the derived names at one position in a stream.

    Args:
        is_stated: the user gave the name to a stream or a `group_by`.
        repartition: the same name, if a repartition topic has it without being asked.
    """

    name: str
    is_stated: bool
    repartition: str | None = None


class Naming:
    """Names what the steps keep, stream by stream, and lists the names."""

    def __init__(self, app: LoadedApp) -> None:
        self.kept: list[KeptName] = []
        self._app = app
        self._ends = {name: Base(name, is_stated=False) for name in app.spec.sources}
        topics: set[str] = set()
        for name, source in app.spec.sources.items():
            if source.is_table and not source.global_ and source.topic not in topics:
                topics.add(source.topic)
                path = ("sources", name, KEY)
                self._add(Kind.STORE, name, path, Option.NAME, is_stated=True)

    def start(self, name: str, stream: StreamSpec) -> Base:
        """Return the base at the start of a stream: its name, or its parent's base if unnamed."""
        if name in self._app.unnamed:
            return self._ends[stream.from_[0]]
        return Base(name, is_stated=True)

    def end(self, name: str, stream: StreamSpec, base: Base) -> None:
        """Record the base at the end of a stream, where unnamed ones begin."""
        self._ends[name] = base
        for branch in stream.branch_names:
            named = Base(branch, is_stated=True)
            self._ends[branch] = base if branch in self._app.unnamed else named

    def rows(self, name: str, stream: StreamSpec) -> str:
        """Name a stream's topic of rows: as the stream, or as its table if that is unnamed."""
        is_stated = name not in self._app.unnamed
        rows = name if is_stated else min(as_topic(table.table) for table in stream.later_tables)
        path: SpecPath = ("streams", name, "to", 0)
        self._add(Kind.ROWS, rows, path, Option.NAMED, is_stated=is_stated)
        return rows

    def end_of(self, name: str) -> Base:
        """Return the base at the end of a source, stream or branch."""
        return self._ends[name]

    def group(self, base: Base, path: SpecPath, group: GroupSpec, words: tuple[str, ...]) -> Base:
        """Name the repartition topic of a `group_by`; the names after it start with its own."""
        name, is_stated = group.name or base.name, group.name is not None
        self._add(Kind.REPARTITION, name, path, Option.NAME, is_stated=is_stated, words=words)
        return Base(name, is_stated or base.is_stated, None if is_stated else name)

    def repartition(self, base: Base, path: SpecPath, operator: str, words: tuple[str, ...]) -> str:
        """Name the repartition topic that an operator requires because the key is new."""
        self._add(
            Kind.REPARTITION,
            name := f"{base.name}.{operator}",
            path,
            Option.NAMED,
            is_stated=False,
            is_anchored=base.is_stated,
            base=base.repartition,
            suffix=f".{operator}",
            words=words,
        )
        return name

    def foreign(
        self, base: Base, path: SpecPath, stated: str | None, words: tuple[str, ...]
    ) -> str:
        """Name the topics and stores of a foreign-key join; return the start of their names."""
        name = stated or f"{base.name}.join"
        named = [(Kind.REPARTITION, part) for part in (ROWS, SUBSCRIPTIONS, ANSWERS)]
        for kind, part in (*named, *((Kind.STORE, part) for part in STORES)):
            self._add(
                kind,
                f"{name}.{part}",
                path,
                Option.STORE,
                is_stated=bool(stated),
                base=None if stated else base.repartition,
                suffix=f".{part}",
                words=words,
            )
        return name

    def step(self, base: Base, path: SpecPath, step: StepSpec, words: tuple[str, ...]) -> StepSpec:
        """Return a step that states the names of its stores."""
        operator = step.operator
        path = (*path, operator)
        if step.keyed is not None or (step.join is not None and step.join.is_within):
            stated = getattr(step, operator).store
            name = stated or f"{base.name}.{operator}"
            self._store(base, name, path, Option.STORE, is_stated=bool(stated), words=words)
            return step if stated else step.with_option("store", name)
        if (handler := step.handler) is not None:
            name = handler.name or base.name
            for given in (*handler.declared_stores, *handler.timed_stores):
                self._store(
                    base,
                    f"{name}.{given}",
                    path,
                    Option.NAME,
                    is_stated=bool(handler.name),
                    words=words,
                    suffix=f".{given}",
                )
            return step.with_option("name", name)
        return step

    def _store(
        self,
        base: Base,
        name: str,
        path: SpecPath,
        option: Option,
        *,
        is_stated: bool,
        words: tuple[str, ...],
        suffix: str = "",
    ) -> None:
        own = None if is_stated else base.repartition
        self._add(
            Kind.STORE,
            name,
            path,
            option,
            is_stated=is_stated,
            base=own,
            suffix=suffix,
            words=words,
        )

    def _add(
        self,
        kind: Kind,
        name: str,
        path: SpecPath,
        option: Option,
        *,
        is_stated: bool,
        is_anchored: bool = False,
        base: str | None = None,
        suffix: str = "",
        words: tuple[str, ...] = (),
    ) -> None:
        place = self._app.source_map.find(path)
        self.kept.append(
            KeptName(kind, name, path, place, option, is_stated, is_anchored, base, suffix, words)
        )


def words_of(steps: tuple[StepSpec, ...]) -> tuple[str, ...]:
    """Return the names of the functions of steps, for proposals; lambdas have none."""
    return tuple(_words(steps))


def _words(steps: tuple[StepSpec, ...]) -> Iterator[str]:
    for step in steps:
        for reference in step.functions.values():
            _, colon, name = reference.rpartition(":")
            if colon and "<" not in reference and " at " not in reference:
                yield "".join(c for c in name.rpartition(".")[2].lower() if c.isalnum() or c == "_")


@dataclass(frozen=True, slots=True)
class Part:
    """Sources and streams connected without a repartition topic, in declared order."""

    sources: tuple[str, ...]
    streams: tuple[str, ...]


def name_of_part(spec: TopologySpec, part: Part) -> str:
    """Return the `name` that a source of the part states, else the name of its first stream."""
    for source in part.sources:
        if name := spec.sources[source].name:
            return name
    return (part.streams or part.sources)[0]


def connected_parts(spec: TopologySpec) -> list[Part]:
    """Return the connected parts, ordered by their first declared stream.

    Two sources that read the same topic are connected: a consumer group commits one offset for each
    partition, so one task must own it. Both sides of a join are connected, because equal keys must
    be in one task, but not of one by a foreign key. Sources that nothing reads come last.
    """
    links = _Links()
    for name, source in spec.sources.items():
        if not source.global_:
            links.join(("source", name), ("topic", source.topic))
    carriers = branch_parents(spec)
    for name, stream in spec.streams.items():
        links.root(("stream", name))
        for parent in _read_by(spec, stream, with_foreign=False):
            if parent in spec.sources:
                links.join(("stream", name), ("source", parent))
            elif (carrier := carriers.get(parent, parent)) in spec.streams:
                links.join(("stream", name), ("stream", carrier))
    groups: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for name in spec.streams:
        groups.setdefault(links.root(("stream", name)), ([], []))[1].append(name)
    for name in spec.sources:
        groups.setdefault(links.root(("source", name)), ([], []))[0].append(name)
    return [Part(tuple(sources), tuple(streams)) for sources, streams in groups.values()]


def _read_by(spec: TopologySpec, stream: StreamSpec, *, with_foreign: bool = True) -> list[str]:
    """Return the parents and join sides of a stream; global tables do not count.

    Args:
        spec: of the application.
        stream: the stream.
        with_foreign: the tables count with which it is joined by a foreign key.
    """
    joins = [step.join for step in stream.steps if step.join is not None]
    sides = (join.with_ for join in joins if with_foreign or join.key is None)
    names = dict.fromkeys((*stream.from_, *sides))
    return [n for n in names if n not in spec.sources or not spec.sources[n].global_]


def branch_parents(spec: TopologySpec) -> dict[str, str]:
    """Return the stream that declares each branch."""
    return {branch: name for name, s in spec.streams.items() for branch in s.branch_names}


def origins(spec: TopologySpec, stream: str) -> list[str]:
    """Return the sources whose records reach a stream, in declared order."""
    carriers = branch_parents(spec)
    edges = {
        name: {carriers.get(parent, parent) for parent in declared.from_}
        for name, declared in spec.streams.items()
    }
    reached = _reachable(edges, [stream])
    return [source for source in spec.sources if source in reached]


def in_order(spec: TopologySpec) -> tuple[list[str], list[str]]:
    """Return the streams in topological order, and those in a cycle.

    References to streams that do not exist are ignored.
    """
    carriers = branch_parents(spec)
    waiting = {
        name: {carriers.get(p, p) for p in _read_by(spec, stream)} & set(spec.streams)
        for name, stream in spec.streams.items()
    }
    done: list[str] = []
    while ready := [name for name, needs in waiting.items() if needs <= set(done)]:
        done.extend(ready)
        for name in ready:
            del waiting[name]
    return done, _in_cycle(waiting)


def policies_in_force(spec: TopologySpec) -> dict[str, Policy | None]:
    """Return the effective `on_error` of each stream and branch; None: none is declared.

    A stream without its own inherits that of its parent, of several the first that has one.
    """
    found: dict[str, Policy | None] = {}
    for name in in_order(spec)[0]:
        stream = spec.streams[name]
        policy = stream.on_error
        for parent in stream.from_:
            policy = policy or found.get(parent)
        for member in (name, *stream.branch_names):
            found[member] = policy
    return found


def _in_cycle(waiting: dict[str, set[str]]) -> list[str]:
    """Return the streams that wait for themselves, not those that only wait for such a stream."""
    return [name for name in waiting if name in _reachable(waiting, waiting[name])]


def _reachable(edges: dict[str, set[str]], start: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(edges.get(name, ()))
    return seen


class _Links:
    """Union-find."""

    def __init__(self) -> None:
        self._parents: dict[tuple[str, str], tuple[str, str]] = {}

    def root(self, node: tuple[str, str]) -> tuple[str, str]:
        """Return the representative of all nodes joined with `node`."""
        while (parent := self._parents.setdefault(node, node)) != node:
            node = parent
        return node

    def join(self, one: tuple[str, str], other: tuple[str, str]) -> None:
        """Join the sets of both nodes."""
        self._parents[self.root(one)] = self.root(other)


_NEW_KEY = frozenset({"group_by", "select_key", "map"})
_OWN_RECORDS = frozenset({"flat_map", "process", "deduplicate"})
"""Steps that create records of their own from changes, and may omit or withdraw some."""

_SAME_VALUE = frozenset(
    {"filter", "peek", "group_by", "select_key", "filter_batch", "filter_async", "for_each_async"}
)


@dataclass(frozen=True, slots=True)
class Changes:
    """Records that may replace earlier records.

    Args:
        of: their origin, for messages.
        window: the windows whose results they are; None: they are rows by key.
        is_final: each window has one result, when it is closed.
        moved: the step that changed their key, for messages; None: they have their own key.
        is_shaped: a step changed the value, so that it no longer identifies the row or window.
        is_grouped: `group_by` of a table sends each change with the row before it.
    """

    of: str
    window: Window | None = None
    is_final: bool = False
    moved: str | None = None
    is_shaped: bool = False
    is_grouped: bool = False


@dataclass(frozen=True, slots=True)
class KnownChanges:
    """The changes among the records of a topology.

    Args:
        along: by stream, before each of its steps and at its end; None: they replace nothing.
        ends: by source, stream and branch.
    """

    along: Mapping[str, list[Changes | None]]
    ends: Mapping[str, Changes | None]


def known_changes(spec: TopologySpec) -> KnownChanges:
    """Return for each position in a topology without errors the changes among its records."""
    along: dict[str, list[Changes | None]] = {}
    ends: dict[str, Changes | None] = {
        name: Changes(f"table {name!r}") if is_table(spec, name) else None for name in spec.sources
    }
    for name in in_order(spec)[0]:
        stream = spec.streams[name]
        states = [_merged([ends.get(parent) for parent in stream.from_])]
        rows = tables_along(spec, stream)
        for i, step in enumerate(stream.steps):
            place = f"{name!r}, steps[{i}]"
            if step.group_by is not None and rows[i]:
                states.append(_grouped(states[-1], place))
                continue
            states.append(_changes_after(step, states[-1], place, is_table=rows[i + 1]))
        along[name] = states
        for member in (name, *stream.branch_names):
            ends[member] = states[-1]
    return KnownChanges(along, ends)


def _grouped(changes: Changes | None, place: str) -> Changes:
    of = f"the table before {place}" if changes is None else changes.of
    return Changes(of, is_grouped=True)


def _merged(parents: list[Changes | None]) -> Changes | None:
    found = next((changes for changes in parents if changes is not None), None)
    if found is None or all(changes == found for changes in parents):
        return found
    return replace(found, is_shaped=True)


def _changes_after(
    step: StepSpec, changes: Changes | None, place: str, *, is_table: bool
) -> Changes | None:
    """Return the changes among the records after a step."""
    if (keyed := step.aggregates) is not None:
        if keyed.window is None:
            return Changes(f"the table of {step.operator} in {place}")
        of = f"the windows of {step.operator} in {place}"
        is_final = keyed.emit == "close" or keyed.window.records is not None
        return Changes(of, keyed.window.window(), is_final=is_final)
    if step.join is not None and is_table:
        return Changes(f"the join of tables in {place}")
    if step.operator in _OWN_RECORDS or (step.join is not None and step.join.is_within):
        return None
    if changes is None or changes.is_grouped:
        return None
    if step.operator in _NEW_KEY:
        changes = replace(changes, moved=f"{step.operator} in {place}")
    several = step.operator == "flat_map_values"
    if several or (changes.window is not None and step.operator not in _SAME_VALUE):
        return replace(changes, is_shaped=True)
    return changes
