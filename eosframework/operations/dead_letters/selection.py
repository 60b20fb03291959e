"""The selection of dead letters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from eosframework.errors import ConfigurationError
from eosframework.operations.dead_letters.dead_letter import DeadLetter
from eosframework.operations.moments import moment_ms
from eosframework.records import TopicPartition

_PLACES = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)\[(?P<partition>[0-9]{1,9})\]@(?P<first>[0-9]{1,18})(-(?P<last>[0-9]{1,18}))?"
)


@dataclass(frozen=True, slots=True)
class DeadLetterPlace:
    """One dead letter, or consecutive ones, of one partition of a dead-letter topic.

    Args:
        first: offset of the first one.
        last: offset of the last one.
    """

    partition: TopicPartition
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `TOPIC[PARTITION]@OFFSET` or `TOPIC[PARTITION]@FIRST-LAST`.

        Raises:
            ConfigurationError: the text is neither.
        """
        match = _PLACES.fullmatch(text.strip())
        if match is None or int(match["last"] or match["first"]) < int(match["first"]):
            raise ConfigurationError(
                f"{text!r} is not a place of dead letters; expected TOPIC[PARTITION]@OFFSET, or "
                f"TOPIC[PARTITION]@FIRST-LAST for several, as `dead-letters list` shows them"
            )
        first = int(match["first"])
        partition = TopicPartition(match["topic"], int(match["partition"]))
        return cls(partition, first, int(match["last"] or first))

    def covers(self, letter: DeadLetter) -> bool:
        """Return whether a dead letter lies in this range."""
        return letter.partition == self.partition and self.first <= letter.offset <= self.last


@dataclass(frozen=True, slots=True)
class Choice:
    """Criteria for dead letters; an empty criterion selects all.

    Args:
        topic: dead-letter topic.
        error: a part of the error's text.
        places: ranges of offsets.
        since_ms: earliest time of failure; excludes dead letters without a time.
    """

    topic: str | None = None
    error: str | None = None
    places: tuple[DeadLetterPlace, ...] = ()
    since_ms: int | None = None

    @property
    def is_all(self) -> bool:
        """True without any criterion."""
        return self == Choice()

    def takes(self, letter: DeadLetter) -> bool:
        """Return whether a dead letter is selected."""
        if self.topic is not None and letter.partition.topic != self.topic:
            return False
        if self.error is not None and self.error not in letter.error:
            return False
        if self.since_ms is not None and (letter.failed_at or 0) < self.since_ms:
            return False
        return not self.places or any(place.covers(letter) for place in self.places)

    def refuse_unknown_topics(self, known: Iterable[str]) -> None:
        """Raise if a criterion names a topic that is not a dead-letter topic.

        Raises:
            ConfigurationError: lists the dead-letter topics.
        """
        known = sorted(known)
        for topic in filter(None, (self.topic, *(p.partition.topic for p in self.places))):
            if topic not in known:
                raise ConfigurationError(
                    f"{topic!r} is not a dead-letter topic of this application; it has "
                    f"{', '.join(known) or 'none'}"
                )


def moment_of(text: str) -> int:
    """Parse a time in ISO 8601, to milliseconds since the epoch; without a zone it is UTC.

    Raises:
        ConfigurationError: the text is not a time.
    """
    try:
        return moment_ms(text.strip())
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a time; expected ISO 8601, for example 2026-01-31T12:00:00Z"
        ) from None
