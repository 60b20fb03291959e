"""Outputs that the brokers are known to refuse, told before they are produced.

A refused output aborts its transaction, which is replayed in halves until the record is known: that
takes about a second for each. What is known beforehand costs a comparison. What is not known (the
size of a compressed batch, a time that depends on the broker's clock) is found by replaying.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NoReturn

from eosframework.errors import DataRejected
from eosframework.records import LATEST_MS

BATCH_BYTES = 68
"""Least size of a batch of one record without its value: 61 bytes of head and 7 of the record."""

CLOCKS_MS = 300_000
"""By so much the clocks of a broker and of this machine may differ."""


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """The outputs that a topic is known to refuse.

    Args:
        value_bytes: the largest value that it may take; None: not known.
        before_ms: by how much a timestamp may be earlier than the time of the broker; None: any.
        after_ms: by how much it may be later; None: any.
    """

    value_bytes: int | None = None
    before_ms: int | None = None
    after_ms: int | None = None


NO_LIMITS = OutputLimits()
"""Of a topic of which nothing is known."""


def bounds_of(limits: OutputLimits) -> tuple[int, int]:
    """Return the earliest and the latest timestamp that a topic may take now."""
    now_ms = round(time.time() * 1000)
    earliest = -1 if limits.before_ms is None else now_ms - limits.before_ms - CLOCKS_MS
    latest = LATEST_MS if limits.after_ms is None else now_ms + limits.after_ms + CLOCKS_MS
    return earliest, latest


def refuse_size(topic: str, size_bytes: int, limit_bytes: int) -> NoReturn:
    """Raise because a topic does not take a value of this size.

    Raises:
        DataRejected: always.
    """
    raise DataRejected(
        f"topic {topic} refuses a value of {size_bytes} bytes: a value may have {limit_bytes} "
        f"there. Raise its max.message.bytes and start the workers again, or make the value smaller"
    )


def refuse_time(topic: str, timestamp: int) -> NoReturn:
    """Raise because a topic does not take this timestamp.

    Raises:
        DataRejected: always.
    """
    raise DataRejected(
        f"topic {topic} refuses the timestamp {timestamp}: it is outside the topic's "
        f"message.timestamp.before.max.ms or message.timestamp.after.max.ms. Correct the event "
        f"time, or raise the limit and start the workers again"
    )
