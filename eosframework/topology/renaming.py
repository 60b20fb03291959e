"""A copy of a topology that runs alongside the original and shares no output with it.

Every output gets `_SUFFIX` after its name: sinks, dead-letter topics, topics for late records,
tables; also the sources that the topology writes itself. Sources that others write keep their
names. The application's name gets the suffix, too, so the copy has its own control topic, ids,
groups and internal topics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

from pydantic import BaseModel

from eosframework.errors import ConfigurationError
from eosframework.topology.lint.lint_topics import late_topics
from eosframework.topology.spec.loaded import LoadedApp
from eosframework.topology.spec.step_spec import StepSpec
from eosframework.topology.spec.topology_spec import (
    DeadLetter,
    SinkSpec,
    SourceSpec,
    StreamSpec,
    TableSpec,
    TopologySpec,
    extended,
    relation_parts,
)

LONGEST_TABLE_NAME = 63
"""PostgreSQL truncates longer names, and two truncated names may collide."""

_SUFFIX = re.compile(r"[a-z0-9_]{1,40}")

Part = TypeVar("Part", bound=BaseModel)


def renamed(app: LoadedApp, suffix: str) -> LoadedApp:
    """Return a copy of `app` whose outputs all have the suffix.

    Raises:
        ConfigurationError: the suffix cannot be part of the names.
    """
    if _SUFFIX.fullmatch(suffix) is None:
        raise ConfigurationError(
            f"suffix {suffix!r} cannot follow the names of applications, topics and tables; "
            f"expected up to 40 lower-case letters a-z, digits and '_', for example: fixed"
        )
    written = written_topics(app.spec)
    choosers: dict[str, Any] = {}
    streams = {
        stream: _stream(declared, suffix, app, choosers)
        for stream, declared in app.spec.streams.items()
    }
    sources = {
        source: _source(declared, written, suffix) for source, declared in app.spec.sources.items()
    }
    spec = app.spec.model_copy(
        update={
            "application": suffixed(app.spec.application, suffix),
            "sources": sources,
            "streams": streams,
        }
    )
    return replace(app, spec=spec, objects={**app.objects, **choosers})


def suffixed(name: str, suffix: str) -> str:
    """Return the name of an application or topic with the suffix."""
    return f"{name}_{suffix}"


def suffixed_table(name: str, suffix: str) -> str:
    """Return the name of a table with the suffix."""
    return extended(name, f"_{suffix}")


def written_topics(spec: TopologySpec) -> set[str]:
    """Return the topics that a topology names and writes to."""
    topics: set[str] = set()
    for part in (*spec.sources.values(), *spec.streams.values()):
        if isinstance(part.on_error, DeadLetter):
            topics.add(part.on_error.dead_letter)
    for name, stream in spec.streams.items():
        topics.update(topic for _, topic in late_topics(name, stream))
        for _, sink in stream.sinks:
            topics.update(sink.topics if sink.topic is None else (sink.topic,))
    return topics


def _source(declared: SourceSpec, written: Collection[str], suffix: str) -> SourceSpec:
    changes: dict[str, Any] = {"on_error": _policy(declared.on_error, suffix)}
    if declared.topic in written:
        changes["topic"] = suffixed(declared.topic, suffix)
    return _changed(declared, changes)


def _stream(
    declared: StreamSpec, suffix: str, app: LoadedApp, choosers: dict[str, Any]
) -> StreamSpec:
    return _changed(
        declared,
        {
            "on_error": _policy(declared.on_error, suffix),
            "steps": tuple(_step(step, suffix) for step in declared.steps),
            "to": tuple(
                _table(sink, suffix)
                if isinstance(sink, TableSpec)
                else _sink(sink, suffix, app, choosers)
                for sink in declared.to
            ),
        },
    )


def _step(step: StepSpec, suffix: str) -> StepSpec:
    """Return a step whose topic for late records has the suffix."""
    operator = step.operator
    declared = getattr(step, operator)
    window = None if step.aggregates is None else step.aggregates.window
    if window is not None and window.late is not None:
        late = _changed(window, {"late": suffixed(window.late, suffix)})
        return _changed(step, {operator: _changed(declared, {"window": late})})
    for timed in (step.deduplicate, step.join):
        if timed is not None and timed.late is not None:
            return _changed(
                step, {operator: _changed(timed, {"late": suffixed(timed.late, suffix)})}
            )
    return step


def _sink(sink: SinkSpec, suffix: str, app: LoadedApp, choosers: dict[str, Any]) -> SinkSpec:
    if sink.topic is not None:
        return _changed(sink, {"topic": suffixed(sink.topic, suffix)})
    chooser = f"{sink.topic_from}_{suffix}"
    choosers[chooser] = _beside(app.find(f"{sink.topic_from}"), suffix)
    topics = tuple(suffixed(topic, suffix) for topic in sink.topics)
    return _changed(sink, {"topic_from": chooser, "topics": topics})


def _beside(choose: Callable[[Any], Any], suffix: str) -> Callable[[Any], Any]:
    @wraps(choose)
    def beside(record: Any) -> Any:
        topic = choose(record)  # the sink refuses a result that is not a name
        return suffixed(topic, suffix) if isinstance(topic, str) else topic

    return beside


def _table(table: TableSpec, suffix: str) -> TableSpec:
    name = suffixed_table(table.table, suffix)
    if len(relation_parts(name)[-1].encode()) > LONGEST_TABLE_NAME:
        raise ConfigurationError(
            f"table {name!r} would have a name of more than {LONGEST_TABLE_NAME} bytes, which "
            f"PostgreSQL cuts; choose a suffix shorter than {suffix!r}"
        )
    return _changed(table, {"table": name})


def _policy(policy: str | DeadLetter | None, suffix: str) -> str | DeadLetter | None:
    if isinstance(policy, DeadLetter):
        return _changed(policy, {"dead_letter": suffixed(policy.dead_letter, suffix)})
    return policy


def _changed(part: Part, changes: Mapping[str, Any]) -> Part:
    """Return a copy; fields that stay equal do not count as set by the user."""
    differing = {name: value for name, value in changes.items() if value != getattr(part, name)}
    return part.model_copy(update=differing)
