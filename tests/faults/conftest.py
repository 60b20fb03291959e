"""A pipeline for each test, and three brokers for all tests that break some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eosframework.embedded import KafkaCluster, start_kafka
from eosframework.errors import ComponentFailed
from tests.support.applications.pipeline import Pipeline
from tests.support.servers.three_brokers import PROPERTIES, REPLICAS, ThreeBrokers


@pytest.fixture
def pipeline(make_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """The doubling and tripling topology with 4 partitions."""
    return make_pipeline()


@pytest.fixture(scope="session")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    """Three brokers with three replicas of everything, of which two must be in sync."""
    # Another server may take a port between its choice and the broker's start, seconds later.
    try:
        cluster = _started(tmp_path_factory)
    except ComponentFailed:
        cluster = _started(tmp_path_factory)
    try:
        yield ThreeBrokers(cluster)
    finally:
        cluster.kill()


def _started(directories: pytest.TempPathFactory) -> KafkaCluster:
    return start_kafka(
        directories.mktemp("three"),
        nodes=3,
        fast_start=True,
        heap_megabytes=256,
        properties=PROPERTIES,
    )


@pytest.fixture
def brokers(three_brokers: ThreeBrokers) -> Iterator[ThreeBrokers]:
    """The three brokers, all of them brought back after the test."""
    yield three_brokers
    three_brokers.restore()


@pytest.fixture
def replicated(
    brokers: ThreeBrokers, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[..., Any]]:
    """Make pipelines with three replicas on the three brokers; their workers are ended."""
    made: list[Pipeline] = []

    def make(**options: Any) -> Pipeline:
        name = unique_name("app")
        made.append(
            Pipeline(
                brokers.bootstrap_servers,
                name,
                tmp_path / name,
                replication_factor=REPLICAS,
                **options,
            )
        )
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.stop()
