"""The condition for taking a task from another attempt: never from a healthy one.

A retry and a speculative copy are indistinguishable. A takeover ends the other attempt, so a copy
that took over at its start would undo the work that it should speed up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from eosframework.errors import ClusterUnreachable, DatabaseUnavailable

LOOK_SECONDS = 1.0
"""Interval between two looks at the other attempt's progress."""


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """The visible activity of a task's owner.

    Args:
        mark: a change is a sign of life; None: nothing was written yet.
        ended: the task has no owner any more, or is complete.
    """

    mark: object = None
    ended: bool = False


def wait_for_turn(
    look: Callable[[], SignOfLife],
    stall_seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> SignOfLife:
    """Wait for a period without a sign of life, and return the last sign.

    Time without an answer says nothing of the other attempt, and does not count.

    Args:
        look: returns the current sign.
        stall_seconds: length of the period.
        clock: seconds, monotonic.
        sleep: waits for a number of seconds.
    """
    events = structlog.get_logger("eosframework.backfill")
    last = look()
    heard_at = looked_at = clock()
    if not last.ended:
        events.info("attempt_watches", stall_seconds=stall_seconds)
    pause_seconds = min(LOOK_SECONDS, stall_seconds / 5)
    while not last.ended and looked_at - heard_at < stall_seconds:
        sleep(pause_seconds)
        try:
            sign = look()
        except (ClusterUnreachable, DatabaseUnavailable) as error:
            events.warning("watch_retried", error=str(error))
            heard_at += clock() - looked_at
            looked_at = clock()
            continue
        looked_at = clock()
        if sign.mark != last.mark:
            heard_at = looked_at
        last = sign
    return last
