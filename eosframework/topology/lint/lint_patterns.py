"""Lint rules for sources by pattern.

Each topic that matches is processed by tasks of its own (`topology/graph/patterns`). So before a
`group_by` no step may keep anything: a key's state would be in as many places as there are topics.
And no internal topic may belong to one of them, because a running worker creates none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eosframework.topology.lint.lint_topics import written_places
from eosframework.topology.lowering.parts import (
    connected_parts,
    in_order,
    is_global,
    name_of_part,
    policies_in_force,
)
from eosframework.topology.spec.loaded import Finding, LoadedApp, SpecPath
from eosframework.topology.spec.step_spec import StepSpec
from eosframework.topology.spec.topology_spec import DeadLetter, StreamSpec, TopologySpec, matches
from eosframework.txnid import refuse_reserved_name

RULE = "pattern"


@dataclass(frozen=True, slots=True)
class _Reach:
    """The sources by pattern whose records reach one position in a stream.

    Args:
        direct: without a repartition topic in between.
        grouped: through one.
    """

    direct: tuple[str, ...] = ()
    grouped: tuple[str, ...] = ()

    def joined(self, other: _Reach) -> _Reach:
        return _Reach(
            tuple(dict.fromkeys((*self.direct, *other.direct))),
            tuple(dict.fromkeys((*self.grouped, *other.grouped))),
        )


def pattern_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about sources by pattern."""
    patterns = {name: s.pattern for name, s in app.spec.sources.items() if s.pattern is not None}
    if not patterns:
        return
    yield from _loops(app, patterns)
    yield from _read_twice(app, patterns)
    yield from _part_names(app)
    for name in patterns:
        policy = app.spec.sources[name].on_error
        if isinstance(policy, DeadLetter) and (policy.retry or policy.replay):
            yield app.finding(("sources", name, "on_error"), RULE, _needs_topics(name, "retry"))
    ends = {name: _Reach(direct=(name,)) for name in patterns}
    for name in in_order(app.spec)[0]:
        yield from _along(app, name, app.spec.streams[name], ends)


def _loops(app: LoadedApp, patterns: dict[str, str]) -> Iterator[Finding]:
    for path, topic in written_places(app.spec):
        for name, pattern in patterns.items():
            if matches(pattern, topic):
                yield app.finding(
                    path,
                    RULE,
                    f"topic {topic!r} matches pattern {pattern!r} of source {name!r}: what is "
                    f"written to it would be read again. Narrow the pattern, or rename the topic",
                )


def _read_twice(app: LoadedApp, patterns: dict[str, str]) -> Iterator[Finding]:
    for other, source in app.spec.sources.items():
        for name, pattern in patterns.items():
            if source.pattern is None and matches(pattern, source.topic):
                yield app.finding(
                    ("sources", other, "topic"),
                    RULE,
                    f"source {other!r} reads topic {source.topic!r}, which pattern {pattern!r} of "
                    f"source {name!r} matches as well: one task must own each partition. Narrow "
                    f"the pattern, or leave out source {other!r}",
                )


def _part_names(app: LoadedApp) -> Iterator[Finding]:
    for part in connected_parts(app.spec):
        by_pattern = [name for name in part.sources if app.spec.sources[name].pattern]
        if by_pattern and part.streams:
            name = f"{name_of_part(app.spec, part)}."
            place: SpecPath = ("sources", by_pattern[0])
            yield from app.refusals(place, "name", lambda name=name: refuse_reserved_name(name))


def _along(
    app: LoadedApp, name: str, stream: StreamSpec, ends: dict[str, _Reach]
) -> Iterator[Finding]:
    """Yield the findings about one stream, and note the reach at its end."""
    reach = _Reach()
    for parent in stream.from_:
        reach = reach.joined(ends.get(parent, _Reach()))
    policy = policies_in_force(app.spec).get(name)
    if reach.direct and isinstance(policy, DeadLetter) and (policy.retry or policy.replay):
        place: SpecPath = ("streams", name, "on_error")
        yield app.finding(place, RULE, _needs_topics(reach.direct[0], "retry or replay"))
    for i, step in enumerate(stream.steps):
        place = ("streams", name, "steps", i)
        if step.join is not None and not is_global(app.spec, step.join.with_):
            reach = reach.joined(ends.get(step.join.with_, _Reach()))
        if reach.direct and (problem := _refused(app.spec, step, reach.direct[0])):
            yield app.finding(place, RULE, problem)
            break
        if step.group_by is not None:
            reach = _Reach(grouped=(*reach.direct, *reach.grouped))
        elif reach.grouped and _goes_by_time(step):
            yield app.finding(place, RULE, _by_time(step, reach.grouped[0]))
    for i, table in stream.tables if reach.direct else ():
        place = ("streams", name, "to", i)
        yield app.finding(place, RULE, _needs_topics(reach.direct[0], f"table {table.table}"))
    for member in (name, *stream.branch_names):
        ends[member] = reach


def _refused(spec: TopologySpec, step: StepSpec, source: str) -> str | None:
    """Return why a step may not follow a source by pattern; None: it may."""
    if (group := step.group_by) is not None:
        if group.partitions is not None:
            return None
        return (
            f"group_by after source {source!r} needs partitions: the source has a pattern, so the "
            f"number of the repartition topic follows from no topic. State it, for example 12"
        )
    if step.call_once is not None:
        return _needs_topics(source, "call_once")
    joins = step.join is not None and not is_global(spec, step.join.with_)
    if joins or step.keyed is not None or step.handler is not None:
        return (
            f"{step.operator} keeps state by key, and source {source!r} has a pattern: each topic "
            f"has tasks of its own, so a key's state would be in several. Put a group_by with "
            f"partitions before it"
        )
    return None


def _needs_topics(source: str, what: str) -> str:
    return (
        f"{what} needs an internal topic for each topic of source {source!r}, which has a pattern, "
        f"and a running worker creates none. Use it after a group_by with partitions"
    )


def _goes_by_time(step: StepSpec) -> bool:
    """Return whether a step waits for the watermarks of its upstream tasks."""
    window = None if step.aggregates is None else step.aggregates.window
    windowed = window is not None and window.records is None
    timed = step.handler is not None and (
        step.handler.on_timer is not None or step.handler.order == "time"
    )
    ordered = step.join is not None and (step.join.is_within or step.join.order == "time")
    declared = step.aggregates is not None and step.aggregates.order == "time"
    return windowed or timed or ordered or declared or step.deduplicate is not None


def _by_time(step: StepSpec, source: str) -> str:
    return (
        f"{step.operator} goes by stream time, and its records come from source {source!r}, which "
        f"has a pattern: a topic that is found later begins before the stream time of the others, "
        f"and its records would be late. Write them to a topic, and read that as a source of its "
        f"own, in this application or another"
    )
