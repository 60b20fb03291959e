"""Lint rules for the topics that a topology reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.records import TOPIC_NAME
from eosframework.topology.lowering.lowering import TAIL, Lowered
from eosframework.topology.lowering.parts import connected_parts, name_of_part, origins
from eosframework.topology.spec.kept_names import Kind
from eosframework.topology.spec.loaded import KEY, Finding, LoadedApp, Severity, SpecPath
from eosframework.topology.spec.topology_spec import DeadLetter, SinkSpec, StreamSpec, TopologySpec
from eosframework.txnid import (
    InternalTopic,
    changelog_topic,
    control_topic,
    metric_name,
    ownership_topic,
    repartition_topic,
    replay_topic,
    reserved_topic,
    rows_topic,
)

LONGEST_TOPIC = 249


def topic_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about topics."""
    yield from _topic_names(app)
    yield from _sources_twice(app)
    yield from _sinks_twice(app)
    yield from _sink_serdes(app)
    yield from _sink_topics(app)
    yield from _dead_letters(app)
    yield from _late_loops(app)
    yield from _loops(app)


def _topic_names(app: LoadedApp) -> Iterator[Finding]:
    own = metric_name(app.spec.application)
    for path, topic in _topics(app.spec):
        if not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            yield app.finding(
                path,
                "topic-name",
                f"{topic!r} cannot be a topic; Kafka allows 1 to 249 of the characters a-z, A-Z, "
                f"0-9, '.', '_' and '-'",
            )
        elif (named := InternalTopic.parse(topic)) and metric_name(named.application) == own:
            yield app.finding(
                path,
                "topic-name",
                f"topic {topic!r} has the name of an internal topic of this application "
                f"({named.kind}); use another topic",
            )
        elif path[-1] != "topic" or path[0] != "sources":
            yield from _reserved(app, path, topic)


def _reserved(app: LoadedApp, path: SpecPath, topic: str) -> Iterator[Finding]:
    if reason := reserved_topic(topic):
        yield app.finding(
            path,
            "reserved-topic",
            f"{reason}. If such an application exists, a record of another one damages its state; "
            f"use another name",
            Severity.WARNING,
        )


