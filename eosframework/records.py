"""The values that flow through a topology: records, positions, and their coordinates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple

from typing_extensions import TypeVar

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
"""Types of keys and values; without parameters a record or a stream may have any."""

Headers = Sequence[tuple[str, bytes | None]]
"""Record headers in order; a name may occur more than once."""


TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Valid names of topics, except "." and ".." (Kafka's Topic.validate)."""


_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")
"""Offsets, partitions and ids: 18 digits fit into 64 bits."""


def whole_number(text: str) -> int | None:
    """Return the number that up to 18 decimal digits spell; None: the text is another one.

    `str.isdigit` accepts "²" and thousands of digits, which `int` refuses.
    """
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


def partitions_of(counts: Mapping[str, int]) -> list[TopicPartition]:
    """Return the partitions of topics.

    Args:
        counts: number of partitions, by topic.
    """
    return [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]


class Record(NamedTuple, Generic[K, V]):
    """One decoded record with its coordinates in the input: `Record[str, Order]`.

    A record made by `replace` keeps the coordinates of the input record it descends from.
    """

    key: K
    value: V
    timestamp: int
    """Event time in milliseconds since the epoch."""
    headers: Headers = ()
    topic: str = ""
    partition: int = 0
    offset: int = 0

    def replace(self, **changes: Any) -> Record[Any, Any]:
        """Return a copy with the given fields changed."""
        return self._replace(**changes)


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read of a partition, with its metadata.

    Args:
        offset: next offset to read; None: none was ever committed.
        metadata: the string committed with the offset.
    """

    topic: str
    partition: int
    offset: int | None
    metadata: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition this position is in."""
        return TopicPartition(self.topic, self.partition)


_DAY_MS = 86_400_000


@dataclass(slots=True)
class WindowResult(Generic[V]):
    """A result of a windowed aggregate; in JSON an object with these three members.

    Functions must not change it. (A frozen class takes four times as long to instantiate, per
    record.)

    Args:
        start: in milliseconds since the epoch; in windows of records the number of the first record
            among those of the key, from 0.
        end: in milliseconds; included in sliding and session windows, not in others. In windows of
            records the number after the last record.
        value: the aggregate; None: the window no longer exists.
    """

    start: int
    end: int
    value: V

    def __repr__(self) -> str:
        # A result does not know its windows: such small bounds are those of windows of records.
        shown = str if 0 <= self.end < _DAY_MS else moment
        return f"WindowResult({shown(self.start)} to {shown(self.end)}: {self.value!r})"


EARLIEST_OUTPUT_MS = 1
"""The earliest time of an output. librdkafka replaces 0 with the present, so the output of a record
of 1970 would make all later ones late; brokers refuse negative times, as of a record without one.
"""

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999. Later times are mostly microseconds by mistake."""


def moment(time_ms: float) -> str:
    """Return a time in ISO form; as milliseconds if it is no date."""
    if not 0 <= time_ms <= LATEST_MS:
        return f"{time_ms:.0f} ms"
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def bounds_in_words(start: int, end: int, *, is_timed: bool) -> str:
    """Return the bounds of a window for people: times, or the numbers of its records."""
    return f"{moment(start)} to {moment(end)}" if is_timed else f"records {start} to {end - 1}"


def as_milliseconds(moment: Any) -> int:
    """Return an event time as milliseconds since the epoch.

    Args:
        moment: an int in milliseconds, or a datetime (UTC if it has no zone).

    Raises:
        TypeError: it is of another type, before 1970 or after the year 9999.
    """
    if moment.__class__ is int:
        if 0 <= moment <= LATEST_MS:
            return moment
    elif isinstance(moment, datetime):
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        milliseconds = round(moment.timestamp() * 1000)
        if milliseconds >= 0:
            return milliseconds
    raise TypeError(
        f"an event time is an int in milliseconds since 1970, up to the year 9999, or a datetime, "
        f"not {type(moment).__name__} ({moment!r:.60})"
    )


@dataclass(frozen=True, slots=True)
class Effect:
    """The identity of an effect outside of Kafka, for the service that executes it.

    Args:
        key: the same in each attempt at the effect, and in no other one.
        attempt: greater in each attempt; the first one is 1.
    """

    key: str
    attempt: int
