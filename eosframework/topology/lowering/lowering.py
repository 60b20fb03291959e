"""The lowering of `group_by`, aggregates and joins: streams are cut where records change tasks.

A task processes the keys of its partitions, and a new key may belong to another partition. So a
stream that groups by a new key is cut in two: the head writes to a repartition topic, partitioned
by the new key, and the tail reads it. Both are ordinary streams of an ordinary spec; later passes
do not see that there was a cut.

    per_carrier: [filter, group_by, count, map_values]
    per_carrier.by_key: [filter, select_key]  →  APP-per_carrier-repartition
    per_carrier: from per_carrier.keyed, which reads that topic: [count, map_values]

The head of a table keeps its `group_by`, which sends each change with the row before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from eosframework.errors import TopologyError
from eosframework.records import Record
from eosframework.serialization.annotations import (
    UNKNOWN,
    element_of,
    is_known,
    pair_of,
    returned_type,
    stripped,
    type_name,
)
from eosframework.serialization.changes import change_name
from eosframework.serialization.serdes import (
    Serde,
    internal_serde_name,
    serde_of,
    type_of,
    window_name,
)
from eosframework.topology.lowering.foreign_keys import ForeignKeys, ForeignPiece, cut
from eosframework.topology.lowering.parts import (
    Base,
    Naming,
    branch_parents,
    connected_parts,
    in_order,
    is_global,
    is_table,
    name_of_part,
    policies_in_force,
    tables_along,
    words_of,
)
from eosframework.topology.spec.keyed_spec import KeyedSpec
from eosframework.topology.spec.loaded import KeptName, LoadedApp, SpecPath
from eosframework.topology.spec.step_spec import GroupSpec, StepSpec
from eosframework.topology.spec.topology_spec import SinkSpec, SourceSpec, StreamSpec, TopologySpec
from eosframework.txnid import repartition_topic, rows_topic


@dataclass(frozen=True, slots=True)
class Made:
    """Keys or values of which the annotation of a function says the type.

    Args:
        serde: its name; None: there is none, for the reason in `problem`.
        type: as annotated, without None.
        function: reference to the function.
        problem: why it has no serde.
    """

    serde: str | None
    type: Any
    function: str
    problem: str = ""

    def contradicts(self, declared: Any) -> bool:
        """Return whether values of the type cannot be of the type of a declared serde."""
        if declared is None or not isinstance(declared, type) or not isinstance(self.type, type):
            return False
        loses_fields = hasattr(declared, "model_fields") and self.type is not declared
        is_number = declared is float and self.type is int
        return loses_fields or not (is_number or issubclass(self.type, declared))

    def __str__(self) -> str:
        return f"{self.function} returns {type_name(self.type)}"


class StepTypes:
    """Reads the annotations of functions; `app` has the serdes of the types that it found.

    Args:
        app: with the functions.
    """

    def __init__(self, app: LoadedApp) -> None:
        self._objects = dict(app.objects)
        self.app = replace(app, objects=self._objects)

    def value(self, step: StepSpec, before: str) -> Made | None:
        """Return what a step makes of a value; None: nothing says it.

        Args:
            step: that gives records other values.
            before: name of the serde of the values that it gets.
        """
        match step.operator:
            case "map_values" | "map_async" | "call_once":
                return self._made(step.function, before)
            case "flat_map_values" | "map_batch_async":
                return self._made(step.function, before, element_of)
            case "map":
                return self._made(step.function, before, _value_of)
            case "flat_map" | "process":
                return self._made(step.function, before, _value_in)
            case "join" if step.join is not None:
                return self._made(step.join.by, before)
            case _:
                return None

    def key(self, step: StepSpec, before: str) -> Made | None:
        """Return what a step makes of a key; None: nothing says it, or it keeps the key."""
        match step.operator:
            case "select_key" | "group_by":
                return self._made(step.function, before)
            case "map":
                return self._made(step.function, before, _key_of)
            case "flat_map" | "process":
                return self._made(step.function, before, _key_in)
            case _:
                return None

    def aggregate(self, step: StepSpec) -> Made | None:
        """Return what an aggregate keeps for each key; None: nothing says it."""
        declared: Any = getattr(step, step.operator)
        if step.cogroup is not None:
            functions = [*step.cogroup.add, step.cogroup.initial]
        else:
            functions = [getattr(declared, name, None) for name in ("of", "add", "initial")]
        found = (self._made(function, "json") for function in functions if function is not None)
        return next((made for made in found if made is not None), None)

    def made(self, function: str, before: str) -> Made | None:
        """Return what a function makes of a record; None: nothing says it."""
        return self._made(function, before)

    def adds(self, step: StepSpec) -> list[Made]:
        """Return what the functions of a `cogroup` return, as far as they say it."""
        adds = () if step.cogroup is None else step.cogroup.add
        found = (self._made(function, "json") for function in adds)
        return [made for made in found if made is not None]

    def listed(self, value: str, function: str) -> Made | None:
        """Return what a list of values is; None: their serde has no type.

        Args:
            value: name of the serde of each.
            function: reference to the function that orders them.
        """
        of = type_of(self.app.serde(value))
        if of is None:
            return None
        if of is bytes:
            problem = (
                f"{function} orders values of bytes, which have no form in a list; give them a "
                f"serde at their source, or map them first"
            )
            return Made(None, list[of], function, problem)
        return Made(self._named(serde_of(list[of])), list[of], function)

    def _made(
        self, function: str, before: str, part: Callable[[Any], Any] = stripped
    ) -> Made | None:
        try:
            found = stripped(part(returned_type(self.app.find(function))))
        except TopologyError as error:
            return Made(None, UNKNOWN, function, str(error))
        if not is_known(found):
            return None
        if type_of(self.app.serde(before)) is found:
            return Made(before, found, function)
        try:
            serde = serde_of(found)
        except TopologyError as error:
            return Made(None, found, function, str(error))
        return Made(self._named(serde), found, function)

    def _named(self, serde: Serde) -> str:
        """Return a name for a serde that no other of this topology has."""
        name, count = serde.name, 1
        while self._objects.setdefault(name, serde) != serde:
            count += 1
            name = f"{serde.name}#{count}"
        return name


def _pair_in(annotation: Any) -> tuple[Any, Any]:
    """Return the types of key and value of the records that a function returns, one or several."""
    each = pair_of(element_of(annotation), Record)
    return pair_of(annotation, Record) if each == (UNKNOWN, UNKNOWN) else each


def _key_of(annotation: Any) -> Any:
    return pair_of(annotation, Record)[0]


def _value_of(annotation: Any) -> Any:
    return pair_of(annotation, Record)[1]


def _key_in(annotation: Any) -> Any:
    return _pair_in(annotation)[0]


def _value_in(annotation: Any) -> Any:
    return _pair_in(annotation)[1]


_KEEPS_BOTH = frozenset({"filter", "peek", "filter_batch", "filter_async", "for_each_async"})
_KEEPS_KEY = _KEEPS_BOTH | {
    "map_values",
    "flat_map_values",
    "join",
    "map_batch",
    "map_async",
    "map_batch_async",
    "call_once",
}
_KEEPS_VALUE = _KEEPS_BOTH | {"select_key", "group_by", "deduplicate"}


def aggregate_serde(step: StepSpec, keyed: KeyedSpec, types: StepTypes) -> str:
    """Return the serde of an aggregate's values."""
    if keyed.value is not None or step.operator == "count":
        return keyed.value or "integer"
    made = types.aggregate(step)
    return (made and made.serde) or "json"


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """The known facts about records at one position in a stream.

    Args:
        key: serde of the key in the topic from which the records were read.
        value: serde of the value in this topic, or of an aggregate.
        new_key: a step may have changed the key since the records were read from a topic.
        new_value: a step may have changed the value, so that it may be one that `value` does not
            take.
        made_key: what a function's annotation says of the new key.
        made_value: what a function's annotation says of the new value.
        delayed: records may be older than stream time: a step emitted them at a commit, when a
            window closed, or when the interval of a join was over.
        is_grouped: they are changes of a table under the keys of groups.
    """

    key: str
    value: str
    new_key: bool = False
    new_value: bool = False
    made_key: Made | None = None
    made_value: Made | None = None
    delayed: bool = False
    is_grouped: bool = False

    @property
    def written_key(self) -> str:
        """The serde with which a sink writes keys if it states none."""
        return (self.made_key and self.made_key.serde) or self.key

    @property
    def written_value(self) -> str:
        """The serde with which a sink writes values if it states none."""
        return (self.made_value and self.made_value.serde) or self.value

    @property
    def kept_key(self) -> str:
        """The serde of keys in internal topics and stores."""
        return internal_serde_name(self.written_key)

    @property
    def kept_value(self) -> str:
        """The serde of values in internal topics and stores."""
        known = self.made_value is not None and self.made_value.serde is not None
        return internal_serde_name(self.written_value) if known or not self.new_value else "json"

    def after(self, step: StepSpec, types: StepTypes) -> RecordFacts:
        """Return the facts about the records after a step."""
        if (keyed := step.aggregates) is not None:
            value = aggregate_serde(step, keyed, types)
            value = value if keyed.window is None else window_name(value)
            delayed = self.delayed or keyed.emit != "each"
            return replace(
                self,
                value=value,
                new_value=False,
                made_value=None,
                delayed=delayed,
                is_grouped=False,
            )
        join = step.join
        waits = join is not None and join.is_within and join.kind != "inner"
        keeps_key = step.operator in _KEEPS_KEY or step.keyed is not None
        keeps_value = step.operator in _KEEPS_VALUE
        return replace(
            self,
            delayed=self.delayed or waits,
            new_key=self.new_key or not keeps_key,
            new_value=self.new_value or not keeps_value,
            made_key=self.made_key if keeps_key else types.key(step, self.written_key),
            made_value=self.made_value if keeps_value else types.value(step, self.written_value),
        )


