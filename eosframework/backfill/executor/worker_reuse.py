"""Less work between the tasks of a Python worker that Spark reuses.

Spark runs many tasks in one process. After each of them pyspark collects all garbage, and modules
alone have hundreds of thousands of objects. Before each of them it invalidates the finders of
modules, and each finder of a zip archive, such as pyspark.zip, then reads the archive's directory
again (CPython 3.11). Either takes longer than a small task.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from zipimport import zipimporter

GARBAGE_THRESHOLD = 50_000
"""A batch makes thousands of tuples, all freed by reference counts; a collection for every 700th
takes 3 to 7% of the time."""


@contextmanager
def cheap_reuse() -> Generator[None]:
    """Collect garbage rarely within; afterwards leave little to collect and to invalidate."""
    thresholds = gc.get_threshold()
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        exclude_modules()
        forget_archives()


def exclude_modules() -> None:
    """Freeze the objects that exist after the first task, most of which are those of modules.

    Only once: objects of a user's function that are frozen are not collected any more.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def forget_archives() -> None:
    """Forget the finders of zip archives; an import makes them again from cached directories."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
