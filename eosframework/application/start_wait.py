"""The wait of a start for brokers that do not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from eosframework.errors import ClusterUnreachable, ConnectionRefused

Started = TypeVar("Started")

PAUSE_SECONDS = 1.0
WARN_SECONDS = 60.0


def waiting_for_brokers(
    start: Callable[[], Started],
    limit_seconds: float | None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Started:
    """Return the result of `start`, which is called again while brokers do not answer.

    A failed broker is replaced after its session has expired, and until then requests to it have
    no answer.

    Args:
        start: finds what an earlier call has changed.
        limit_seconds: time after which no further call is made. None: no limit, also if the
            brokers refuse the connection; a running worker waits as long.
        is_stopped: returns whether to give up.

    Raises:
        ClusterUnreachable: the last call found no answer.
    """
    events = structlog.get_logger("eosframework.start")
    began = warn_at = time.monotonic()
    while True:
        try:
            return start()
        except ClusterUnreachable as error:
            waited_seconds = time.monotonic() - began
            if is_stopped():
                raise
            if limit_seconds is not None and (
                isinstance(error, ConnectionRefused) or waited_seconds >= limit_seconds
            ):
                raise
            if time.monotonic() >= warn_at:
                warn_at = time.monotonic() + WARN_SECONDS
                events.warning(
                    "start_waits_for_brokers",
                    error=str(error),
                    waited_seconds=round(waited_seconds),
                    limit_seconds=limit_seconds,
                )
        time.sleep(PAUSE_SECONDS)
