"""Conversion of recorded calls to a spec: chains of calls become streams."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from eosframework.errors import TopologyError
from eosframework.topology.dsl.recorded_calls import Node, Recording, first_problem, plain_name
from eosframework.topology.lowering.parts import connected_parts
from eosframework.topology.spec.loaded import LoadedApp, Place, SourceMap, SpecPath
from eosframework.topology.spec.step_spec import StepSpec
from eosframework.topology.spec.topology_spec import DEFAULT_BRANCH, TopologySpec


def flatten(recording: Recording) -> LoadedApp:
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
        name_parts(spec, unnamed),
        SourceMap(recording.place.file, places),
        recording.objects,
        unnamed=unnamed,
    )


def name_parts(spec: TopologySpec, generated: Collection[str]) -> TopologySpec:
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
        return "merge"
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
