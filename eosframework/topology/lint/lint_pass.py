"""The lint pass over a whole topology.

The fixes of findings: options written into a topology's Python or YAML file.
Python gets a keyword argument in the call whose end was recorded, YAML an entry of the step's map.
A fix that has no such place is left to the user.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import yaml

from eosframework.errors import TopologyError
from eosframework.serialization.references import closest
from eosframework.topology.lint.lint_calls import (
    call_findings,
    effect_findings,
    order_call_findings,
    resources_at,
    wrong_kind,
)
from eosframework.topology.lint.lint_changes import change_findings
from eosframework.topology.lint.lint_joins import (
    cogroup_findings,
    join_findings,
    key_findings,
    table_findings,
)
from eosframework.topology.lint.lint_patterns import pattern_findings
from eosframework.topology.lint.lint_steps import (
    arrival_findings,
    batch_findings,
    order_findings,
    retry_findings,
    returns_nothing,
    wrong_arguments,
)
from eosframework.topology.lint.lint_topics import (
    AMBIGUOUS,
    ambiguous_names,
    derived_names,
    internal_topic_findings,
    schema_findings,
    storage_findings,
    topic_findings,
)
from eosframework.topology.lowering.lowering import Lowered, lower
from eosframework.topology.lowering.parts import connected_parts, in_order, name_of_part
from eosframework.topology.spec.loaded import (
    KEY,
    Finding,
    Fix,
    LoadedApp,
    Place,
    Severity,
    SpecPath,
)
from eosframework.topology.spec.step_spec import CALLS, SIDE_EFFECTS, StepSpec
from eosframework.topology.spec.topology_spec import DEFAULT_BRANCH, StreamSpec
from eosframework.txnid import refuse_bad_application, refuse_bad_name, refuse_reserved_name


def lint(app: LoadedApp) -> list[Finding]:
    """Return all findings, errors and warnings, in the order of their places."""
    findings = [*app.problems, *(finding for rule in _RULES for finding in rule(app))]
    if not _has_errors(findings):
        lowered = lower(app)
        findings += ambiguous_names(app, lowered)
        if not _has_errors(findings):
            findings += [finding for rule in _LOWERED_RULES for finding in rule(app, lowered)]
            findings += change_findings(app)
    unique = {(f.place, f.message): f for f in findings}
    return sorted(unique.values(), key=lambda finding: finding.place)


def lint_strictly(app: LoadedApp) -> list[Finding]:
    """Return the same findings, and those of `strict_findings`."""
    findings = lint(app)
    return sorted([*findings, *strict_findings(app, findings)], key=lambda found: found.place)


def strict_findings(app: LoadedApp, findings: Iterable[Finding]) -> list[Finding]:
    """Return the names that are derived, and the steps whose results depend on arrival.

    Args:
        app: the topology.
        findings: those of `lint`; with an error among them there are no further ones.
    """
    if _has_errors(findings):
        return []
    lowered = lower(app)
    return [*derived_names(app, lowered), *arrival_findings(app, lowered)]


def _has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.severity is Severity.ERROR for finding in findings)


def _names(app: LoadedApp) -> Iterator[Finding]:
    spec = app.spec
    named: list[tuple[SpecPath, str, str]] = []
    for name, source in spec.sources.items():
        named.append((("sources", name, KEY), "source", name))
        if source.name is not None:
            named.append((("sources", name, "name"), "sub-topology", source.name))
    for name, stream in spec.streams.items():
        named.append((("streams", name, KEY), "stream", name))
        for branch in stream.branch_names:
            named.append((_branch_path(name, stream, branch), "branch", branch))
        for i, step in enumerate(stream.steps):
            named += _stated_names(("streams", name, "steps", i, step.operator), step)
    bad_application = partial(refuse_bad_application, spec.application)
    yield from app.refusals(("application",), "name", bad_application)
    for path, what, name in named:
        yield from app.refusals(path, "name", partial(refuse_bad_name, what, name))


def _stated_names(path: SpecPath, step: StepSpec) -> Iterator[tuple[SpecPath, str, str]]:
    declared = getattr(step, step.operator)
    if (store := getattr(declared, "store", None)) is not None:
        yield path, "store", store
    if (group := step.group_by) is not None and group.name is not None:
        yield path, "group_by", group.name
    if (handler := step.handler) is not None:
        if handler.name is not None:
            yield path, "process", handler.name
        for store in handler.stores:
            yield (*path, "stores", store), "store", store


def _duplicate_names(app: LoadedApp) -> Iterator[Finding]:
    seen: dict[str, tuple[str, SpecPath]] = {
        name: ("source", ("sources", name, KEY)) for name in app.spec.sources
    }
    declared: list[tuple[str, str, SpecPath]] = []
    for name, stream in app.spec.streams.items():
        declared.append((name, "stream", ("streams", name, KEY)))
        for branch in stream.branch_names:
            declared.append((branch, "branch", _branch_path(name, stream, branch)))
    for name, what, path in declared:
        if name not in seen:
            seen[name] = (what, path)
            continue
        other, first = seen[name]
        yield app.finding(
            path,
            "duplicate-name",
            f"{what} {name!r} has the name of a {other} (line "
            f"{app.source_map.find(first).line}); what streams read needs names of its own",
        )


def _parents(app: LoadedApp) -> Iterator[Finding]:
    spec = app.spec
    known = set(spec.sources) | set(spec.streams)
    known.update(branch for stream in spec.streams.values() for branch in stream.branch_names)
    for name, stream in spec.streams.items():
        for i, parent in enumerate(stream.from_):
            place = ("streams", name, "from", i)
            if parent in stream.from_[:i]:
                message = f"stream {name!r} reads {parent!r} twice; every record would count twice"
                yield app.finding(place, "duplicate-from", message)
            elif parent not in known and parent not in app.unread:
                yield app.finding(
                    place,
                    "unknown-stream",
                    f"stream {name!r} reads {parent!r}, which is no source, stream or branch; "
                    f"declared are {', '.join(sorted(known - {name}))}{closest(parent, known)}",
                )


def _cycles(app: LoadedApp) -> Iterator[Finding]:
    cycle = in_order(app.spec)[1]
    for name in cycle:
        others = ", ".join(repr(other) for other in cycle if other != name)
        yield app.finding(
            ("streams", name, KEY),
            "cycle",
            f"stream {name!r} reads its own output"
            f"{f' through {others}' if others else ''}; a record would circulate forever. Break "
            f"the cycle, or send it through a topic",
        )


def _functions(app: LoadedApp) -> Iterator[Finding]:
    for path, reference in _function_references(app):
        try:
            found = app.find(reference)
        except TopologyError as error:
            yield app.finding(path, "import", str(error))
            continue
        if not callable(found):
            message = f"{reference!r} is of type {type(found).__name__}; expected a function"
            yield app.finding(path, "not-callable", message)
        elif message := wrong_kind(path, reference, found):
            yield app.finding(path, "asynchronous", message)
        elif message := wrong_arguments(path, reference, found, resources_at(app.spec, path)):
            yield app.finding(path, "arguments", message)
        elif str(path[-1]) in _GIVE_VALUES and returns_nothing(found):
            yield app.finding(
                path,
                "returns-nothing",
                f"{reference!r} always returns None, which deletes or drops; add the `return`, or "
                f"annotate it with `-> None` if that is meant",
                Severity.WARNING,
            )


_GIVE_VALUES = frozenset(
    {"map_values", "filter", "add", "of", "select_key", "map", "row", "by", "timestamp", "key"}
)
"""Fields of functions whose result is used."""


def _function_references(app: LoadedApp) -> Iterator[tuple[SpecPath, str]]:
    for name, source in app.spec.sources.items():
        if source.timestamp is not None:
            yield ("sources", name, "timestamp"), source.timestamp
    for name, stream in app.spec.streams.items():
        for i, step in enumerate(stream.steps):
            for place, reference in step.functions.items():
                yield ("streams", name, "steps", i, *place), reference
        for branch, predicate in stream.predicates.items():
            yield ("streams", name, "branch", branch), predicate
        for i, sink in stream.sinks:
            if sink.topic_from is not None:
                yield ("streams", name, "to", i, "topic_from"), sink.topic_from
        for i, table in stream.tables:
            if table.row is not None:
                yield ("streams", name, "to", i, "row"), table.row


def _serdes(app: LoadedApp) -> Iterator[Finding]:
    wanted: list[tuple[SpecPath, str | None]] = []
    for name, source in app.spec.sources.items():
        wanted.append((("sources", name, "key"), source.key))
        wanted.append((("sources", name, "value"), source.value))
    for name, stream in app.spec.streams.items():
        for i, sink in enumerate(stream.to):
            wanted.append((("streams", name, "to", i, "key"), sink.key))
            wanted.append((("streams", name, "to", i, "value"), sink.value))
    for path, serde in wanted:
        if serde is not None:
            yield from app.refusals(path, "serde", partial(app.serde, serde))


def _ends(app: LoadedApp) -> Iterator[Finding]:
    """Find sources, streams and branches that nothing reads."""
    streams = app.spec.streams.values()
    read = {parent for stream in streams for parent in stream.from_}
    read |= {other for stream in streams for _, other in stream.joined}
    for name in app.spec.sources:
        if name not in read and not app.problems:
            yield app.finding(
                ("sources", name, KEY),
                "unread-source",
                f"source {name!r} is read by no stream; it will not be consumed",
                Severity.WARNING,
            )
    for name, stream in app.spec.streams.items():
        acts = any(step.operator in SIDE_EFFECTS for step in stream.steps)
        if name not in read and not (stream.to or stream.branch or acts):
            yield app.finding(
                ("streams", name, KEY),
                "no-sink",
                f"stream {name!r} has no topic or table to go to, no peek or process, and no "
                f"stream reads it; its records are dropped. Give it a `to`",
                Severity.WARNING,
            )
        for branch in stream.branch_names:
            if branch not in read and not app.problems:
                yield app.finding(
                    _branch_path(name, stream, branch),
                    "no-sink",
                    f"branch {branch!r} of stream {name!r} is read by no stream; its records are "
                    f"dropped",
                    Severity.WARNING,
                )


def _parts(app: LoadedApp) -> Iterator[Finding]:
    """Find sub-topologies whose transactional ids would be wrong."""
    spec = app.spec
    if not spec.streams and not app.problems:
        message = "the topology declares no stream; declare at least one"
        yield app.finding(("streams",), "no-stream", message)
    taken: set[str] = set()
    for part in connected_parts(spec):
        name = name_of_part(spec, part)
        given = [source for source in part.sources if spec.sources[source].name]
        first: SpecPath = ("streams", part.streams[0], KEY) if part.streams else ()
        place = ("sources", given[0], "name") if given else first
        if len({spec.sources[source].name for source in given}) > 1:
            names = ", ".join(f"{source}: {spec.sources[source].name!r}" for source in given)
            yield app.finding(
                place,
                "sub-topology",
                f"the sources of one sub-topology give it different names ({names}); keep one",
            )
        if name in taken and part.streams:
            yield app.finding(
                place,
                "sub-topology",
                f"there are two sub-topologies named {name!r}, which would share transactional "
                f"ids; give the source of one another name:",
            )
        taken.add(name)
        yield from app.refusals(place, "name", partial(refuse_reserved_name, name))


def _types(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Find serdes that do not take what a function returns."""
    for path, problem in lowered.contradictions:
        yield app.finding(path, "type", problem)


