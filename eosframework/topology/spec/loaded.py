"""A topology that was read, with where its parts are written and what they refer to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from eosframework.errors import TopologyError
from eosframework.serialization import references
from eosframework.serialization.schemas import Codec
from eosframework.serialization.serdes import Serde, codec_serde, serde_of
from eosframework.topology.spec.topology_spec import TopologySpec

Path = tuple[str | int, ...]
"""Where in a spec: `("streams", "late", "steps", 0)`."""


KEY = "@key"
"""Last part of the path of a key itself, as opposed to its value."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something is written; line and column count from 1."""

    file: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class SourceMap:
    """Where each part of a spec is written."""

    file: str
    places: Mapping[Path, Place] = field(default_factory=dict[Path, Place])

    def find(self, path: Path) -> Place:
        """Return the place of the innermost known part on the way to `path`."""
        known: Path = ()
        for part in path:
            if (*known, part) in self.places:
                known = (*known, part)
        return self.places.get(known, Place(self.file))


class Severity(StrEnum):
    """Whether a finding keeps a topology from running."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a topology, and where."""

    place: Place
    rule: str
    message: str
    severity: Severity = Severity.ERROR

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
    """A topology with where it is written.

    Args:
        objects: functions and serdes by the name that the spec refers to them by, for those
            that were given as objects; all others are imported by their name.
        problems: what kept parts of the topology from being read; the spec is without them.
        unread: names of the sources and streams that are missing for this reason.
        codecs: takes those that were made for topics.
    """

    spec: TopologySpec
    source_map: SourceMap = SourceMap("topology")
    objects: Mapping[str, Any] = field(default_factory=dict[str, Any])
    problems: tuple[Finding, ...] = ()
    unread: frozenset[str] = frozenset()
    codecs: list[Codec] = field(default_factory=list[Codec])

    def find(self, reference: str) -> Any:
        """Return what a reference names.

        Raises:
            TopologyError: it cannot be imported.
        """
        if reference in self.objects:
            return self.objects[reference]
        return references.find(reference)

    def serde(self, name: str) -> Serde:
        """Return the serde of this name.

        Raises:
            TopologyError: there is none, or its model cannot be imported.
        """
        known = self.objects.get(name)
        return known if isinstance(known, Serde) else serde_of(name)

    def serde_at(
        self, name: str, topic: str | None, *, is_key: bool = False, written: bool = False
    ) -> Serde:
        """Return the serde of this name for a topic that others share.

        Args:
            name: of the serde.
            topic: None: not known before a record is written.
            is_key: whether it is for keys.
            written: whether the application writes with it.

        Raises:
            TopologyError: as `serde`.
        """
        serde = self.serde(name)
        if serde.codec is None:
            return serde
        codec = serde.codec.at(topic, is_key=is_key, written=written)
        self.codecs.append(codec)
        return codec_serde(codec)


def refusal(findings: list[Finding]) -> TopologyError:
    """Return the error that says all of `findings` at once."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if len(errors) == 1:
        return TopologyError(str(errors[0]))
    lines = "\n  ".join(str(finding) for finding in errors)
    return TopologyError(f"the topology has {len(errors)} errors:\n  {lines}")
