"""The names of what a topology keeps: stores, repartition topics and topics of rows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eosframework.topology.spec.loaded import Place, SpecPath


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