def _branch_path(name: str, stream: StreamSpec, branch: str) -> SpecPath:
    if stream.branch.get(DEFAULT_BRANCH) == branch and branch not in stream.predicates:
        return ("streams", name, "branch", DEFAULT_BRANCH)
    return ("streams", name, "branch", branch, KEY)


_RULES: tuple[Callable[[LoadedApp], Iterator[Finding]], ...] = (
    topic_findings,
    pattern_findings,
    table_findings,
    join_findings,
    cogroup_findings,
    batch_findings,
    call_findings,
    effect_findings,
    schema_findings,
    _names,
    _duplicate_names,
    _parents,
    _cycles,
    _functions,
    _serdes,
    _ends,
    _parts,
)
"""Rules of a topology as it was written."""

_LOWERED_RULES = (
    _types,
    key_findings,
    retry_findings,
    storage_findings,
    internal_topic_findings,
    order_findings,
    order_call_findings,
)
"""Rules of a topology in which everything is known."""


_SHORT = {
    "sum": "of",
    "min": "of",
    "max": "of",
    "reduce": "add",
    "deduplicate": "within",
    "group_by": "by",
    **dict.fromkeys(CALLS, "call"),
}
"""The option that the short form of a step in YAML, one text, stands for."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The result of writing fixes.

    Args:
        written: findings whose fix is in the file now.
        left: findings that the user has to fix, each with the reason.
    """

    written: tuple[Finding, ...]
    left: tuple[tuple[Finding, str], ...]


