"""The entry point of the Python DSL: `Topology`, whose methods declare sources.

Calls are recorded with their places; `Topology.spec` converts them to the same data that a YAML
file gives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

from pydantic import ValidationError

from eosframework.errors import TopologyError
from eosframework.records import K, V
from eosframework.serialization.serdes import UntypedSerde
from eosframework.topology.dsl.declarations import (
    AggregateOptions,
    Node,
    OnErrorLike,
    Recording,
    ValueFunction,
    caller,
    first_problem,
    limited,
    message_of,
    plain_name,
    policy_of,
)
from eosframework.topology.dsl.streams import (
    GlobalTable,
    KeyedStream,
    Made,
    Stream,
    declared_options,
)
from eosframework.topology.lowering.parts import connected_parts
from eosframework.topology.spec.keyed_spec import DurationLike, WindowSpec
from eosframework.topology.spec.loaded import LoadedApp, Place, SourceMap, SpecPath
from eosframework.topology.spec.step_spec import StepSpec
from eosframework.topology.spec.topology_spec import DEFAULT_BRANCH, SourceSpec, TopologySpec


def _flatten(recording: Recording) -> LoadedApp:
    """Return the spec of the recorded calls, with places and objects.

    Raises:
        TopologyError: the declarations contradict each other.
    """
    chains = _chains(recording)
    names = _Names(recording)
    for chain in chains:
        names.name(chain)
    _refuse_duplicates(chains)
    data = {
        "application": recording.application,
        "sources": recording.sources,
        "streams": {chain.name: names.describe(chain) for chain in chains},
    }
    try:
        spec = TopologySpec.model_validate(data)
    except ValidationError as error:
        raise TopologyError(f"{recording.place}: {first_problem(error)}") from error
    places = _places(recording, chains)
    unnamed = frozenset({chain.name for chain in chains if chain.generated} | names.branches)
    return LoadedApp(
        _name_parts(spec, unnamed),
        SourceMap(recording.place.file, places),
        recording.objects,
        unnamed=unnamed,
    )


def _name_parts(spec: TopologySpec, generated: Collection[str]) -> TopologySpec:
    """Name each part after its first source if its first stream's name was generated.

    A generated name is derived from the steps and would change with them; transactional ids must
    not.
    """
    sources = dict(spec.sources)
    for part in connected_parts(spec):
        unnamed = not any(spec.sources[name].name for name in part.sources)
        if unnamed and part.sources and part.streams and part.streams[0] in generated:
            first = part.sources[0]
            sources[first] = sources[first].model_copy(update={"name": first})
    return spec.model_copy(update={"sources": sources})


@dataclass(eq=False, slots=True)
class _Chain:
    """The nodes that make up one stream."""

    nodes: list[Node]
    name: str = ""
    generated: bool = False
    branch_names: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def last(self) -> Node:
        return self.nodes[-1]

    @property
    def steps(self) -> list[Node]:
        return [node for node in self.nodes if node.step is not None]

    def policy(self) -> Any:
        found = [node for node in self.nodes if node.policy is not None]
        if len(found) > 1:
            raise TopologyError(
                f"{found[1].place}: the stream already has an on_error ({found[0].place}); name "
                f"the stream in between with .named(), or keep one"
            )
        return found[0].policy if found else None


def _chains(recording: Recording) -> list[_Chain]:
    chain_of: dict[Node, _Chain] = {}
    chains: list[_Chain] = []
    for node in recording.nodes:
        if node.is_origin and not node.sinks and not node.branches:
            continue
        if not node.is_origin and len(node.parents) == 1 and node.parents[0] in chain_of:
            before = chain_of[node.parents[0]]
            if _continues(before, node):
                before.nodes.append(node)
                chain_of[node] = before
                continue
        chain_of[node] = chain = _Chain([node])
        chains.append(chain)
    return chains


def _refuse_duplicates(chains: list[_Chain]) -> None:
    seen: dict[str, _Chain] = {}
    for chain in chains:
        if (first := seen.setdefault(chain.name, chain)) is not chain:
            raise TopologyError(
                f"{chain.last.place}: there is already a stream named {chain.name!r} "
                f"({first.last.place}); give this one another name"
            )


def _continues(chain: _Chain, node: Node) -> bool:
    last = chain.last
    used = last.is_origin or last.sinks or last.branches
    if used or len(last.children) != 1 or node.parents[0] is not last:
        return False
    named = any(member.name for member in chain.nodes)
    return not named or (node.step is None and node.name is None)


class _Names:
    """The name of each chain: the one its user gave it, or one for messages, from its origin.

    Nothing is kept under a generated name: `lowering/naming.py` names stores and topics.
    """

    def __init__(self, recording: Recording) -> None:
        self._of: dict[Node, str] = {
            node: node.source or node.name or ""
            for node in recording.nodes
            if node.source is not None or (node.is_branch and node.name)
        }
        chosen = [node.name for node in recording.nodes if node.name]
        self._taken: set[str] = {*recording.sources, *chosen}
        self.branches: set[str] = set()
        """Generated names of branches."""

    def name(self, chain: _Chain) -> None:
        """Name the chain and its unnamed branches."""
        chosen = next((n.name for n in chain.nodes if n.name and not n.is_branch), None)
        chain.generated = chosen is None
        chain.name = chosen or self._generate(self._origin(chain), _purpose(chain))
        for node in chain.nodes:
            if not node.is_origin:
                self._of[node] = chain.name
        for predicate, node in chain.last.branches:
            if node not in self._of:
                self._of[node] = self._generate(chain.name, _short(predicate or "rest"))
                self.branches.add(self._of[node])

    def describe(self, chain: _Chain) -> dict[str, Any]:
        """Return the stream as the data of a `StreamSpec`."""
        return {
            "from": self._parents(chain),
            "steps": [self._step(node) for node in chain.steps],
            "branch": self._branches(chain),
            "on_error": chain.policy(),
            "to": [sink for sink, _ in chain.last.sinks],
        }

    def _step(self, node: Node) -> StepSpec | None:
        """Return the step; a join gets the name of its other side, which is known only now."""
        if node.step is None or node.step.join is None or node.joined is None:
            return node.step
        join = node.step.join.model_copy(update={"with_": self._of[node.joined]})
        return node.step.model_copy(update={"join": join})

    def _parents(self, chain: _Chain) -> list[str]:
        first = chain.nodes[0]
        if first.is_origin:
            return [self._of[first]]
        return [self._of[parent] for parent in first.parents]

    def _branches(self, chain: _Chain) -> dict[str, str]:
        found: dict[str, str] = {}
        for predicate, node in chain.last.branches:
            if predicate is None:
                found[DEFAULT_BRANCH] = self._of[node]
            else:
                found[self._of[node]] = predicate
        return found

    def _origin(self, chain: _Chain) -> str:
        return self._parents(chain)[0]

    def _generate(self, origin: str, purpose: str) -> str:
        name, count = f"{origin}.{purpose}", 1
        while name in self._taken:
            count += 1
            name = f"{origin}.{purpose}_{count}"
        self._taken.add(name)
        return name


def _purpose(chain: _Chain) -> str:
    first = chain.nodes[0]
    if len(first.parents) > 1:
        return "merge" if first.step is None else "cogroup"
    if chain.steps and (step := chain.steps[0].step) is not None:
        return _short(step.function) if "<lambda>" not in step.function else step.operator
    return "branch" if chain.last.branches else "to"


def _short(reference: str) -> str:
    name = reference.rpartition(":")[2] if " at " not in reference else reference
    return plain_name(name.partition(" ")[0].partition("#")[0].strip("<>"))


def _places(recording: Recording, chains: list[_Chain]) -> dict[SpecPath, Place]:
    places: dict[SpecPath, Place] = {
        ("application",): recording.place,
        ("streams",): recording.place,
    }
    for node in recording.nodes:
        if node.source is not None:
            places["sources",] = recording.place
            places["sources", node.source] = node.place
    for chain in chains:
        base: SpecPath = ("streams", chain.name)
        places[base] = chain.nodes[0].place
        for part in ("steps", "to", "branch", "on_error"):
            places[*base, part] = chain.nodes[0].place
        places.update({(*base, "steps", i): node.place for i, node in enumerate(chain.steps)})
        places.update({(*base, "to", i): p for i, (_, p) in enumerate(chain.last.sinks)})
        places.update({(*base, "on_error"): n.place for n in chain.nodes if n.policy})
    return places


class SourceOptions(TypedDict, total=False):
    """Further options of a source; see `Topology.stream`."""

    timestamp: ValueFunction | None
    name: str | None
    on_error: OnErrorLike | None
    sub_topology: str | None


class Topology:
    """An application: the topics it reads, the processing of their records, and its outputs.

    Args:
        application: its name: lower-case letters, digits, `_`, `.` and `-`.
    """

    def __init__(self, application: str) -> None:
        self._recording = Recording(application, caller())

    def __repr__(self) -> str:
        """Return the application's name, the topics that it reads, and its outputs."""
        recording = self._recording
        read = [source.topic for source in recording.sources.values()]
        sinks = [sink for node in recording.nodes for sink, _ in node.sinks]
        written = [sink.label for sink in sinks]
        shown = f"reads {', '.join(dict.fromkeys(read)) or 'nothing'}"
        shown += f"; writes {', '.join(dict.fromkeys(written)) or 'nothing'}"
        return f"<Topology {recording.application}: {shown}>"

    def stream(
        self,
        topic: str | None = None,
        *,
        pattern: str | None = None,
        key: type[K] | UntypedSerde = bytes,
        value: type[V] | UntypedSerde = bytes,
        timestamp: ValueFunction | None = None,
        name: str | None = None,
        on_error: OnErrorLike | None = None,
        sub_topology: str | None = None,
    ) -> Stream[K, V]:
        """Read a topic, or every topic that a pattern matches.

        Args:
            topic: name of the topic.
            pattern: in place of a topic, with `name`: a regular expression for the whole names of
                topics. A topic that is created later is read as well.
            key: serde of the key: a type, as bytes, str, int, a model or `tuple[str, int]`; or a
                name.
            value: serde of the value, as for the key.
            timestamp: takes the value and returns the event time, as milliseconds since the
                epoch or a datetime. None, and for null values: the record's timestamp.
            name: of the source. None: derived from the topic.
            on_error: for records that cannot be decoded. None: as the first stream that reads it.
            sub_topology: name of the sub-topology of this source, part of its transactional ids.
                None: the name of its first stream; the first source's if that stream is unnamed.

        Raises:
            TopologyError: the name is taken, or an argument is of the wrong kind.
        """
        options: SourceOptions = {
            "timestamp": timestamp,
            "name": name,
            "on_error": on_error,
            "sub_topology": sub_topology,
        }
        if (topic is None) == (pattern is None):
            raise TopologyError(
                f"{caller()}: stream() takes either a topic or a pattern; state one of them"
            )
        if pattern is not None and name is None:
            raise TopologyError(f"{caller()}: a stream by pattern needs a name=, as name='orders'")
        matching = {} if pattern is None else {"pattern": pattern}
        node = self._source(topic or f"/{pattern}/", key, value, options, **matching)
        return Stream(self._recording, node)

    def table(
        self,
        topic: str,
        *,
        key: type[K] | UntypedSerde = bytes,
        value: type[V] | UntypedSerde = bytes,
        history: DurationLike | None = None,
        ttl: DurationLike | None = None,
        **read: Unpack[SourceOptions],
    ) -> Stream[K, V]:
        """Read a topic as a table: each record is the new row of its key, a null value deletes it.

        The result can be joined with; its records are the changes of rows.

        Args:
            topic: name of the topic.
            key: as in `stream`.
            value: as in `stream`.
            history: how long earlier versions of rows are kept. A stream that is joined with the
                table finds the row that was current at each record's time. None: current rows only.
            ttl: lifetime of a row, in stream time. None: until it is replaced or deleted.
            read: as in `stream`; the name is also that of the store.

        Raises:
            TopologyError: the name is taken, or an argument is of the wrong kind.
        """
        node = self._source(topic, key, value, read, table=True, history=history, ttl=ttl)
        return Stream(self._recording, node)

    def global_table(
        self,
        topic: str,
        *,
        key: type[K] | UntypedSerde = bytes,
        value: type[V] | UntypedSerde = bytes,
        name: str | None = None,
    ) -> GlobalTable[K, V]:
        """Read a whole topic into the memory of every process, to join with by any key.

        A join finds the rows as they are now, not as they were at a record's time: processing the
        same records again may give other results.

        Args:
            topic: name of the topic; it may have any number of partitions.
            key: serde of the keys, as in `stream`.
            value: serde of the rows.
            name: of the table. None: derived from the topic.

        Raises:
            TopologyError: the name is taken.
        """
        node = self._source(topic, key, value, {"name": name}, **{"global": True})
        return GlobalTable(self._recording, node)

    def cogroup(
        self,
        adds: Mapping[KeyedStream[K, Any], Callable[[Made, Any], Made] | str],
        *,
        initial: Callable[[], Made] | str,
        merge: Callable[[Made, Made], Made] | str | None = None,
        window: WindowSpec | None = None,
        grace: DurationLike | None = None,
        late: str | None = None,
        close_when_idle: DurationLike | None = None,
        name: str | None = None,
        **options: Unpack[AggregateOptions],
    ) -> Stream[K, Any]:
        """Fold several streams into one aggregate for each key, or each key and window.

        Their records are in one task: their topics need the same number of partitions, and their
        keys the same serde.

        Args:
            adds: by stream, `add(aggregate, value)` for its records. State them in the same order
                always.
            initial: returns the first aggregate.
            merge: for sessions: `merge(aggregate, aggregate)`, when a record joins two.
            window: None: one aggregate for each key, without windows.
            grace: of the windows, as `late` and `close_when_idle`; see `KeyedStream.window`.
            late: topic for late records.
            close_when_idle: time without a record after which windows close.
            name: of the result. None: it has none.
            options: see `AggregateOptions`.

        Raises:
            TopologyError: there are fewer than two streams, or one is of another topology.
        """
        recording = self._recording
        if window is not None:
            window = limited(window, grace, late, close_when_idle)
        if any(stream.recording is not recording for stream in adds):
            raise TopologyError(
                f"{caller()}: cogroup was given a stream of another topology; declare all of them "
                f"with the same Topology"
            )
        functions = {"initial": initial, **({} if merge is None else {"merge": merge})}
        declared = {
            **declared_options(recording, options, window),
            **{name: recording.reference("cogroup", f) for name, f in functions.items()},
            "add": [recording.reference("cogroup", add) for add in adds.values()],
        }
        try:
            step = StepSpec.model_validate({"cogroup": declared})
        except ValidationError as error:
            raise TopologyError(f"{caller()}: {first_problem(error)}") from error
        parents = tuple(stream.node for stream in adds)
        node = Node(caller(), parents, step=step, name=name)
        return Stream(recording, recording.add(node))

    @property
    def spec(self) -> TopologySpec:
        """The declarations as data.

        Raises:
            TopologyError: the declarations contradict each other.
        """
        return self.loaded().spec

    def loaded(self) -> LoadedApp:
        """Return the spec with its places and the objects it refers to."""
        return _flatten(self._recording)

    def _source(
        self, topic: str, key: Any, value: Any, options: SourceOptions, **more: Any
    ) -> Node:
        recording = self._recording
        function = options.get("timestamp")
        declared = {
            "topic": topic,
            "key": recording.serde(key),
            "value": recording.serde(value),
            "timestamp": None if function is None else recording.reference("timestamp", function),
            "on_error": policy_of(options.get("on_error")),
            "name": options.get("sub_topology"),
            **more,
        }
        source = options.get("name") or plain_name(topic)
        if source in recording.sources:
            raise TopologyError(
                f"source {source!r} is declared twice; keep the stream of the first declaration "
                f"and use it again, or give this one another name="
            )
        try:
            recording.sources[source] = SourceSpec.model_validate(declared)
        except ValidationError as error:
            found = message_of(error.errors()[0])
            raise TopologyError(f"{caller()}: {source}: {found}") from error
        return recording.add(Node(caller(), source=source))
