"""The garbage collector's settings in a process of ours, from its start on."""

from __future__ import annotations

import gc

THRESHOLDS = (50_000, 20, 50)


def collect_rarely() -> None:
    """Run the garbage collector at every 50,000th object instead of every 700th.

    Imports keep almost all that they allocate, and collections were an eighth to a quarter of their
    time. A batch allocates thousands of tuples and messages, which their reference counts free:
    collections took 3 to 7% of a worker's main thread. Cycles of users' functions are collected.
    """
    gc.set_threshold(*THRESHOLDS)


def exclude_what_is_there() -> None:
    """Exclude all objects so far from collections: a start leaves about a hundred in cycles."""
    collect_rarely()
    gc.freeze()
