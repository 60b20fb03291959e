"""Lint rules for the topics that a topology reads and writes.

Lint rules for serdes that use a schema registry.
Only topics shared with other applications may use them. State and internal topics use the models of
the values, so that reading them needs no schema registry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from string import ascii_lowercase

from eosframework.errors import TopologyError
from eosframework.records import TOPIC_NAME
from eosframework.serialization.schemas import Format, Registered
from eosframework.topology.lowering.lowering import TAIL, Lowered
from eosframework.topology.lowering.parts import (
    branch_parents,
    connected_parts,
    is_global,
    name_of_part,
    origins,
)
from eosframework.topology.spec.loaded import (
    KEY,
    Finding,
    Fix,
    KeptName,
    Kind,
    LoadedApp,
    Option,
    Severity,
    SpecPath,
)
from eosframework.topology.spec.step_spec import StepSpec
from eosframework.topology.spec.topology_spec import (
    DeadLetter,
    SinkSpec,
    SourceSpec,
    StreamSpec,
    TopologySpec,
)
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

AMBIGUOUS = "ambiguous-name"


def ambiguous_names(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return the names that several steps would have; the topology has no other errors."""
    named: dict[tuple[Kind, str], list[KeptName]] = {}
    for kept in lowered.kept:
        named.setdefault((kept.kind, kept.name), []).append(kept)
    twice = {key: found for key, found in named.items() if len(found) > 1}
    topics = {name for kind, name in twice if kind is Kind.REPARTITION}
    taken = {name for _, name in named}
    for (kind, _), found in twice.items():
        derived = [k for k in found if not k.is_stated and k.base not in topics]
        for kept, proposal in zip(derived, _proposals(derived, taken), strict=True):
            yield _ambiguous(app, kept, [k for k in found if k is not kept], proposal)
        if kind is Kind.STORE and all(kept.is_stated for kept in found):
            yield from _duplicates(app, found)


