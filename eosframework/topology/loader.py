"""Loading of a topology from a YAML file, a Python file or `module:attribute`."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from eosframework.config import Settings
from eosframework.errors import TopologyError, raised_by_functions
from eosframework.serialization import references
from eosframework.serialization.references import closest
from eosframework.serialization.yaml_text import BoundedLoader
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.spec.loaded import (
    KEY,
    Finding,
    LoadedApp,
    Place,
    SourceMap,
    SpecPath,
    refusal,
)
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
                if not _is_of_short_form(detail):
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


def _is_of_short_form(detail: ErrorDetails) -> bool:
    """Return whether a map was compared with the short form of a step, which is a text."""
    return detail["loc"][-1] == "str" and isinstance(detail["input"], dict)


def _branches(part: Any) -> set[str]:
    branch: Any = cast(dict[str, Any], part).get("branch") if isinstance(part, dict) else None
    if not isinstance(branch, dict):
        return set()
    names = cast(dict[str, Any], branch)
    return {str(names[n]) if n == DEFAULT_BRANCH else n for n in names}


def _needed(section: str, key: str) -> bool:
    return key in (("topic", "pattern") if section == "sources" else ("from",))


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


_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def topology_schema() -> dict[str, Any]:
    """Return the JSON Schema of a topology file."""
    schema = TopologySpec.model_json_schema(by_alias=True)
    models = [{"$ref": "#/$defs/SinkSpec"}, {"$ref": "#/$defs/TableSpec"}]
    sink = {"anyOf": [{"type": "string"}, *models]}
    to = schema["$defs"]["StreamSpec"]["properties"]["to"]
    to.pop("items", None)
    to.pop("type", None)
    to["anyOf"] = [*sink["anyOf"], {"type": "array", "items": sink}]
    return {"$schema": _DIALECT, "title": "eosframework topology", **_without_titles(schema)}


def settings_schema() -> dict[str, Any]:
    """Return the JSON Schema of a config file."""
    schema = Settings.model_json_schema()
    return {"$schema": _DIALECT, "title": "eosframework settings", **_without_titles(schema)}


def _without_titles(schema: Any) -> Any:
    """Remove the titles that only repeat the names of fields."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value)
        for key, value in schema.items()  # pyright: ignore[reportUnknownVariableType]
        if not (key == "title" and isinstance(value, str))
    }


def load_app(text: str) -> LoadedApp:
    """Return the topology that `text` names, complete.

    Args:
        text: a `.yaml` file, a `.py` file, `file.py:attribute`, or `package.module:attribute`.

    Raises:
        TopologyError: there is no such topology, or a part of it cannot be read; in this case
            with all findings, each with file, line and column.
    """
    app = read_app(text)
    if app.problems:
        raise refusal(lint(app))
    return app


def read_app(text: str) -> LoadedApp:
    """Return the topology that `text` names, as far as it can be read.

    Makes the directory of the file and the current one importable.

    Raises:
        TopologyError: there is no such file, module or attribute, or it holds no topology.
    """
    if text.endswith((".yaml", ".yml")):
        file = _existing(text)
        references.make_importable(file.parent, Path.cwd())
        return _read_file(file, text)
    if text.endswith(".py"):
        file = _existing(text)
        references.make_importable(file.parent, Path.cwd())
        return _only_topology(_run(file), text).loaded()
    path, _, attribute = text.rpartition(":")
    if path.endswith(".py"):
        file = _existing(path)
        references.make_importable(file.parent, Path.cwd())
        return _named_topology(_run(file), attribute, text).loaded()
    if ":" in text:
        references.make_importable(Path.cwd())
        found = references.find(text)
        if not isinstance(found, Topology):
            raise TopologyError(
                f"{text!r} is a {type(found).__name__}; expected an eosframework.Topology"
            )
        return found.loaded()
    raise TopologyError(
        f"{text!r} names no topology; expected a .yaml file, a .py file, file.py:attribute or "
        f"package.module:attribute"
    )


def _existing(text: str) -> Path:
    file = Path(text)
    if file.is_file():
        return file.resolve()
    where = file.parent if file.parent.is_dir() else Path()
    near = closest(file.name, [f.name for f in where.iterdir() if f.suffix == file.suffix])
    what = "is not a file" if file.exists() else "does not exist"
    raise TopologyError(f"topology file {text!r} {what}{near or '; check the path'}")


def _read_file(file: Path, shown: str) -> LoadedApp:
    try:
        return read_yaml(file.read_text(encoding="utf-8"), shown)
    except OSError as error:
        raise TopologyError(
            f"topology file {shown!r} cannot be read ({error.strerror}); check its permissions"
        ) from error
    except UnicodeDecodeError as error:
        raise TopologyError(f"topology file {shown!r} is not UTF-8 text: {error}") from error


def _run(file: Path) -> ModuleType:
    name = file.stem
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) == str(file):
            return known
        name = f"{name}_{os.path.relpath(file).replace(os.sep, '_').removesuffix('.py')}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise TopologyError(f"topology file {str(file)!r} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except raised_by_functions() as error:
        del sys.modules[name]
        if isinstance(error, TopologyError):
            raise
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
        line = error.lineno if isinstance(error, SyntaxError) else frames and frames[-1].lineno
        raise TopologyError(
            f"{file.name}:{line or 1}: {type(error).__name__} while the topology was declared: "
            f"{error}"
        ) from error
    return module


def _named_topology(module: ModuleType, name: str, text: str) -> Topology:
    found = getattr(module, name, None)
    if isinstance(found, Topology):
        return found
    if hasattr(module, name):
        raise TopologyError(
            f"{text!r} is a {type(found).__name__}; expected an eosframework.Topology"
        )
    near = closest(name, [each for each in vars(module) if not each.startswith("_")])
    raise TopologyError(f"{text!r}: the file has no {name!r}{near or '; correct the name'}")


def _only_topology(module: ModuleType, text: str) -> Topology:
    if isinstance(app := getattr(module, "app", None), Topology):
        return app
    found = {name: v for name, v in vars(module).items() if isinstance(v, Topology)}
    if len({id(topology) for topology in found.values()}) == 1:
        return next(iter(found.values()))
    if found:
        raise TopologyError(
            f"{text!r} declares several topologies ({', '.join(found)}); call one of them app, "
            f"or name it as {module.__name__}:{next(iter(found))}"
        )
    raise TopologyError(
        f"{text!r} declares no topology; expected app = eosframework.Topology(...) in it"
    )
