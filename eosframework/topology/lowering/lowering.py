"""Cuts streams where records have to change tasks: in front of what needs a key's records together.

A task sees the records of the keys in its partitions, and a new key may belong to another
partition. So a stream that groups by a new key is cut in two: the head writes to a topic of the
application's own, partitioned by the new key, and the tail reads it. Both are ordinary streams
of an ordinary spec; what comes after this module does not know that there was a cut.

    per_carrier: [filter, group_by, count, map_values]
    per_carrier.by_key: [filter, select_key]  →  APP-per_carrier-repartition
    per_carrier: from per_carrier.keyed, which reads that topic: [count, map_values]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eosframework.serialization.serdes import WINDOW, kept_name
from eosframework.topology.lowering.parts import (
    carriers_of_branches,
    connected_parts,
    in_order,
    name_of_part,
    policies_in_force,
)
from eosframework.topology.spec.keyed_spec import KeyedSpec
from eosframework.topology.spec.loaded import LoadedApp
from eosframework.topology.spec.step_spec import GroupSpec, StepSpec
from eosframework.topology.spec.tabular import is_global
from eosframework.topology.spec.topology_spec import SinkSpec, SourceSpec, StreamSpec, TopologySpec
from eosframework.txnid import repartition_topic

KEEPS_KEY = frozenset(
    {"filter", "map_values", "flat_map_values", "peek", "join", "map_batch", "filter_batch"}
)
KEEPS_VALUE = frozenset({"filter", "peek", "select_key", "group_by", "deduplicate", "filter_batch"})


def kept_serde(step: StepSpec, keyed: KeyedSpec) -> str:
    """Return the serde of what an aggregate keeps."""
    return keyed.value or ("integer" if step.operator == "count" else "json")


@dataclass(frozen=True, slots=True)
class Way:
    """What is known of the records at one place of a stream.

    Args:
        key: serde of the key.
        value: serde of the value.
        new_key: a step may have changed the key since it came out of a topic.
        new_value: the same of the value, with what no serde is known for.
        behind: records come later than their time: a step gave them at a commit, or when a window
            closed, or as a record that met nothing.
    """

    key: str
    value: str
    new_key: bool = False
    new_value: bool = False
    behind: bool = False

    def after(self, step: StepSpec) -> Way:
        """Return what is known behind a step."""
        if (keyed := step.aggregates) is not None:
            value = kept_serde(step, keyed) if keyed.window is None else WINDOW.name
            behind = self.behind or keyed.emit != "each"
            return replace(self, value=value, new_value=False, behind=behind)
        join = step.join
        waits = join is not None and join.is_within and join.kind != "inner"
        return replace(
            self,
            behind=self.behind or waits,
            new_key=self.new_key or (step.operator not in KEEPS_KEY and step.keyed is None),
            new_value=self.new_value or step.operator not in KEEPS_VALUE,
        )


@dataclass(frozen=True, slots=True)
class Lowered:
    """A topology without `group_by`, in which each stream states the `on_error` that holds in it.

    Args:
        app: with the streams cut.
        ways: what is known at the end of each stream and source, by its name.
        repartitions: by each topic of the application's own, the stream that writes it and the
            number of partitions that was asked for.
    """

    app: LoadedApp
    ways: Mapping[str, Way]
    repartitions: Mapping[str, tuple[str, int | None]]


def lower(app: LoadedApp) -> Lowered:
    """Cut the streams of a topology that has no errors."""
    return _Lowering(app).run()


class _Lowering:
    def __init__(self, app: LoadedApp) -> None:
        self._app = app
        self._spec = app.spec
        self._sources = dict(app.spec.sources)
        self._streams: dict[str, StreamSpec] = {}
        self._ways: dict[str, Way] = {}
        self._policies = policies_in_force(app.spec)
        """By stream and branch. Every piece states its own: a tail reads a topic, not a stream."""
        self._repartitions: dict[str, tuple[str, int | None]] = {}
        self._whole: dict[str, str] = {}
        """By each piece of a stream, the stream."""
        self._rekeyed: dict[str, StreamSpec] = {}
        """By a stream that is joined and has a new key, what reads it behind the topic."""

    def run(self) -> Lowered:
        for name, source in self._sources.items():
            self._ways[name] = Way(source.key, source.value)
        for name in in_order(self._spec)[0]:
            self._cut(name, self._spec.streams[name])
        order = {name: number for number, name in enumerate(self._spec.streams)}
        order |= {b: order[name] for b, name in carriers_of_branches(self._spec).items()}
        streams = sorted(self._streams, key=lambda name: order[self._whole.get(name, name)])
        spec = self._spec.model_copy(
            update={
                "sources": self._sources,
                "streams": {name: self._streams[name] for name in streams},
            }
        )
        return Lowered(replace(self._app, spec=self._named(spec)), self._ways, self._repartitions)

    def _cut(self, name: str, stream: StreamSpec) -> None:
        """Add a stream, in as many pieces as it takes."""
        way = self._merged([self._ways[parent] for parent in stream.from_])
        current = stream.model_copy(update={"on_error": self._policies[name]})
        steps = list[StepSpec]()
        for step in stream.steps:
            if step.group_by is not None:
                steps.append(select := StepSpec(select_key=step.group_by.by))
                way = way.after(select)
                current, way = self._repartition(name, current, steps, step.group_by, way)
                steps = []
                continue
            is_keyed = step.needs_key or self._needs_key(step)
            if (way.new_key and is_keyed) or (way.behind and _goes_by_time(step)):
                current, way = self._repartition(name, current, steps, None, way)
                steps = []
            if self._needs_key(step):
                step = self._with_key(step)
            steps.append(step)
            way = way.after(step)
        self._streams[name] = current.model_copy(update={"steps": tuple(steps)})
        for member in (name, *stream.branch_names):
            self._ways[member] = way

    def _needs_key(self, step: StepSpec) -> bool:
        """Tell whether a step is a join of what has equal keys in one task."""
        return step.join is not None and not is_global(self._spec, step.join.with_)

    def _with_key(self, step: StepSpec) -> StepSpec:
        """Return a join with the other side as it is behind a topic, if its key is a new one."""
        assert step.join is not None, "only joins have another side"
        other = step.join.with_
        way = self._ways[other]
        if not way.new_key and not (way.behind and step.join.is_within):
            return step
        if other not in self._rekeyed:
            whole = StreamSpec.model_validate({"from": other, "on_error": self._policies[other]})
            self._rekeyed[other] = self._repartition(other, whole, [], None, self._ways[other])[0]
        join = step.join.model_copy(update={"with_": self._rekeyed[other].from_[0]})
        return step.model_copy(update={"join": join})

    def _repartition(
        self,
        name: str,
        stream: StreamSpec,
        steps: list[StepSpec],
        group: GroupSpec | None,
        way: Way,
    ) -> tuple[StreamSpec, Way]:
        """Let what came so far end in a topic, and return the stream that reads it."""
        count = sum(1 for whole in self._whole.values() if whole == name)
        number = "" if count == 0 else str(count + 1)
        head, tail = f"{name}{HEAD}{number}", f"{name}{TAIL}{number}"
        self._whole[head] = name
        key = (group.key if group else None) or kept_name(way.key)
        value = (group.value if group else None) or (
            "json" if way.new_value else kept_name(way.value)
        )
        topic = repartition_topic(
            self._spec.application, (group.name if group else None) or f"{name}{number}"
        )
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
        way = self._ways[tail] = Way(key, value)
        return stream.model_copy(update={"from_": (tail,)}), way

    def _merged(self, ways: list[Way]) -> Way:
        first = ways[0]
        return replace(
            first,
            new_key=any(way.new_key for way in ways),
            new_value=any(way.new_value or way.value != first.value for way in ways),
            behind=any(way.behind for way in ways),
        )

    def _named(self, spec: TopologySpec) -> TopologySpec:
        """Let what reads the user's sources keep the name it has without the cuts."""
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


def _goes_by_time(step: StepSpec) -> bool:
    """Tell whether records that come later than their time would be late for a step.

    In a task of their own the time is theirs.
    """
    is_window = step.aggregates is not None and step.aggregates.window is not None
    is_join = step.join is not None and step.join.is_within
    return is_window or is_join or step.deduplicate is not None


HEAD, TAIL = ".by_key", ".keyed"
"""What the pieces of a stream are named, after its own name."""
