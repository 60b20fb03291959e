"""A loaded topology: its spec, the places of its parts in a file, and its references."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from eosframework.errors import TopologyError
from eosframework.serialization import references
from eosframework.serialization.changes import change_serde, changed_name
from eosframework.serialization.schemas import Codec
from eosframework.serialization.serdes import (
    Serde,
    codec_serde,
    serde_of,
    window_serde,
    windowed_name,
)
from eosframework.topology.spec.topology_spec import TopologySpec

SpecPath = tuple[str | int, ...]
"""A position in a spec: `("streams", "late", "steps", 0)`."""


KEY = "@key"
"""Last part of the path of a key itself, as opposed to its value."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in a file; line and column count from 1.

    Args:
        end: of a call in Python, the line and the byte in it after the closing parenthesis.
    """

    file: str
    line: int = 1
    column: int = 1
    end: tuple[int, int] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def is_yaml(self) -> bool:
        """True if the file is a topology file."""
        return self.file.endswith((".yaml", ".yml"))


@dataclass(frozen=True, slots=True)
class SourceMap:
    """The place of each part of a spec."""

    file: str
    places: Mapping[SpecPath, Place] = field(default_factory=dict[SpecPath, Place])

    def find(self, path: SpecPath) -> Place:
        """Return the place of the innermost known part on the way to `path`."""
        known: SpecPath = ()
        for part in path:
            if (*known, part) in self.places:
                known = (*known, part)
        return self.places.get(known, Place(self.file))


class Severity(StrEnum):
    """The severity of a finding: an error prevents a topology from running."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Fix:
    """An option that would remove a finding, where a declaration is in the spec."""

    path: SpecPath
    option: str
    value: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a topology, with its place."""

    place: Place
    rule: str
    message: str
    severity: Severity = Severity.ERROR
    fix: Fix | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}: {self.message}"

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return {
            "file": self.place.file,
            "line": self.place.line,
            "column": self.place.column,
            "rule": self.rule,
            "severity": str(self.severity),
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class LoadedApp:
    """A spec with its places and the objects that it refers to.

    Args:
        objects: the functions and serdes that were given as objects, by the reference in the
            spec; all other references are imported by name.
        problems: findings for the parts that could not be read; the spec lacks these parts.
        unread: names of the sources and streams that the spec lacks for this reason.
        unnamed: streams and branches whose names only tell them apart: nothing is kept under them.
        codecs: collects the codecs that were made for topics.
    """

    spec: TopologySpec
    source_map: SourceMap = SourceMap("topology")
    objects: Mapping[str, Any] = field(default_factory=dict[str, Any])
    problems: tuple[Finding, ...] = ()
    unread: frozenset[str] = frozenset()
    unnamed: frozenset[str] = frozenset()
    codecs: list[Codec] = field(default_factory=list[Codec])

    def finding(
        self, path: SpecPath, rule: str, message: str, severity: Severity = Severity.ERROR
    ) -> Finding:
        """Return a finding with the place of `path`."""
        return Finding(self.source_map.find(path), rule, message, severity)

    def refusals(self, path: SpecPath, rule: str, check: Callable[[], object]) -> Iterator[Finding]:
        """Yield a finding at `path` if `check` raises TopologyError."""
        try:
            check()
        except TopologyError as error:
            yield self.finding(path, rule, str(error))

    def find(self, reference: str) -> Any:
        """Return the object that a reference names.

        Raises:
            TopologyError: it cannot be imported.
        """
        if reference in self.objects:
            return self.objects[reference]
        return references.find(reference)

    def find_model(self, reference: str) -> Any:
        """Return the object that a reference names; of a serde its model.

        Raises:
            TopologyError: it cannot be imported.
        """
        found = self.find(reference)
        return found.model if isinstance(found, Serde) else found

    def serde(self, name: str) -> Serde:
        """Return the serde named `name`.

        Raises:
            TopologyError: there is none, or its model cannot be imported.
        """
        known = self.objects.get(name)
        if isinstance(known, Serde):
            return known
        if (inner := windowed_name(name)) is not None:
            return window_serde(self.serde(inner))
        if (inner := changed_name(name)) is not None:
            return change_serde(self.serde(inner))
        return serde_of(name)

    def serde_at(
        self, name: str, topic: str | None, *, is_key: bool = False, written: bool = False
    ) -> Serde:
        """Return the serde named `name`, bound to a topic if it uses a schema registry.

        Args:
            name: of the serde.
            topic: None: unknown until a record is written.
            is_key: the serde is for keys.
            written: the application writes with the serde.

        Raises:
            TopologyError: as `serde`.
        """
        if (inner := changed_name(name)) is not None:
            return change_serde(self.serde_at(inner, topic, is_key=is_key, written=written))
        serde = self.serde(name)
        if serde.codec is None:
            return serde
        codec = serde.codec.at(topic, is_key=is_key, written=written)
        self.codecs.append(codec)
        return codec_serde(codec)


def refusal(findings: list[Finding]) -> TopologyError:
    """Return one error that lists all errors of `findings`."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if len(errors) == 1:
        return TopologyError(str(errors[0]))
    lines = "\n  ".join(str(finding) for finding in errors)
    return TopologyError(f"the topology has {len(errors)} errors:\n  {lines}")


class Kind(StrEnum):
    """The kind of a thing that is kept under a name."""

    STORE = "store"
    REPARTITION = "repartition topic"
    ROWS = "topic of rows"


class Option(StrEnum):
    """The option that states a name."""

    STORE = "store"
    NAME = "name"
    NAMED = "named"
    """The name of a stream: `.named(…)` in Python, the stream's key in YAML."""


@dataclass(frozen=True, slots=True)
class KeptName:
    """A name under which something is kept, and where it is stated or could be.

    Args:
        path: of the declaration in the spec.
        place: of the declaration in the file.
        is_stated: the user gave it; False: it follows from the source and the operator.
        is_anchored: it can only follow, from a name that the user gave.
        base: the derived name of the repartition topic that it starts with, if any.
        suffix: the part of the name that comes after the option's value.
        words: names of the functions of the step and of those that follow, to propose names.
    """

    kind: Kind
    name: str
    path: SpecPath
    place: Place
    option: Option
    is_stated: bool
    is_anchored: bool = False
    base: str | None = None
    suffix: str = ""
    words: tuple[str, ...] = ()

    def line(self, name: str) -> str:
        """Return the text that states `name` here, as it stands in the file."""
        value = name.removesuffix(self.suffix)
        if self.place.is_yaml:
            is_key = self.option is Option.NAMED or self.path[0] == "sources"
            return f"{value}: {{…}}" if is_key else f"{self.option}: {value}"
        return f'.named("{value}")' if self.option is Option.NAMED else f'{self.option}="{value}"'
