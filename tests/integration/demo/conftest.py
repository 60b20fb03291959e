from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.processes.demos import Demo


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Start a demo by the name of its command; it is ended after the test."""
    started: list[Demo] = []

    def make(command: str, *arguments: str) -> Demo:
        started.append(Demo(tmp_path, command, *arguments))
        return started[-1]

    yield make
    for demo in started:
        demo.end()
