"""Windows as they are declared in Python."""

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
    """Windows of one size, one after the other.

    Args:
        size: a timedelta, or as in `"1h"`.
        parts: what a timedelta takes, instead of a size: `hours=1`.
    """
    return window_of({"tumbling": _duration(size, parts)})


def hopping(size: DurationLike | None = None, *, every: DurationLike, **parts: float) -> WindowSpec:
    """Windows of one size that overlap.

    Args:
        size: a timedelta, or as in `"1h"`.
        every: from the start of one to that of the next.
        parts: what a timedelta takes, instead of a size: `hours=1`.
    """
    return window_of({"hopping": _duration(size, parts), "every": every})


def sliding(size: DurationLike | None = None, **parts: float) -> WindowSpec:
    """A window for every set of records that are at most a time apart, as in Kafka Streams.

    Args:
        size: that time: a timedelta, or as in `"5m"`.
        parts: what a timedelta takes, instead of a size: `minutes=5`.
    """
    return window_of({"sliding": _duration(size, parts)})


def session(gap: DurationLike | None = None, **parts: float) -> WindowSpec:
    """A window for records that follow each other within a time.

    Args:
        gap: that time: a timedelta, or as in `"30m"`.
        parts: what a timedelta takes, instead of a gap: `minutes=30`.
    """
    return window_of({"session": _duration(gap, parts)})


def window_of(declared: Mapping[str, Any]) -> WindowSpec:
    """Return windows from what a topology file would say of them.

    Raises:
        TopologyError: they make no sense.
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
