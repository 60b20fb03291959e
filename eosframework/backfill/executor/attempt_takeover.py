"""When a later attempt may take a task from an earlier one: never from one that is well.

A retry and a speculative copy look alike to whoever runs them. Taking over ends the other attempt,
so a copy that merely starts would undo what it was meant to speed up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from eosframework.errors import ClusterUnreachable, DatabaseAway

LOOK_SECONDS = 1.0
"""Between two looks at what the other attempt has written."""


@dataclass(frozen=True, slots=True)
class Sign:
    """What can be seen of whoever has a task.

    Args:
        mark: another one than before is a sign of life; None: nobody has written yet.
        ended: nobody has the task any more, or everything of it is done.
    """

    mark: object = None
    ended: bool = False


def wait_for_turn(
    look: Callable[[], Sign],
    stall_seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Sign:
    """Wait until there was no sign of life for a while, and return the last one.

    Time in which nobody answers says nothing of the other attempt, and does not count.

    Args:
        look: returns what is to be seen now.
        stall_seconds: so long without a sign of life.
        clock: seconds, monotonic.
        sleep: waits for so many seconds.
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
        except (ClusterUnreachable, DatabaseAway) as error:
            events.warning("watch_retried", error=str(error))
            heard_at += clock() - looked_at
            looked_at = clock()
            continue
        looked_at = clock()
        if sign.mark != last.mark:
            heard_at = looked_at
        last = sign
    return last
