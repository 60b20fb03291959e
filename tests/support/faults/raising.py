"""Functions of a topology that raise what is no Exception."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

RAISED: dict[int, type[BaseException]] = {
    2: KeyboardInterrupt,
    3: SystemExit,
    5: asyncio.CancelledError,
    7: GeneratorExit,
}
"""By number."""


def stop(value: dict[str, int]) -> dict[str, int]:
    """Raise in a step."""
    if (kind := RAISED.get(value["n"])) is not None:
        raise kind("enough")
    return value


def time_of(value: dict[str, int]) -> int:
    """Raise where an event time is told, before the record is run."""
    if value["n"] == 11:
        raise KeyboardInterrupt("no time")
    return sys.exit("no time either") if value["n"] == 13 else value["n"]


def stop_batch(values: Any) -> Any:
    """Raise for the batch that holds a number, down to its record alone."""
    if 17 in values["n"].to_pylist():
        raise KeyboardInterrupt("no batch")
    return values


def row(record: Any) -> dict[str, Any]:
    """Raise where rows are made."""
    return {"n": stop(record.value)["n"]}
