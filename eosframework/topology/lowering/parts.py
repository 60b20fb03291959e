"""The connected sources and streams of a spec, which become sub-topologies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eosframework.topology.spec.topology_spec import Policy, StreamSpec, TopologySpec


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
    partition, so one task must own it. Both sides of a join are connected: equal keys must be in
    one task. Sources that nothing reads come last.
    """
    links = _Links()
    for name, source in spec.sources.items():
        if not source.global_:
            links.join(("source", name), ("topic", source.topic))
    carriers = branch_parents(spec)
    for name, stream in spec.streams.items():
        links.root(("stream", name))
        for parent in read_by(spec, stream):
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


def read_by(spec: TopologySpec, stream: StreamSpec) -> list[str]:
    """Return the parents and join sides of a stream; global tables do not count."""
    names = dict.fromkeys((*stream.from_, *(name for _, name in stream.joined)))
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
        name: {carriers.get(p, p) for p in read_by(spec, stream)} & set(spec.streams)
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