@dataclass(frozen=True, slots=True)
class Lowered:
    """A topology without `group_by`, in which each stream states its effective `on_error`.

    Args:
        app: with the streams cut, and with the names of all stores.
        facts: known facts about the records at the end of each stream and source, by name.
        repartitions: for each repartition topic the stream that writes it and the declared
            number of partitions.
        rows: topics of rows for the database, by stream. A stream that is an unchanged source
            needs none: the table writer reads its topic.
        kept: the names of everything that is kept, in the order of their declarations.
        types: the types that functions state.
        contradictions: places at which a stated serde does not fit what a function returns, or
            none is stated and its type has none; with what is wrong.
        foreign: the streams that are steps of foreign-key joins, by name.
    """

    app: LoadedApp
    facts: Mapping[str, RecordFacts]
    repartitions: Mapping[str, tuple[str, int | None]]
    rows: Mapping[str, str]
    kept: tuple[KeptName, ...]
    types: StepTypes
    contradictions: tuple[tuple[SpecPath, str], ...]
    foreign: Mapping[str, ForeignPiece]


def reads_source(spec: TopologySpec, stream: StreamSpec) -> bool:
    """Return True if the records of a stream are those of a source, unchanged."""
    return stream.is_source and stream.from_[0] in spec.sources


def rows_serdes(spec: TopologySpec, name: str, facts: RecordFacts) -> tuple[str, str]:
    """Return the serdes of key and value in a stream's topic of rows.

    Args:
        spec: the topology.
        name: of the stream.
        facts: of its records.
    """
    tables = [table for _, table in spec.streams[name].tables]
    models = (table.model for table in tables if table.row is None)
    values = (*(table.value for table in tables), *models)
    return (
        next((table.key for table in tables if table.key), facts.kept_key),
        next((value for value in values if value), facts.kept_value),
    )