def internal_topic_findings(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return the findings about internal topics, of a topology without other errors."""
    seen: dict[str, tuple[str, SpecPath]] = {}
    for path, topic in (*_topics(app.spec), *_internal_topics(app, lowered)):
        other, first = seen.setdefault(metric_name(topic), (topic, path))
        is_declared = InternalTopic.parse(topic) is None
        if len(topic) > LONGEST_TOPIC:
            message = (
                f"internal topic {topic!r} has a name of {len(topic)} characters; Kafka allows "
                f"{LONGEST_TOPIC}. Give the application or this part a shorter name"
            )
        elif other != topic:
            message = (
                f"topics {other!r} and {topic!r} differ in '.' and '_' only, which are the same "
                f"in the names of Kafka's metrics, so brokers refuse the second topic. Give one of "
                f"them another name"
            )
        elif first != path and not is_declared:
            message = (
                f"internal topic {topic!r} is made for two parts of the topology; give this one "
                f"another name, for a group_by with name:"
            )
        else:
            continue
        yield app.finding(path, "topic-name", message)


def _internal_topics(app: LoadedApp, lowered: Lowered) -> Iterator[tuple[SpecPath, str]]:
    """Yield the names of internal topics, those of retries by the replay topic of each source."""
    application, spec = app.spec.application, app.spec
    yield ("application",), control_topic(application)
    yield ("application",), ownership_topic(application)
    tails: dict[str, SpecPath] = {}
    for kept in lowered.kept:
        yield kept.path, _TOPICS[kept.kind](application, kept.name)
        if kept.kind is Kind.REPARTITION:
            tails[f"{kept.name}{TAIL}"] = kept.path
    for name in lowered.app.spec.sources:
        place = ("sources", name, KEY) if name in spec.sources else (*tails[name], TAIL)
        yield place, replay_topic(application, name)


_TOPICS = {
    Kind.STORE: changelog_topic,
    Kind.REPARTITION: repartition_topic,
    Kind.ROWS: rows_topic,
}
"""The internal topic of what is kept under a name."""


def _topics(spec: TopologySpec) -> Iterator[tuple[SpecPath, str]]:
    for name, source in spec.sources.items():
        yield ("sources", name, "topic"), source.topic
        if isinstance(source.on_error, DeadLetter):
            yield ("sources", name, "on_error", "dead_letter"), source.on_error.dead_letter
    for name, stream in spec.streams.items():
        if isinstance(stream.on_error, DeadLetter):
            yield ("streams", name, "on_error", "dead_letter"), stream.on_error.dead_letter
        yield from late_topics(name, stream)
        for i, sink in stream.sinks:
            if sink.topic is not None:
                yield ("streams", name, "to", i, "topic"), sink.topic
            for j, topic in enumerate(sink.topics):
                yield ("streams", name, "to", i, "topics", j), topic


def late_topics(name: str, stream: StreamSpec) -> Iterator[tuple[SpecPath, str]]:
    """Yield the topics for late records of a stream's steps, with their places."""
    for i, step in enumerate(stream.steps):
        place: SpecPath = ("streams", name, "steps", i, step.operator)
        window = None if step.aggregates is None else step.aggregates.window
        if window is not None and window.late is not None:
            yield (*place, "window", "late"), window.late
        for timed in (step.deduplicate, step.join):
            if timed is not None and timed.late is not None:
                yield (*place, "late"), timed.late


def _late_loops(app: LoadedApp) -> Iterator[Finding]:
    reads = {source.topic: name for name, source in app.spec.sources.items()}
    for name, stream in app.spec.streams.items():
        for path, topic in late_topics(name, stream):
            if topic in reads:
                yield app.finding(
                    path,
                    "late",
                    f"topic {topic!r} of late records is also source {reads[topic]!r}; a late "
                    f"record would be read again and be late forever. Use a topic of its own",
                )


def _sources_twice(app: LoadedApp) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for name, source in app.spec.sources.items():
        other = app.spec.sources[first.setdefault(source.topic, name)]
        settings = ("key", "value", "timestamp", "on_error", "history")
        for setting in () if source.global_ or other.global_ else settings:
            mine, theirs = getattr(source, setting), getattr(other, setting)
            if mine != theirs:
                yield app.finding(
                    ("sources", name, setting),
                    "source-twice",
                    f"sources {first[source.topic]!r} and {name!r} both read topic "
                    f"{source.topic!r}, but {setting} is {theirs!r} in one and {mine!r} in the "
                    f"other; a record is decoded once, so use one source",
                )


def _sinks_twice(app: LoadedApp) -> Iterator[Finding]:
    for name, stream in app.spec.streams.items():
        seen: dict[str, str] = {}
        for i, sink in stream.sinks:
            place = ("streams", name, "to", i)
            if sink.topic is not None and sink.topic in seen:
                message = (
                    f"stream {name!r} has two sinks to topic {sink.topic!r}; every record would "
                    f"be written twice. Keep one"
                )
                yield app.finding(place, "duplicate-sink", message)
            elif sink.label in seen.values():
                message = (
                    f"stream {name!r} has two sinks named {sink.label!r}; give one another name"
                )
                yield app.finding(place, "duplicate-sink", message)
            seen[sink.topic or f"{sink.topic_from}"] = sink.label


def _sink_serdes(app: LoadedApp) -> Iterator[Finding]:
    spec = app.spec
    for name, stream in spec.streams.items():
        sources = origins(spec, name)
        for i, sink in enumerate(stream.to):
            for part in ("key", "value"):
                serdes = {getattr(spec.sources[source], part) for source in sources}
                if getattr(sink, part) is None and len(serdes) > 1:
                    yield app.finding(
                        ("streams", name, "to", i),
                        "sink-serde",
                        f"sink {sink.label!r} of stream {name!r} has no {part} serde, and its "
                        f"sources have different ones ({', '.join(sorted(serdes))}); state {part}:",
                    )


def _sink_topics(app: LoadedApp) -> Iterator[Finding]:
    """Yield sinks that want a topic to be created in different ways."""
    first: dict[str, SinkSpec] = {}
    for name, stream in app.spec.streams.items():
        for i, sink in enumerate(stream.to):
            if not isinstance(sink, SinkSpec) or sink.topic is None or sink.creation == (None, {}):
                continue
            other = first.setdefault(sink.topic, sink)
            if other.creation != sink.creation:
                yield app.finding(
                    ("streams", name, "to", i),
                    "sink-topic",
                    f"topic {sink.topic!r} has other partitions, retention or settings in another "
                    f"sink; state them at one of the sinks, or the same at all",
                )


def _dead_letters(app: LoadedApp) -> Iterator[Finding]:
    reads = {source.topic: name for name, source in app.spec.sources.items()}
    for section, declared in (("sources", app.spec.sources), ("streams", app.spec.streams)):
        for name, part in declared.items():
            policy = part.on_error
            if isinstance(policy, DeadLetter) and policy.dead_letter in reads:
                yield app.finding(
                    (section, name, "on_error", "dead_letter"),
                    "dead-letter",
                    f"dead-letter topic {policy.dead_letter!r} is also source "
                    f"{reads[policy.dead_letter]!r}; a record that fails would be read again and "
                    f"fail forever. Use a topic of its own",
                )


def _loops(app: LoadedApp) -> Iterator[Finding]:
    spec = app.spec
    for part in connected_parts(spec):
        reads = {spec.sources[source].topic for source in part.sources}
        for stream in part.streams:
            for i, sink in spec.streams[stream].sinks:
                written = sorted(reads & {sink.topic, *sink.topics})
                for topic in written:
                    yield app.finding(
                        ("streams", stream, "to", i),
                        "loop",
                        f"sub-topology {name_of_part(spec, part)!r} writes topic {topic!r}, "
                        f"which it also reads; make sure that records stop going round",
                        Severity.WARNING,
                    )
