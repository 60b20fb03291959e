"""Sources by pattern: each topic that matches gets a sub-topology of its own (ADR 44).

The sub-topologies of one pattern share their steps and nothing else: no task reads two of these
topics, so their numbers of partitions need not be equal, and workers that know different topics
divide no task.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eosframework.errors import TopologyError
from eosframework.topology.graph.graph import Function, Graph, SourcePattern, SubTopology
from eosframework.topology.graph.timed_topics import timed_topics
from eosframework.topology.spec.topology_spec import matches

_LONGEST_LABEL = 100
_PLAIN = re.compile(r"(?:[A-Za-z0-9_-]|\\[.-])+")
"""The start of a regular expression that stands for itself."""
_OTHER = re.compile(r"[^a-z0-9_.]")


def divided(
    parts: Sequence[SubTopology], patterns: Mapping[str, str]
) -> tuple[tuple[SourcePattern, ...], list[SubTopology]]:
    """Return the sources by pattern, and the sub-topologies with the other sources.

    Args:
        parts: of a topology; what follows a pattern's source keeps no state.
        patterns: by the topic that stands for one.
    """
    found = tuple(
        SourcePattern(
            source.name,
            patterns[source.topic],
            replace(part, sources=(source,), stores=(), together=(), effects_topic=None),
        )
        for part in parts
        for source in part.sources
        if source.topic in patterns
    )
    stated = [
        replace(part, sources=tuple(s for s in part.sources if s.topic not in patterns))
        for part in parts
    ]
    return found, stated


def refuse_timed(graph: Graph) -> None:
    """Refuse steps that wait for the watermarks of tasks of a source by pattern.

    A topic that is found later begins before the stream time that the others have reached.

    Raises:
        TopologyError: names the source and the topic through which its records go.
    """
    timed = timed_topics(replace(graph, sub_topologies=graph.all_parts))
    for one in graph.patterns:
        for topic in timed.values():
            if topic.writer == one.part.name:
                raise TopologyError(
                    f"{_label(one)} writes {topic.topic!r}, whose reader goes by stream time: the "
                    f"records of a topic that is found later would be late. Write them to a topic, "
                    f"and read that as a source of its own, in this application or another"
                )


def with_matched(graph: Graph, topics: Iterable[str]) -> Graph:
    """Return a graph with a sub-topology for each topic that a pattern matches, and no other.

    Args:
        graph: of the application, with the topics of an earlier call or without.
        topics: names of topics that exist.

    Raises:
        TopologyError: two sources read a topic, or two sub-topologies would have one name.
    """
    if not graph.patterns:
        return graph
    stated = [part for part in graph.sub_topologies if part.matched_by is None]
    readers = {topic: f"source of {part.name}" for part in stated for topic in part.topics}
    readers |= {table.topic: f"global table {table.name}" for table in graph.global_tables}
    written, added = {*graph.written_topics}, list[SubTopology]()
    for topic in sorted(set(topics)):
        for one in graph.patterns:
            if not matches(one.pattern, topic):
                continue
            if topic in written:
                raise TopologyError(_loop(one, topic))
            if (other := readers.setdefault(topic, _label(one))) != _label(one):
                raise TopologyError(
                    f"topic {topic!r} matches {_label(one)} and is read by {other} as well: one "
                    f"task must own each partition. Narrow a pattern so that one source reads it"
                )
            added.append(_part_of(one, topic))
    _refuse_equal_names([*stated, *added])
    return replace(graph, sub_topologies=(*stated, *added))


def matched_by_pattern(graph: Graph) -> dict[str, list[str]]:
    """Return the topics that each source by pattern reads, by the source's name."""
    matched = graph.matched_topics
    return {
        one.source: sorted(t for t in matched if matches(one.pattern, t)) for one in graph.patterns
    }


def shown_name(one: SourcePattern) -> str:
    """Return the name that stands for the sub-topologies of a pattern."""
    return f"{one.part.name}.{{{one.source}}}"


def with_patterns_shown(graph: Graph) -> Graph:
    """Return a graph for display and for the record: each pattern has one sub-topology."""
    stated = [part for part in graph.sub_topologies if part.matched_by is None]
    shown = [replace(one.part, name=shown_name(one)) for one in graph.patterns]
    return replace(graph, sub_topologies=(*stated, *shown))


def literal_prefix(pattern: str) -> str:
    """Return the text with which every topic begins that a pattern matches, as far as it shows."""
    if "|" in pattern:
        return ""
    found = _PLAIN.match(pattern)
    plain, rest = ("", pattern) if found is None else (found[0], pattern[found.end() :])
    if rest[:1] in {"*", "?", "{"}:
        plain = plain[: -2 if plain[-2:-1] == "\\" else -1]
    return plain.replace("\\", "")


def not_read(chooser: Function, patterns: Sequence[str]) -> Function:
    """Return a chooser of topics that refuses those that a pattern of the application matches."""
    call, allowed = chooser.call, set[str]()

    def choose(record: Any) -> str:
        topic: str = call(record)
        if topic not in allowed:
            for pattern in patterns:
                if matches(pattern, topic):
                    raise ValueError(
                        f"{chooser.name} chose topic {topic!r}, which matches the source pattern "
                        f"{pattern!r}: the record would be read again. Narrow the pattern, or "
                        f"choose another topic"
                    )
            allowed.add(topic)
        return topic

    return Function(chooser.name, choose)


def _loop(one: SourcePattern, topic: str) -> str:
    return (
        f"topic {topic!r}, which the application writes, matches {_label(one)}: its outputs would "
        f"be read again. Narrow the pattern, or rename the output"
    )


def _label(one: SourcePattern) -> str:
    return f"pattern {one.pattern!r} of source {one.source!r}"


def _part_of(one: SourcePattern, topic: str) -> SubTopology:
    [source] = one.part.sources
    return replace(
        one.part,
        name=f"{one.part.name}.{_as_name(topic)}",
        sources=(replace(source, topic=topic),),
        matched_by=one.pattern,
    )


def _as_name(topic: str) -> str:
    """Return a topic's name in the characters that a sub-topology may have.

    A name that is not the topic's own ends with a part of its digest, so that `a-b` and `a_b` stay
    two.
    """
    plain = _OTHER.sub("_", topic.lower())[:_LONGEST_LABEL]
    if plain == topic:
        return topic
    return f"{plain}.{hashlib.sha256(topic.encode()).hexdigest()[:8]}"


def _refuse_equal_names(parts: Sequence[SubTopology]) -> None:
    named: dict[str, SubTopology] = {}
    for part in parts:
        other = named.setdefault(part.name, part)
        if other is not part:
            raise TopologyError(
                f"the tasks of topic {part.topics[0]!r} and of {other.topics[0]!r} would both be "
                f"named {part.name!r}, and share transactional ids; give one of their sources "
                f"another name:"
            )
