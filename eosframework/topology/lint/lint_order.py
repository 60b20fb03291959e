"""Lint rule for `order`: it has an effect after a repartition topic only."""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.topology.lowering.lowering import HEAD, Lowered
from eosframework.topology.lowering.parts import connected_parts
from eosframework.topology.spec.join_spec import JoinSpec
from eosframework.topology.spec.keyed_spec import DeduplicateSpec, KeyedSpec
from eosframework.topology.spec.loaded import Finding, LoadedApp, Severity
from eosframework.topology.spec.step_spec import ProcessSpec, StepSpec


def order_findings(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return the findings about `order`; the topology has no errors."""
    for name, stream in app.spec.streams.items():
        for i, step in enumerate(stream.steps):
            if _order_of(step) is None or follows_repartition(lowered, name, i):
                continue
            yield app.finding(
                ("streams", name, "steps", i, step.operator, "order"),
                "order",
                f"order in {name!r} has no effect: no repartition topic comes before it, so a task "
                f"has one upstream and gets its records in the order of their topic. Leave it out",
                Severity.WARNING,
            )


def _order_of(step: StepSpec) -> str | None:
    declared = step.keyed or step.join or step.handler
    has_order = isinstance(declared, KeyedSpec | DeduplicateSpec | JoinSpec | ProcessSpec)
    return declared.order if has_order else None


def follows_repartition(lowered: Lowered, name: str, index: int) -> bool:
    """Return whether the piece of a stream that has a step is read from a repartition topic."""
    spec = lowered.app.spec
    # The pieces of a stream have its steps one after the other; a group_by is a select_key there.
    pieces = [p for p in spec.streams if p.split(HEAD)[0] == name]
    owners = [piece for piece in pieces for _ in spec.streams[piece].steps]
    part = next(part for part in connected_parts(spec) if owners[index] in part.streams)
    topics = {spec.sources[source].topic for source in part.sources}
    return not lowered.repartitions.keys().isdisjoint(topics)
