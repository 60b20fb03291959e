"""Reading of a YAML file into a spec, as far as possible, with all problems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from eosframework.serialization.references import closest
from eosframework.serialization.yaml_text import BoundedLoader
from eosframework.topology.spec.loaded import KEY, Finding, LoadedApp, Place, SourceMap, SpecPath
from eosframework.topology.spec.topology_spec import (
    DEFAULT_BRANCH,
    TABLE_TAG,
    TOPIC_TAG,
    DeadLetter,
    SinkSpec,
    SourceSpec,
    StepSpec,
    StreamSpec,
    TableSpec,
    TopologySpec,
)

_HARMLESS_STEP = {"peek": "builtins:id"}
_HARMLESS_SINK = {"topic_from": "builtins:id"}
"""Placeholders for unreadable parts, so that later parts keep their positions."""

_CLUSTER_KEYS = {"bootstrap_servers", "bootstrap.servers", "brokers", "cluster", "clusters"}
_ONE_CLUSTER = (
    "a transaction cannot span clusters, so input and output on different ones cannot be "
    "exactly-once. Set kafka.bootstrap_servers for the whole application, and mirror topics of "
    "another cluster to that one"
)

_EXPECTED = {
    "string_type": "text",
    "dict_type": "a map",
    "model_type": "a map",
    "model_attributes_type": "a map",
    "tuple_type": "a list",
    "too_short": "at least one",
    "string_too_short": "text",
    "string_pattern_mismatch": "a name of letters, digits and '_', or any in double quotes, "
    "with its schema before a dot if it needs one",
}


def read_yaml(text: str, file: str) -> LoadedApp:
    """Return the readable parts of a topology file; `problems` lists the others.

    Args:
        text: content of the file.
        file: its name, for the places of findings.
    """
    tree = _Tree(file)
    data: Any = tree.read(text)
    findings = tree.findings
    source_map = SourceMap(file, tree.places)
    if not isinstance(data, dict):
        if not findings:
            message = "the file is not a map; expected application, sources and streams"
            findings.append(Finding(Place(file), "yaml", message))
        data = {"application": "unread", "sources": {}, "streams": {}}
    reader = _Reader(cast(dict[str, Any], data), source_map, findings)
    spec = reader.read()
    return LoadedApp(spec, source_map, {}, tuple(findings), frozenset(reader.unread))


class _Tree:
    """The plain data of a YAML text, with the place of every key and value."""

    def __init__(self, file: str) -> None:
        self.places: dict[SpecPath, Place] = {}
        self.findings: list[Finding] = []
        self._file = file

    def read(self, text: str) -> Any:
        """Return the data; None if the text is not YAML."""
        try:
            loader = BoundedLoader(text)
            node = loader.bounded_node()
            return None if node is None else self._value(loader, node, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            message = f"not valid YAML: {error.problem or error.context}"
            self.findings.append(Finding(self._place(mark), "yaml", message))
        except yaml.YAMLError as error:
            message = f"not valid YAML: {' '.join(str(error).split())}"
            self.findings.append(Finding(Place(self._file), "yaml", message))
        return None

    def _value(self, loader: yaml.SafeLoader, node: yaml.Node, path: SpecPath) -> Any:
        self.places[path] = self._place(node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return loader.construct_object(node)  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
        if isinstance(node, yaml.MappingNode):
            return self._map(loader, node, path)
        items = cast(list[yaml.Node], node.value)
        return [self._value(loader, item, (*path, i)) for i, item in enumerate(items)]

    def _map(
        self, loader: yaml.SafeLoader, node: yaml.MappingNode, path: SpecPath
    ) -> dict[str, Any]:
        loader.flatten_mapping(node)
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            place = self._place(key_node.start_mark)
            if key in data:
                first = self.places[*path, key, KEY]
                message = (
                    f"{_show(path)}{key!r} is declared twice, first in line {first.line}; "
                    f"keep one or rename it"
                )
                self.findings.append(Finding(place, "duplicate-key", message))
                continue
            data[key] = self._value(loader, value_node, (*path, key))
            self.places[*path, key, KEY] = place
        return data

    def _place(self, mark: yaml.Mark | None) -> Place:
        if mark is None:
            return Place(self._file)
        return Place(self._file, mark.line + 1, mark.column + 1)


class _Reader:
    """Reads data as a spec, and removes invalid parts until the rest is valid."""

    def __init__(self, data: dict[str, Any], places: SourceMap, findings: list[Finding]) -> None:
        self.unread: set[str] = set()
        self._data = data
        self._places = places
        self._findings = findings

    def read(self) -> TopologySpec:
        """Return the spec of the valid parts; each round removes at least one part."""
        self._list_sinks()
        while True:
            try:
                return TopologySpec.model_validate(self._data)
            except ValidationError as error:
                details = error.errors(include_url=False)
            for detail in details:
                self._report(detail)
            for detail in details:
                self._take_out(detail)

    def _list_sinks(self) -> None:
        for stream in _maps(self._data.get("streams")):
            if isinstance(stream.get("to"), str | dict):
                stream["to"] = [stream["to"]]

    def _report(self, detail: ErrorDetails) -> None:
        path = self._path(detail)
        place = self._places.find(path)
        value: Any = detail["input"]
        match detail["type"]:
            case "extra_forbidden":
                *parent, key = detail["loc"]
                known = _known_keys(tuple(parent))
                rule = "unknown-key"
                place = self._places.find((*path, KEY))
                message = f"{_show(path[:-1])}unknown key {key!r}; " + (
                    _ONE_CLUSTER
                    if key in _CLUSTER_KEYS
                    else f"known are {', '.join(known)}{closest(str(key), known)}"
                )
            case "missing":
                rule, message = "missing-key", f"{_show(path)}{detail['loc'][-1]!r} is missing"
            case "value_error":
                rule, message = "invalid-value", f"{_show(path)}{detail['ctx']['error']}"  # pyright: ignore[reportTypedDictNotRequiredAccess]
            case kind:
                expected = _EXPECTED.get(kind, detail["msg"])
                rule = "invalid-value"
                message = f"{_show(path)}found {_brief(value)}; expected {expected}"
        self._findings.append(Finding(place, rule, message))

    def _path(self, detail: ErrorDetails) -> SpecPath:
        """Return the part of the location that is in the file."""
        known: SpecPath = ()
        for part in detail["loc"]:
            if (*known, part) in self._places.places:
                known = (*known, part)
        return known

    def _take_out(self, detail: ErrorDetails) -> None:
        section, *rest = [p for p in detail["loc"] if p not in (TOPIC_TAG, TABLE_TAG)] or [""]
        parts = self._data.get(str(section))
        if section == "application":
            self._data["application"] = "unread"
        elif section not in ("sources", "streams"):
            self._data.pop(str(section), None)
        elif not isinstance(parts, dict) or not rest:
            self._data[section] = {}
            self._leave_unread(section)
        else:
            self._take_out_of(section, cast(dict[str, Any], parts), rest, detail["type"])

    def _take_out_of(
        self, section: str, parts: dict[str, Any], rest: list[str | int], kind: str
    ) -> None:
        name, *inner = rest
        found: Any = parts.get(str(name))
        if str(name) not in parts:
            return
        part = cast(dict[str, Any], found) if isinstance(found, dict) else {}
        match inner:
            case ["steps", int(i), *_]:
                part["steps"][i] = _HARMLESS_STEP
            case ["to", int(i), str(key)] if kind == "extra_forbidden" and _has_target(
                sink := part["to"][i]
            ):
                sink.pop(key, None)
            case ["to", int(i), *_]:
                part["to"][i] = {**_HARMLESS_SINK, "name": f"sink {i}"}
            case [str(key), *_] if key in part and not _needed(section, key):
                self.unread.update(_branches(part) if key == "branch" else ())
                del part[key]
            case _:
                self.unread.update({str(name)} | _branches(part))
                parts.pop(str(name), None)

    def _leave_unread(self, section: str) -> None:
        """Record every name that is referred to, so that none is reported as unknown."""
        if section == "sources":
            for stream in _maps(self._data.get("streams")):
                parents = stream.get("from")
                listed = [parents] if isinstance(parents, str) else parents
                if isinstance(listed, list):
                    self.unread.update(str(parent) for parent in cast(list[Any], listed))


def _maps(section: Any) -> Iterator[dict[str, Any]]:
    if isinstance(section, dict):
        for part in cast(dict[str, Any], section).values():
            if isinstance(part, dict):
                yield cast(dict[str, Any], part)


def _branches(part: Any) -> set[str]:
    branch: Any = cast(dict[str, Any], part).get("branch") if isinstance(part, dict) else None
    if not isinstance(branch, dict):
        return set()
    names = cast(dict[str, Any], branch)
    return {str(names[n]) if n == DEFAULT_BRANCH else n for n in names}


def _needed(section: str, key: str) -> bool:
    return key == ("topic" if section == "sources" else "from")


def _has_target(sink: dict[str, Any]) -> bool:
    return not sink.keys().isdisjoint(("topic", "topic_from", "table"))


def _known_keys(path: SpecPath) -> list[str]:
    model: type[BaseModel]
    match path:
        case ():
            model = TopologySpec
        case ("sources", _):
            model = SourceSpec
        case ("streams", _):
            model = StreamSpec
        case ("streams", _, "steps", _):
            model = StepSpec
        case ("streams", _, "steps", _, str(operator), *inner):
            model = _model_of(StepSpec, operator, *map(str, inner))
        case ("streams", _, "to", _, tag):
            model = TableSpec if tag == TABLE_TAG else SinkSpec
        case _:
            model = DeadLetter
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_of(model: type[BaseModel], *path: str) -> type[BaseModel]:
    """Return the model of a nested field, or the innermost one that is known."""
    for name in path:
        field = model.model_fields.get(name)
        inner = [] if field is None else [field.annotation, *get_args(field.annotation)]
        inner += [member for annotated in inner for member in get_args(annotated)]
        found = [a for a in inner if isinstance(a, type) and issubclass(a, BaseModel)]
        model = found[0] if found else model
    return model


def _show(path: SpecPath) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return f"{text.removeprefix('.')}: " if text else ""


def _brief(value: Any) -> str:
    return "nothing" if value is None else f"{value!r:.60}"