def lower(app: LoadedApp) -> Lowered:
    """Cut the streams of a topology that has no errors."""
    return _Lowering(app).run()


class _Lowering:
    def __init__(self, app: LoadedApp) -> None:
        self._types = StepTypes(app)
        self._app = self._types.app
        self._spec = app.spec
        self._sources = dict(app.spec.sources)
        self._streams: dict[str, StreamSpec] = {}
        self._facts: dict[str, RecordFacts] = {}
        self._policies = policies_in_force(app.spec)
        """By stream and branch. Each piece states its own: a tail reads a topic, not a stream."""
        self._repartitions: dict[str, tuple[str, int | None]] = {}
        self._naming = Naming(app)
        self._contradictions: list[tuple[SpecPath, str]] = []
        self._whole: dict[str, str] = {}
        """The stream of each piece."""
        self._rekeyed: dict[str, StreamSpec] = {}
        """For each joined stream with a new key, the stream that reads it from its topic."""
        self._foreign: dict[str, ForeignPiece] = {}

    def run(self) -> Lowered:
        for name, source in self._sources.items():
            self._facts[name] = RecordFacts(source.key, source.value)
        for name in in_order(self._spec)[0]:
            self._cut(name, self._spec.streams[name])
        order = {name: number for number, name in enumerate(self._spec.streams)}
        order |= {b: order[name] for b, name in branch_parents(self._spec).items()}
        streams = sorted(self._streams, key=lambda name: order[self._whole.get(name, name)])
        spec = self._spec.model_copy(
            update={
                "sources": self._sources,
                "streams": {name: self._streams[name] for name in streams},
            }
        )
        rows = {
            name: rows_topic(spec.application, self._naming.rows(name, stream))
            for name, stream in spec.streams.items()
            if stream.later_tables and not reads_source(spec, stream)
        }
        return Lowered(
            replace(self._app, spec=self._named(spec)),
            self._facts,
            self._repartitions,
            rows,
            tuple(self._naming.kept),
            self._types,
            tuple(self._contradictions),
            self._foreign,
        )

    def _cut(self, name: str, stream: StreamSpec) -> None:
        """Add a stream, in as many pieces as necessary."""
        stream = self._with_keyed_inputs(stream)
        facts = self._merged([self._facts[parent] for parent in stream.from_])
        current = stream.model_copy(update={"on_error": self._policies[name]})
        steps = list[StepSpec]()
        base = self._naming.start(name, stream)
        rows = tables_along(self._spec, stream)
        for i, step in enumerate(stream.steps):
            path: SpecPath = ("streams", name, "steps", i)
            words = words_of(stream.steps[i:])
            if (group := step.group_by) is not None:
                base = self._naming.group(base, (*path, "group_by"), group, words)
                facts = facts.after(step, self._types)
                self._compare((*path, "group_by", "key"), facts.made_key, group.key)
                self._compare((*path, "group_by", "value"), facts.made_value, group.value)
                if rows[i]:
                    group = group.model_copy(update={"key": group.key or facts.kept_key})
                    steps.append(StepSpec(group_by=group))
                    facts = replace(facts, is_grouped=True)
                else:
                    steps.append(StepSpec(select_key=group.by))
                current, facts = self._repartition(name, base.name, current, steps, group, facts)
                steps = []
                continue
            if self._is_foreign(step):
                current, facts = self._cut_foreign(name, i, step, current, steps, facts, base)
                steps = []
                continue
            is_keyed = step.needs_key or self._needs_key(step)
            if (facts.new_key and is_keyed) or (facts.delayed and _goes_by_time(step)):
                through = self._naming.repartition(
                    base, (*path, step.operator), step.operator, words
                )
                current, facts = self._repartition(name, through, current, steps, None, facts)
                steps = []
            step = self._naming.step(base, path, step, words)
            if self._needs_key(step):
                step = self._with_key(step)
            self._compare_stored(path, step, facts)
            steps.append(step := self._with_list(path, step, facts))
            facts = facts.after(step, self._types)
        self._naming.end(name, stream, base)
        for i, sink in enumerate(stream.to):
            is_row = isinstance(sink, SinkSpec) or sink.row is None
            stated = sink.value or (None if isinstance(sink, SinkSpec) else sink.model)
            self._compare(("streams", name, "to", i, "key"), facts.made_key, sink.key)
            if is_row:
                self._compare(("streams", name, "to", i, "value"), facts.made_value, stated)
        self._streams[name] = current.model_copy(update={"steps": tuple(steps)})
        for member in (name, *stream.branch_names):
            self._facts[member] = facts

    def _is_foreign(self, step: StepSpec) -> bool:
        """Return True for a join of tables by a foreign key."""
        join = step.join
        return join is not None and join.key is not None and is_table(self._spec, join.with_)

    def _cut_foreign(
        self,
        name: str,
        index: int,
        step: StepSpec,
        current: StreamSpec,
        steps: list[StepSpec],
        facts: RecordFacts,
        base: Base,
    ) -> tuple[StreamSpec, RecordFacts]:
        """End the stream so far in the topics of a foreign-key join; return what reads its rows."""
        join = step.join
        assert join is not None, "only joins have foreign keys"
        assert join.key is not None, "only joins have foreign keys"
        path: SpecPath = ("streams", name, "steps", index, "join")
        other = self._facts[join.with_]
        made = self._types.made(join.key, facts.written_key)
        if made is not None and made.contradicts(type_of(self._app.serde(other.written_key))):
            problem = f"{made}, and table {join.with_!r} has keys of {other.written_key}"
            self._contradictions.append(
                ((*path, "key"), f"{problem}; return a key of that table, or None")
            )
        words = words_of(self._spec.streams[name].steps[index:])
        keys = ForeignKeys(
            name,
            f"steps[{index}]",
            join,
            self._naming.foreign(base, path, join.store, words),
            facts.kept_key,
            other.written_key,
            (facts.kept_value, other.kept_value),
            current.on_error,
        )
        left = current.model_copy(update={"steps": tuple(steps)})
        pieces = cut(self._spec.application, keys, left, TAIL)
        self._sources |= pieces.sources
        self._streams |= pieces.streams
        self._foreign |= pieces.pieces
        self._whole |= dict.fromkeys(pieces.streams, name)
        self._repartitions |= {topic: (one, None) for topic, one in pieces.written.items()}
        self._facts |= {n: RecordFacts(s.key, s.value) for n, s in pieces.sources.items()}
        after = RecordFacts(facts.kept_key, facts.kept_value).after(step, self._types)
        self._facts[pieces.joined] = after
        return current.model_copy(update={"from_": (pieces.joined,)}), after

    def _with_list(self, path: SpecPath, step: StepSpec, facts: RecordFacts) -> StepSpec:
        """Return a step that lists values with the serde of the list."""
        if step.ranked is None:
            return step
        made = self._types.listed(facts.kept_value, step.ranked.by)
        self._compare((*path, step.operator, "value"), made, step.ranked.value)
        stated = step.ranked.value or (made and made.serde)
        return step if stated is None else step.with_option("value", stated)

    def _needs_key(self, step: StepSpec) -> bool:
        """Return True for a join of records with equal keys, which must be in one task."""
        return step.join is not None and not is_global(self._spec, step.join.with_)

    def _with_key(self, step: StepSpec) -> StepSpec:
        """Return a join whose other side passes through a repartition topic, if its key is new."""
        assert step.join is not None, "only joins have another side"
        other = step.join.with_
        facts = self._facts[other]
        if not facts.new_key and not (facts.delayed and step.join.is_within):
            return step
        join = step.join.model_copy(update={"with_": self._through_topic(other, "join")})
        return step.model_copy(update={"join": join})

    def _with_keyed_inputs(self, stream: StreamSpec) -> StreamSpec:
        """Return a `cogroup` whose inputs with a new key pass through a repartition topic each.

        One topic for all of them would need one serde for their values, and lose which is which.
        """
        if not stream.steps or (step := stream.steps[0]).cogroup is None:
            return stream
        by_time = _goes_by_time(step)
        inputs = (
            self._through_topic(name, "cogroup")
            if (facts := self._facts[name]).new_key or (facts.delayed and by_time)
            else name
            for name in stream.from_
        )
        return stream.model_copy(update={"from_": tuple(inputs)})

    def _through_topic(self, name: str, operator: str) -> str:
        """Return the source with the records of a stream after a repartition topic of their own."""
        if name not in self._rekeyed:
            whole = StreamSpec.model_validate({"from": name, "on_error": self._policies[name]})
            path = self._path_of(name)
            through = self._naming.repartition(self._naming.end_of(name), path, operator, ())
            facts = self._facts[name]
            self._rekeyed[name] = self._repartition(name, through, whole, [], None, facts)[0]
        return self._rekeyed[name].from_[0]

    def _path_of(self, name: str) -> SpecPath:
        """Return the path of a source, or of the stream that a stream or branch is declared in."""
        if name in self._spec.sources:
            return ("sources", name)
        return ("streams", branch_parents(self._spec).get(name, name))

    def _repartition(
        self,
        name: str,
        through: str,
        stream: StreamSpec,
        steps: list[StepSpec],
        group: GroupSpec | None,
        facts: RecordFacts,
    ) -> tuple[StreamSpec, RecordFacts]:
        """End the stream so far in a repartition topic, and return the stream that reads it."""
        count = sum(1 for whole in self._whole.values() if whole == name)
        number = "" if count == 0 else str(count + 1)
        head, tail = f"{name}{HEAD}{number}", f"{through}{TAIL}"
        self._whole[head] = name
        key = (group.key if group else None) or facts.kept_key
        value = (group.value if group else None) or facts.kept_value
        if facts.is_grouped:
            value = change_name(value)
        topic = repartition_topic(self._spec.application, through)
        self._streams[head] = StreamSpec.model_validate(
            {
                "from": stream.from_,
                "steps": steps,
                "on_error": stream.on_error,
                "to": [SinkSpec(topic=topic, key=key, value=value)],
            }
        )
        self._sources[tail] = SourceSpec(
            topic=topic, key=key, value=value, name=tail, on_error=stream.on_error
        )
        self._repartitions[topic] = head, group.partitions if group else None
        facts = self._facts[tail] = RecordFacts(key, value, is_grouped=facts.is_grouped)
        return stream.model_copy(update={"from_": (tail,)}), facts

    def _compare_stored(self, path: SpecPath, step: StepSpec, facts: RecordFacts) -> None:
        """Compare the serdes that a step states for what it stores with the functions' types."""
        operator = step.operator
        if (keyed := step.aggregates) is not None and operator != "count":
            made = self._types.aggregate(step)
            self._compare((*path, operator, "value"), made, keyed.value)
            for other in self._types.adds(step):
                self._compare((*path, operator, "add"), other, keyed.value or (made and made.serde))
        if (join := step.join) is not None and join.is_within:
            other = self._facts[join.with_]
            self._compare((*path, "join", "value"), facts.made_value, join.value)
            self._compare((*path, "join", "with_value"), other.made_value, join.with_value)

    def _compare(self, path: SpecPath, made: Made | None, stated: str | None) -> None:
        """Note if the serde that is stated at a place does not fit what a function returns."""
        if made is None:
            return
        if stated is None:
            if made.serde is None:
                self._contradictions.append((path, f"{made.problem}; or state {path[-1]}="))
        elif made.contradicts(type_of(self._app.serde(stated))):
            self._contradictions.append(
                (
                    path,
                    f"{made}, and {path[-1]} is {stated!r}; state the serde of what the "
                    f"function returns, or none, or convert it in a step",
                )
            )

    def _merged(self, merged: list[RecordFacts]) -> RecordFacts:
        first = merged[0]
        return replace(
            first,
            new_key=any(each.new_key for each in merged),
            new_value=any(each.new_value or each.value != first.value for each in merged),
            made_key=_common([each.made_key for each in merged]),
            made_value=_common([each.made_value for each in merged]),
            delayed=any(each.delayed for each in merged),
        )

    def _named(self, spec: TopologySpec) -> TopologySpec:
        """Keep the names of the sub-topologies that read the user's sources."""
        before = {
            source: name_of_part(self._spec, part)
            for part in connected_parts(self._spec)
            for source in part.sources
        }
        sources = dict(spec.sources)
        taken: set[str] = set()
        for part in connected_parts(spec):
            first = next((source for source in part.sources if source in before), None)
            if first is None or not part.streams or not self._repartitions:
                continue
            name = first if before[first] in taken else before[first]
            taken.add(name)
            sources[first] = sources[first].model_copy(update={"name": name})
        return spec.model_copy(update={"sources": sources})


def _common(made: list[Made | None]) -> Made | None:
    """Return what all parents of a stream make of their records; None: not the same."""
    first = made[0]
    serdes = {None if each is None else each.serde for each in made}
    return first if len(serdes) == 1 else None


def _goes_by_time(step: StepSpec) -> bool:
    """Return True if records that are older than stream time would be late for a step.

    After a repartition topic they are in a task of their own, whose stream time is theirs.
    """
    window = None if step.aggregates is None else step.aggregates.window
    is_window = window is not None and window.records is None
    is_join = step.join is not None and step.join.is_within
    return is_window or is_join or step.deduplicate is not None


HEAD, TAIL = ".by_key", ".keyed"
"""Suffixes of the names of a stream's pieces."""
