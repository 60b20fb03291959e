"""The fixes of findings: options written into a topology's Python or YAML file.

Python gets a keyword argument in the call whose end was recorded, YAML an entry of the step's map.
A fix that has no such place is left to the user.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import yaml

from eosframework.errors import TopologyError
from eosframework.topology.lint.lint_names import AMBIGUOUS
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.spec.loaded import Finding, Fix, LoadedApp, Place, Severity

_SHORT = {
    "sum": "of",
    "min": "of",
    "max": "of",
    "reduce": "add",
    "deduplicate": "within",
    "group_by": "by",
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
