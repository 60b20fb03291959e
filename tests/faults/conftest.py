"""A pipeline for each test, with its workers ended afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipeline import Pipeline


@pytest.fixture
def make_pipeline(
    kafka: Any, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[..., Pipeline]]:
    """Make pipelines on the shared broker."""
    made: list[Pipeline] = []

    def make(**options: Any) -> Pipeline:
        name = unique_name("app")
        made.append(Pipeline(kafka.bootstrap_servers, name, tmp_path / name, **options))
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.stop()


@pytest.fixture
def pipeline(make_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """A pipeline of the doubling and tripling topology with 4 partitions."""
    return make_pipeline()
