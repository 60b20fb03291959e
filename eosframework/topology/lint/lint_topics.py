"""Lint rules for the topics that a topology reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.records import TOPIC_NAME
from eosframework.topology.lowering.lowering import rows_topics
from eosframework.topology.lowering.parts import connected_parts, name_of_part, origins
from eosframework.topology.spec.loaded import Finding, LoadedApp, Path, Severity
from eosframework.topology.spec.topology_spec import DeadLetter, StreamSpec, TopologySpec
from eosframework.txnid import registry_topic


def topic_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about topics."""
    yield from _topic_names(app)
    yield from _sources_twice(app)
    yield from _sinks_twice(app)
    yield from _sink_serdes(app)
    yield from _dead_letters(app)
    yield from _late_loops(app)
    yield from _loops(app)


def _topic_names(app: LoadedApp) -> Iterator[Finding]:
    registry = registry_topic(app.spec.application)
    own = set(rows_topics(app.spec).values())
    for path, topic in _topics(app.spec):
        if not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            yield app.finding(
                path,
                "topic-name",
                f"{topic!r} cannot be a topic; Kafka allows 1 to 249 of the characters a-z, A-Z, "
                f"0-9, '.', '_' and '-'",
            )
        elif topic == registry:
            yield app.finding(
                path,
                "topic-name",
                f"topic {topic!r} is the application's control topic; use another topic",
            )
        elif topic in own:
            yield app.finding(
                path,
                "topic-name",
                f"topic {topic!r} holds the rows of a table of this application; use another topic",
            )


def _topics(spec: TopologySpec) -> Iterator[tuple[Path, str]]:
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


def late_topics(name: str, stream: StreamSpec) -> Iterator[tuple[Path, str]]:
    """Yield the topics for late records of a stream's steps, with their places."""
    for i, step in enumerate(stream.steps):
        place: Path = ("streams", name, "steps", i, step.operator)
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