def derived_names(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return all names that are not stated; the topology has no errors."""
    for kept in lowered.kept:
        if not kept.is_stated and not kept.is_anchored:
            yield _finding(
                app,
                kept,
                kept.name,
                "derived-name",
                f"{kept.kind} {kept.name!r} has a derived name, which changes if the steps before "
                f"it do. State it: {kept.line(kept.name)}",
                Severity.WARNING,
            )


def _ambiguous(
    app: LoadedApp, kept: KeptName, others: Sequence[KeptName], proposal: str
) -> Finding:
    where = ", ".join(f"{other.place}" for other in others)
    return _finding(
        app,
        kept,
        proposal,
        AMBIGUOUS,
        f"{kept.kind} {kept.name!r} would be that of this step and of {where}: an edit could give "
        f"one what belongs to the other. Name each of them, this one for example "
        f"{kept.line(proposal)}; if one has run, `eosframework plan` names its line",
        Severity.ERROR,
    )


def _finding(
    app: LoadedApp, kept: KeptName, value: str, rule: str, message: str, severity: Severity
) -> Finding:
    option = "" if kept.option is Option.NAMED else str(kept.option)
    fix = Fix(kept.path, option, value.removesuffix(kept.suffix))
    return Finding(app.source_map.find(kept.path), rule, message, severity, fix)


def _duplicates(app: LoadedApp, found: Sequence[KeptName]) -> Iterator[Finding]:
    for kept in found[1:]:
        yield app.finding(
            kept.path,
            "duplicate-store",
            f"store {kept.name!r} is declared twice (line {found[0].place.line}); each step that "
            f"keeps something needs one of its own. Give this one another name: "
            f"{kept.option}: NAME",
        )


def _proposals(derived: Sequence[KeptName], taken: Set[str]) -> list[str]:
    """Return a name for each: with the first function that differs, or with an own end, `.a`."""
    starts = [kept.name.removesuffix(kept.suffix) for kept in derived]
    for words in zip(*(kept.words for kept in derived), strict=False):
        names = [f"{start}.{word}" for start, word in zip(starts, words, strict=True)]
        if len({*words}) == len(words) > 1 and taken.isdisjoint(names):
            return _with_suffixes(derived, names)
    ends = (ascii_lowercase[i % 26] * (1 + i // 26) for i in range(len(derived)))
    names = [f"{start}.{end}" for start, end in zip(starts, ends, strict=True)]
    return _with_suffixes(derived, names)


def _with_suffixes(derived: Sequence[KeptName], names: Sequence[str]) -> list[str]:
    return [f"{name}{kept.suffix}" for kept, name in zip(derived, names, strict=True)]


def schema_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about single declarations."""
    for name, stream in app.spec.streams.items():
        for i, step in enumerate(stream.steps):
            for path, serde in _stated_inside(step):
                if (declared := _registered(serde)) is not None:
                    yield app.finding(
                        ("streams", name, "steps", i, step.operator, *path),
                        "schema",
                        f"stream {name!r}: {declared} stands where values stay inside the "
                        f"application, which takes no registry; state json or "
                        f"{declared.model or declared.message or 'module:Model'}",
                    )
        for i, sink in stream.sinks:
            yield from _written(app, name, i, sink)


def storage_findings(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return values that cannot be stored in their form; the topology has no other errors."""
    for name, source in app.spec.sources.items():
        yield from _tables(app, name, source)
    for name, stream in app.spec.streams.items():
        facts = [lowered.facts[parent] for parent in stream.from_]
        values, keys = [each.value for each in facts], [each.key for each in facts]
        yield from _unwritable_default(app, lowered, name, stream)
        waits = [s.join.with_ for s in stream.steps if s.join is not None and s.join.is_within]
        if waits or name in lowered.rows or _moves(lowered, name):
            others = [lowered.facts[other].value for other in waits]
            yield from _unkept(app, name, [*values, *others])
        if any(_goes_by_key(app, step) for step in stream.steps):
            regrouped = stream.steps and stream.steps[0].group_by is not None
            if not regrouped:
                yield from _keys(app, ("streams", name), f"stream {name!r}", keys)


def _registered(serde: str | None) -> Registered | None:
    """Return the registry options of a serde; another rule reports invalid ones."""
    try:
        return None if serde is None else Registered.parse(serde)
    except TopologyError:
        return None


def _stated_inside(step: StepSpec) -> Iterator[tuple[SpecPath, str | None]]:
    if step.aggregates is not None:
        yield ("value",), step.aggregates.value
    if step.group_by is not None:
        yield ("key",), step.group_by.key
        yield ("value",), step.group_by.value
    if step.join is not None:
        yield ("value",), step.join.value
        yield ("with_value",), step.join.with_value
    if step.handler is not None:
        for name, kept in step.handler.declared_stores.items():
            yield ("stores", name, "key"), kept.key
            yield ("stores", name, "value"), kept.value


def _written(app: LoadedApp, stream: str, i: int, sink: SinkSpec) -> Iterator[Finding]:
    for part in ("key", "value"):
        declared = _registered(getattr(sink, part))
        place = ("streams", stream, "to", i, part)
        if declared is not None and not declared.writes:
            yield app.finding(place, "schema", _no_schema(sink.label, stream, declared))
        elif declared is not None and sink.topic is None and declared.subject is None:
            yield app.finding(
                place,
                "schema",
                f"sink {sink.label!r} of stream {stream!r} chooses its topic for each record, so "
                f"the {part}'s subject does not follow from it; give {declared.format} a subject",
            )


def _unwritable_default(
    app: LoadedApp, lowered: Lowered, name: str, stream: StreamSpec
) -> Iterator[Finding]:
    """Find sinks that inherit the serde of a source and cannot write with it."""
    for i, sink in stream.sinks:
        for part in ("key", "value"):
            declared = _registered(getattr(lowered.facts[name], part))
            if getattr(sink, part) is not None or declared is None:
                continue
            place = ("streams", name, "to", i)
            if not declared.writes:
                yield app.finding(place, "schema", _no_schema(sink.label, name, declared))
            elif sink.topic is None:
                yield app.finding(
                    place,
                    "schema",
                    f"sink {sink.label!r} of stream {name!r} chooses its topic for each record, "
                    f"and would write each {part} as {declared}; state {part}: with a subject, or "
                    f"one without a schema",
                )


def _no_schema(sink: str, stream: str, declared: Registered) -> str:
    wanted = "schema" if declared.format is Format.AVRO else "schema or model"
    return (
        f"sink {sink!r} of stream {stream!r} writes {declared}, which has no schema to write with; "
        f"give it a {wanted}"
    )


def _moves(lowered: Lowered, name: str) -> bool:
    """Return True if records of a stream pass through a repartition topic."""
    return any(f"{name}." in writer for writer, _ in lowered.repartitions.values())


def _tables(app: LoadedApp, name: str, source: SourceSpec) -> Iterator[Finding]:
    if source.is_table and not source.global_:
        declared = _registered(source.value)
        if declared is not None and declared.format is Format.AVRO and declared.model is None:
            place = ("sources", name, "value")
            yield app.finding(place, "schema", _no_model(f"rows of source {name!r}", declared))
    if source.is_table or source.global_:
        yield from _keys(app, ("sources", name, "key"), f"table {name!r}", [source.key])


def _unkept(app: LoadedApp, name: str, values: list[str]) -> Iterator[Finding]:
    for declared in filter(None, map(_registered, values)):
        if declared.format is Format.AVRO and declared.model is None:
            place = ("streams", name)
            yield app.finding(place, "schema", _no_model(f"values of stream {name!r}", declared))


def _no_model(what: str, declared: Registered) -> str:
    return (
        f"{what} are kept inside the application, and are {declared}, whose maps JSON cannot keep "
        f"as they are; give avro a model, or make the values before they are kept"
    )


def _goes_by_key(app: LoadedApp, step: StepSpec) -> bool:
    joins = step.join is not None and not is_global(app.spec, step.join.with_)
    return joins or step.needs_key


def _keys(app: LoadedApp, path: SpecPath, what: str, keys: list[str]) -> Iterator[Finding]:
    for declared in filter(None, map(_registered, keys)):
        yield app.finding(
            path,
            "schema",
            f"{what} goes by keys that are {declared}: their bytes hold the schema's number, so "
            f"equal keys differ once it has a new version. Give the records another key: "
            f"group_by, with key: string",
        )


_LONGEST_TOPIC = 249


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
        if len(topic) > _LONGEST_TOPIC:
            message = (
                f"internal topic {topic!r} has a name of {len(topic)} characters; Kafka allows "
                f"{_LONGEST_TOPIC}. Give the application or this part a shorter name"
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
        if source.pattern is None:
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


def written_places(spec: TopologySpec) -> Iterator[tuple[SpecPath, str]]:
    """Yield the topics that a topology names and writes to, with their places."""
    for path, topic in _topics(spec):
        if path[0] != "sources" or path[-1] != "topic":
            yield path, topic


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
        if _is_cogrouped(spec, name):
            continue
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


def _is_cogrouped(spec: TopologySpec, name: str, seen: frozenset[str] = frozenset()) -> bool:
    """Return whether values come from a `cogroup`, whose keys are the same and aggregates its own.

    Another rule compares the keys.
    """
    stream = spec.streams.get(branch_parents(spec).get(name, name))
    if stream is None or name in seen:
        return False
    if any(step.cogroup is not None for step in stream.steps):
        return True
    return all(_is_cogrouped(spec, parent, seen | {name}) for parent in stream.from_)


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
