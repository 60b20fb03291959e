"""What an audit found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

EXAMPLES_OF_A_KIND = 5

FAULTS = ("lost", "duplicated", "reordered", "torn")


@dataclass(frozen=True, slots=True)
class Example:
    """One record that is not as it must be.

    Args:
        kind: one of `FAULTS`.
        text: which record it is, and what is wrong with it.
    """

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an audit counted.

    Args:
        input: input records that were processed: those before the committed positions.
        output: output records that a `read_committed` reader sees.
        lost: outputs that must be there and are not.
        duplicated: outputs that are there more often than they must be.
        reordered: outputs that come after one of a later record of the same input partition.
        torn: input records of which only a part took effect: some outputs, or outputs without
            the committed position.
        untraced: outputs whose input may be among records that are no longer in the log.
        examples: a few of each kind.
        notes: what else a reader of the numbers must know.
    """

    input: int
    output: int
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    torn: int = 0
    untraced: int = 0
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether each input record took effect exactly once, in order."""
        return not any(getattr(self, fault) for fault in FAULTS)

    def counts(self) -> dict[str, int]:
        """Return the numbers by name."""
        return {name: getattr(self, name) for name in ("input", "output", *FAULTS)}


@dataclass(slots=True)
class Examples:
    """Collects the first few examples of each kind."""

    collected: list[Example] = field(default_factory=list[Example])

    def add(self, kind: str, text: str) -> None:
        """Keep an example if there are not enough of its kind."""
        if self.wants(kind):
            self.collected.append(Example(kind, text))

    def wants(self, kind: str) -> bool:
        """Tell whether another example of this kind would be kept."""
        return sum(example.kind == kind for example in self.collected) < EXAMPLES_OF_A_KIND

    def sorted(self) -> Iterable[Example]:
        """Return them in the order of `FAULTS`."""
        return sorted(self.collected, key=lambda example: FAULTS.index(example.kind))
