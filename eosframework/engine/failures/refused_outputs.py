"""Early rejection of outputs that the brokers are known to reject.

A rejected output aborts its transaction, which is bisected until the record is known: about a
second for each such record. A check in advance costs a comparison. Limits that cannot be checked
(the size of a compressed batch, a timestamp relative to the broker's clock) are left to bisection.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NoReturn

from eosframework.errors import DataRejected
from eosframework.records import LATEST_MS

BATCH_BYTES = 68
"""Minimum size of a batch of one record without its value: 61 bytes of header and 7 of the
record."""

CLOCKS_MS = 300_000
"""Tolerated clock difference between a broker and this machine; for a topic with a shorter limit,
that limit: otherwise every record would be sent, and be found by bisection, a second for each."""


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """The limits of a topic on its records.

    Args:
        value_bytes: the largest value; None: unknown.
        before_ms: how much a timestamp may be earlier than the broker's time; None: unlimited.
        after_ms: how much it may be later; None: unlimited.
    """

    value_bytes: int | None = None
    before_ms: int | None = None
    after_ms: int | None = None


NO_LIMITS = OutputLimits()
"""The limits of a topic about which nothing is known."""


def bounds_of(limits: OutputLimits) -> tuple[int, int]:
    """Return the earliest and the latest timestamp that a topic accepts now."""
    now_ms = round(time.time() * 1000)
    earliest = -1 if limits.before_ms is None else now_ms - tolerant(limits.before_ms)
    latest = LATEST_MS if limits.after_ms is None else now_ms + tolerant(limits.after_ms)
    return earliest, latest


def tolerant(limit_ms: int) -> int:
    """Return a limit of time with the tolerated difference of clocks."""
    return limit_ms + min(limit_ms, CLOCKS_MS)


def refuse_size(topic: str, size_bytes: int, limit_bytes: int) -> NoReturn:
    """Raise because a topic rejects a value of this size.

    Raises:
        DataRejected: always.
    """
    error = DataRejected(
        f"topic {topic} refuses a value of {size_bytes} bytes: a value may have {limit_bytes} "
        f"there. Raise its max.message.bytes and start the workers again, or make the value smaller"
    )
    error.topic = topic
    raise error


def refuse_time(topic: str, timestamp: int) -> NoReturn:
    """Raise because a topic rejects this timestamp.

    Raises:
        DataRejected: always.
    """
    raise DataRejected(
        f"topic {topic} refuses the timestamp {timestamp}: it is outside the topic's "
        f"message.timestamp.before.max.ms or message.timestamp.after.max.ms. Correct the event "
        f"time, or raise the limit and start the workers again"
    )
