"""The result of an audit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from eosframework.errors import ConfigurationError
from eosframework.records import TopicPartition, whole_number
from eosframework.serialization.moments import moment_ms

BEGINNING, END = "beginning", "end"

_PLACE = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)\[(?P<partition>[0-9]{1,9})\]@(?P<offset>[0-9]{1,18})"
)


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range of input records; without optional parts, the end of the log itself.

    Args:
        text: the user's argument.
        moment: milliseconds since the epoch: at the first record that is not older.
        offset: in every input partition.
        places: offsets by partition; other partitions are unbounded.
    """

    text: str
    moment: int | None = None
    offset: int | None = None
    places: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])

    @classmethod
    def parse(cls, text: str) -> Bound:
        """Parse a bound: beginning, end, a time in ISO 8601, an offset, or places.

        Raises:
            ConfigurationError: the text is none of these.
        """
        text = text.strip()
        if text in (BEGINNING, END):
            return cls(text)
        if (offset := whole_number(text)) is not None:
            return cls(text, offset=offset)
        matches = [_PLACE.fullmatch(part.strip()) for part in text.split(",")]
        places = {
            TopicPartition(m["topic"], int(m["partition"])): int(m["offset"]) for m in matches if m
        }
        if all(matches) and len(places) == len(matches):
            return cls(text, places=places)
        try:
            return cls(text, moment=moment_ms(text))
        except ValueError:
            raise ConfigurationError(
                f"{text!r:.100} is not a bound; expected {BEGINNING}, {END}, a time "
                f"(2026-01-31T12:00:00Z, without a zone UTC), an offset for every input partition "
                f"(1200), or TOPIC[PARTITION]@OFFSET, each partition once, separated by commas"
            ) from None


@dataclass(frozen=True, slots=True)
class Scope:
    """The input records to judge: from `start` to before `end`.

    Raises:
        ConfigurationError: the range ends before it begins.
    """

    start: Bound = Bound(BEGINNING)
    end: Bound = Bound(END)

    def __post_init__(self) -> None:
        if _after(self.start.moment, self.end.moment) or _after(self.start.offset, self.end.offset):
            raise self.backwards("")

    @property
    def is_whole(self) -> bool:
        """True if the scope covers all processed records."""
        return self.start.text == BEGINNING and self.end.text == END

    def backwards(self, where: str) -> ConfigurationError:
        """Return the error for a range that ends before it begins."""
        return ConfigurationError(
            f"--from {self.start.text} is after --to {self.end.text}{where}; give the earlier "
            f"one as --from"
        )


def _after(start: int | None, end: int | None) -> bool:
    return start is not None and end is not None and start > end


DETAILS_OF_A_KIND = 100

_FAULTS = ("lost", "duplicated", "reordered", "torn")


@dataclass(frozen=True, slots=True)
class Detail:
    """One record, or one run of records, with a fault.

    Args:
        kind: one of `_FAULTS`.
        text: description for people.
        input: the input record, as `flights.raw[1]@532`; None: there is none.
        through: the last input record of a run.
        output: the output record; None: it does not exist.
        transaction: the task's transaction number, where a receipt has it.
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
    """The counts of an audit.

    Args:
        input: judged input records: the processed ones within the range.
        output: their outputs that a `read_committed` reader sees; for a whole history, all outputs.
        lost: required outputs that do not exist.
        duplicated: outputs that exist more often than required.
        reordered: outputs that follow one of a later record of the same input partition.
        torn: input records that took effect in part: some outputs, outputs in several transactions,
            or outputs without the committed offset.
        unexpected: duplicated outputs that belong to no input record.
        untraced: outputs whose input may be among records that are no longer in the log.
        share: judged share of the requested input by offsets, from 0 to 1.
        not_judged: existing outputs that cannot be proved.
        details: the records, up to `DETAILS_OF_A_KIND` of each kind.
        notes: remarks for readers of the counts.
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
        """True if each input record took effect exactly once, in order."""
        return not any(getattr(self, fault) for fault in _FAULTS)

    def counts(self) -> dict[str, int]:
        """Return the main counts by name."""
        return {name: getattr(self, name) for name in ("input", "output", *_FAULTS)}

    def as_data(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        return {
            **self.counts(),
            "unexpected": self.unexpected,
            "untraced": self.untraced,
            "share": self.share,
            "not_judged": self.not_judged,
            "details": [detail.as_data() for detail in self.details],
            "notes": list(self.notes),
        }

    def __add__(self, other: Verdict) -> Verdict:
        """Return the combined verdict; both must cover different records."""
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
    """The first details of each kind."""

    def __init__(self, details: Iterable[Detail] = ()) -> None:
        self._by_kind: dict[str, list[Detail]] = {kind: [] for kind in _FAULTS}
        for detail in details:
            self.add(detail)

    def add(self, detail: Detail) -> None:
        """Keep a detail unless enough of its kind are kept, or the last one is equal."""
        if self.wants(detail.kind) and detail not in self._by_kind[detail.kind][-1:]:
            self._by_kind[detail.kind].append(detail)

    def wants(self, kind: str) -> bool:
        """Return whether another detail of this kind would be kept."""
        return len(self._by_kind[kind]) < DETAILS_OF_A_KIND

    def sorted(self) -> tuple[Detail, ...]:
        """Return the details in the order of `_FAULTS`."""
        return tuple(detail for kind in _FAULTS for detail in self._by_kind[kind])