def with_proposed_names(app: LoadedApp) -> tuple[LoadedApp, list[Finding]]:
    """Return a topology with the names that are proposed for ambiguous ones, and their findings.

    If it has other errors, or one that no option fixes, it is returned as it is.
    """
    findings = [found for found in lint(app) if found.severity is Severity.ERROR]
    streams = dict(app.spec.streams)
    for finding in findings:
        fix = finding.fix
        if finding.rule != AMBIGUOUS or fix is None or not fix.option:
            return app, []
        _, name, _, index, *_ = fix.path
        assert isinstance(index, int), "an option belongs to a step"
        stream = streams[f"{name}"]
        steps = list(stream.steps)
        steps[index] = steps[index].with_option(fix.option, fix.value)
        streams[f"{name}"] = stream.model_copy(update={"steps": tuple(steps)})
    named = replace(app, spec=app.spec.model_copy(update={"streams": streams}))
    return named, findings


def write_fixes(findings: Iterable[Finding]) -> Fixed:
    """Write the fixes of findings into their files.

    Raises:
        TopologyError: a file cannot be read or written; the files before it are fixed.
    """
    written: list[Finding] = []
    left: list[tuple[Finding, str]] = []
    by_file: dict[str, dict[object, Finding]] = {}
    for finding in findings:
        if (fix := finding.fix) is not None:
            # One option may name several stores.
            by_file.setdefault(finding.place.file, {}).setdefault((fix.path, fix.option), finding)
    for name, by_path in by_file.items():
        found = [*by_path.values()]
        fixed = _Text(name)
        calls = [finding.place.end for finding in found if not finding.place.is_yaml]
        # From the end of the file to its start, so that places before an edit stay right.
        for finding in sorted(found, key=lambda f: _position(f.place), reverse=True):
            reason = fixed.refusal(finding, calls) or fixed.edit(finding.place, finding.fix)
            if reason:
                left.append((finding, reason))
            else:
                written.append(finding)
        fixed.save()
    return Fixed(tuple(reversed(written)), tuple(reversed(left)))


