"""Rare garbage collections in a Python worker of Spark.

Spark runs many tasks in one process, and pyspark collects all garbage after each of them. That
takes longer than a small task: modules alone have hundreds of thousands of objects.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

GARBAGE_THRESHOLD = 50_000
"""A batch makes thousands of tuples, all freed by reference counts; a collection for every 700th
takes 3 to 7% of the time."""


@contextmanager
def collecting_rarely() -> Generator[None]:
    """Raise the collector's threshold within, and exclude the process's modules afterwards."""
    thresholds = gc.get_threshold()
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        exclude_modules()


def exclude_modules() -> None:
    """Freeze the objects that exist after the first task, most of which are those of modules.

    Only once: objects of a user's function that are frozen are not collected any more.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
