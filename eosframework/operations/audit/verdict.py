"""What an audit found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

DETAILS_OF_A_KIND = 100

FAULTS = ("lost", "duplicated", "reordered", "torn")


@dataclass(frozen=True, slots=True)
class Detail:
    """One record, or one run of records, that is not as it must be.

    Args:
        kind: one of `FAULTS`.
        text: what is wrong, for people.
        input: the input record, as `flights.raw[1]@532`; None: there is none.
        through: of a run, its last input record.
        output: the output record; None: it is not there.
        transaction: the task's transaction number, where receipts tell it.
    """

    kind: str
    text: str
    input: str | None = None
    through: str | None = None
    output: str | None = None
    transaction: int | None = None

    def as_data(self) -> dict[str, object]:
        """Return it as `--json` prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an audit counted.

    Args:
        input: input records that were looked at: processed ones within the range.
        output: their output records that a `read_committed` reader sees; of a whole history, all.
        lost: outputs that must be there and are not.
        duplicated: outputs that are there more often than they must be.
        reordered: outputs that come after one of a later record of the same input partition.
        torn: input records of which only a part took effect: some outputs, outputs in several
            transactions, or outputs without the committed position.
        unexpected: those among `duplicated` that come from no input record.
        untraced: outputs whose input may be among records that are no longer in the log.
        share: how much of the input that was asked for is judged, by offsets, from 0 to 1.
        not_judged: outputs that are there and that nothing can prove.
        details: which records, up to `DETAILS_OF_A_KIND` of each kind.
        notes: what else a reader of the numbers must know.
    """

    input: int = 0
    output: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    torn: int = 0
    unexpected: int = 0
    untraced: int = 0
    share: float = 1.0
    not_judged: int = 0
    details: tuple[Detail, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether each input record took effect exactly once, in order."""
        return not any(getattr(self, fault) for fault in FAULTS)

    def counts(self) -> dict[str, int]:
        """Return the numbers by name."""
        return {name: getattr(self, name) for name in ("input", "output", *FAULTS)}

    def __add__(self, other: Verdict) -> Verdict:
        """Return the verdict over both; what they looked at must be apart."""
        return Verdict(
            input=self.input + other.input,
            output=self.output + other.output,
            lost=self.lost + other.lost,
            duplicated=self.duplicated + other.duplicated,
            reordered=self.reordered + other.reordered,
            torn=self.torn + other.torn,
            unexpected=self.unexpected + other.unexpected,
            untraced=self.untraced + other.untraced,
            details=Details([*self.details, *other.details]).sorted(),
            notes=(*self.notes, *other.notes),
        )


class Details:
    """Collects the first details of each kind."""

    def __init__(self, details: Iterable[Detail] = ()) -> None:
        self._by_kind: dict[str, list[Detail]] = {kind: [] for kind in FAULTS}
        for detail in details:
            self.add(detail)

    def add(self, detail: Detail) -> None:
        """Keep a detail if there are not enough of its kind, or the same one."""
        if self.wants(detail.kind) and detail not in self._by_kind[detail.kind][-1:]:
            self._by_kind[detail.kind].append(detail)

    def wants(self, kind: str) -> bool:
        """Tell whether another detail of this kind would be kept."""
        return len(self._by_kind[kind]) < DETAILS_OF_A_KIND

    def sorted(self) -> tuple[Detail, ...]:
        """Return them in the order of `FAULTS`."""
        return tuple(detail for kind in FAULTS for detail in self._by_kind[kind])
