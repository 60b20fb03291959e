"""The scope of an audit, parsed from `--from` and `--to`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from eosframework.errors import ConfigurationError
from eosframework.operations.moments import moment_ms
from eosframework.records import TopicPartition, whole_number

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
