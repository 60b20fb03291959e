"""The windows of keyed streams."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from eosframework.errors import TopologyError
from eosframework.topology.dsl.recorded_calls import caller
from eosframework.topology.spec.durations import DurationLike
from eosframework.topology.spec.window_spec import WindowSpec


def tumbling(size: DurationLike | None = None, **parts: float) -> WindowSpec:
    """Return windows of one size, one after the other.

    Args:
        size: a timedelta, or as in `"1h"`.
        parts: arguments of a timedelta, instead of a size: `hours=1`.
    """
    return window_of({"tumbling": _duration(size, parts)})


def hopping(size: DurationLike | None = None, *, every: DurationLike, **parts: float) -> WindowSpec:
    """Return windows of one size that overlap.

    Args:
        size: a timedelta, or as in `"1h"`.
        every: from the start of one window to the start of the next.
        parts: arguments of a timedelta, instead of a size: `hours=1`.
    """
    return window_of({"hopping": _duration(size, parts), "every": every})


def sliding(size: DurationLike | None = None, **parts: float) -> WindowSpec:
    """Return a window for every set of records at most `size` apart, as in Kafka Streams.

    Args:
        size: a timedelta, or as in `"5m"`.
        parts: arguments of a timedelta, instead of a size: `minutes=5`.
    """
    return window_of({"sliding": _duration(size, parts)})


def session(gap: DurationLike | None = None, **parts: float) -> WindowSpec:
    """Return windows of records that are at most `gap` apart from one to the next.

    Args:
        gap: a timedelta, or as in `"30m"`.
        parts: arguments of a timedelta, instead of a gap: `minutes=30`.
    """
    return window_of({"session": _duration(gap, parts)})


def window_of(declared: Mapping[str, Any]) -> WindowSpec:
    """Return windows, given as in a topology file.

    Raises:
        TopologyError: the options contradict each other.
    """
    try:
        return WindowSpec.model_validate(declared)
    except ValidationError as error:
        detail = error.errors()[0]
        where = ".".join(str(part) for part in detail["loc"])
        raise TopologyError(f"{caller()}: {where or 'window'}: {detail['msg']}") from error


def _duration(size: DurationLike | None, parts: Mapping[str, float]) -> DurationLike:
    if (size is None) == (not parts):
        raise TopologyError(
            f"{caller()}: a window has either a size, as in '1h', or parts of one, as in hours=1"
        )
    return timedelta(**parts) if size is None else size
