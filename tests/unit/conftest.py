"""What holds for every unit test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eosframework.processing.transaction.overtime import end_idle_watcher


@pytest.fixture(autouse=True)
def no_watcher_stays() -> Iterator[None]:
    """End the thread of record timers that nobody closes, such as those of single tasks."""
    yield
    end_idle_watcher()