def _position(place: Place) -> tuple[int, int]:
    return place.end or (place.line, place.column)


class _Text:
    """The text of a topology file, edited from its end to its start."""

    def __init__(self, name: str) -> None:
        self._file = Path(name)
        try:
            self._text = self._before = self._file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TopologyError(f"{name} cannot be read, so nothing is fixed: {error}") from error

    def refusal(self, finding: Finding, calls: Sequence[tuple[int, int] | None]) -> str | None:
        """Return why a finding cannot be fixed; None: it can be tried."""
        place, fix = finding.place, finding.fix
        if fix is None or not fix.option:
            return "a stream is named by its own line"
        if not place.is_yaml and (place.end is None or calls.count(place.end) > 1):
            return "the call is not known, or declares several steps"
        return None

    def edit(self, place: Place, fix: Fix | None) -> str | None:
        """Write one option; return why that was not possible, or None."""
        assert fix is not None, "refused before"
        edited = _in_yaml(self._text, fix) if place.is_yaml else _in_python(self._text, place, fix)
        if edited is None:
            return "the text at this place is none that can be edited"
        self._text = edited
        return None

    def save(self) -> None:
        """Write the file if it was edited."""
        if self._text == self._before:
            return
        try:
            self._file.write_text(self._text, encoding="utf-8")
        except OSError as error:
            raise TopologyError(f"{self._file} cannot be written: {error}") from error


def _in_python(text: str, place: Place, fix: Fix) -> str | None:
    """Return a program with one more keyword argument in the call that ends at a place."""
    assert place.end is not None, "refused before"
    lines = text.splitlines(keepends=True)
    line, column = place.end
    if line > len(lines):
        return None
    last = lines[line - 1].encode()
    head = "".join(lines[: line - 1]) + last[: column - 1].decode(errors="replace")
    tail = last[column - 1 :].decode(errors="replace") + "".join(lines[line:])
    if not tail.startswith(")"):
        return None
    stripped = head.rstrip()
    comma = "" if stripped.endswith(("(", ",")) else ","
    gap = head[len(stripped) :] if "\n" in head[len(stripped) :] else ""
    space = "" if stripped.endswith("(") else " "
    if gap:
        # The last argument has a line of its own, and so has this one.
        indent = stripped.rpartition("\n")[2]
        space = "\n" + indent[: len(indent) - len(indent.lstrip())]
    edited = f'{stripped}{comma}{space}{fix.option}="{fix.value}"{"," if gap else ""}{gap}{tail}'
    try:
        ast.parse(edited)
    except SyntaxError:
        return None
    return edited


def _in_yaml(text: str, fix: Fix) -> str | None:
    """Return a topology file with one more option in a step's map."""
    node = _node_at(yaml.compose(text, yaml.SafeLoader), fix.path)  # pyright: ignore[reportUnknownMemberType]
    entry = f"{fix.option}: {fix.value}"
    if isinstance(node, yaml.MappingNode):
        start = node.start_mark.index
        if node.flow_style:
            rest = ", " if node.value else ""
            return f"{text[: start + 1]}{entry}{rest}{text[start + 1 :]}"
        return f"{text[:start]}{entry}\n{' ' * node.start_mark.column}{text[start:]}"
    short = _SHORT.get(str(fix.path[-1]))
    if isinstance(node, yaml.ScalarNode) and short is not None:
        start, end = node.start_mark.index, node.end_mark.index
        return f"{text[:start]}{{{short}: {text[start:end]}, {entry}}}{text[end:]}"
    return None


def _node_at(node: yaml.Node | None, path: Sequence[str | int]) -> yaml.Node | None:
    for part in path:
        if isinstance(node, yaml.MappingNode):
            pairs = cast("list[tuple[yaml.Node, yaml.Node]]", node.value)
            node = next((value for key, value in pairs if str(key.value) == part), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = cast("list[yaml.Node]", node.value)[part]
        else:
            return None
    return node
