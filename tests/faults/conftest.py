"""A pipeline for each test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.pipeline import Pipeline


@pytest.fixture
def pipeline(make_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """The doubling and tripling topology with 4 partitions."""
    return make_pipeline()
