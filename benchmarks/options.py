"""The size of the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """The values of the command line; None: each benchmark's own default.

    Args:
        records: size of inputs.
        rounds: how often each measurement is repeated.
        seconds: how long a timed run is watched.
        disciplines: which works; none: all.
    """

    records: int | None = None
    rounds: int | None = None
    seconds: float | None = None
    disciplines: tuple[str, ...] = ()
