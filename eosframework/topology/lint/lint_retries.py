"""Lint rules for retries and replays."""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.topology.lowering.lowering import HEAD, Lowered
from eosframework.topology.lowering.parts import Part, connected_parts
from eosframework.topology.spec.loaded import Finding, LoadedApp, SpecPath
from eosframework.topology.spec.topology_spec import DeadLetter, TopologySpec


def retry_findings(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return the findings about `retry` and `replay`; the topology has no other errors."""
    parts = connected_parts(lowered.app.spec)
    stateful = [part for part in parts if _has_state(lowered.app.spec, part)]
    remember = {name for part in stateful for name in _names(part)}
    for section, declared in (("sources", app.spec.sources), ("streams", app.spec.streams)):
        for name, part in declared.items():
            policy = part.on_error
            if not isinstance(policy, DeadLetter) or not (policy.retry or policy.replay):
                continue
            pieces = {n for p in parts for n in _names(p) if n == name or n.startswith(name + HEAD)}
            if pieces <= remember:
                setting = "retry" if policy.retry else "replay"
                path: SpecPath = (section, name, "on_error", setting)
                yield app.finding(
                    path,
                    "retry",
                    f"{setting} in {name!r} cannot be used: its task remembers (aggregates, joins, "
                    f"tables, handlers), and what a record meets there depends on the records "
                    f"before it. Leave {setting} out, or put the steps that may fail into a stream "
                    f"of their own, before a group_by or a topic",
                )


def _names(part: Part) -> tuple[str, ...]:
    return (*part.sources, *part.streams)


def _has_state(spec: TopologySpec, part: Part) -> bool:
    steps = (step for name in part.streams for step in spec.streams[name].steps)
    return any(spec.sources[name].is_table for name in part.sources) or any(
        step.keyed is not None or step.join is not None or step.handler is not None
        for step in steps
    )
