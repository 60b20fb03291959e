"""The producers of a worker that chooses them by itself."""

from __future__ import annotations

from typing import Any

import pytest

from eosframework.application.producer_choice import chosen_by_settings, chosen_producers
from eosframework.config import Producers, WorkerSettings
from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.kafka.consumer.group import recording_client_id
from tests.support.applications.graphs import graph_of

GRAPH = graph_of("flights", {"late": (["raw"], ["late"])})
OLD, NEW = "eosframework-consumer", recording_client_id("eosframework-consumer")


def group(*clients: str) -> GroupDescription:
    return GroupDescription(clients, None, tuple(None for _ in clients))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Producers.WORKER),
        ({"ids": "leased"}, Producers.PARTITION),
        ({"guarantee": "at_least_once"}, Producers.PARTITION),
        ({"producers": "partition"}, Producers.PARTITION),
        ({"producers": "worker"}, Producers.WORKER),
    ],
)
def test_a_worker_has_one_producer_wherever_its_settings_allow_it(
    settings: dict[str, Any], expected: Producers
) -> None:
    worker = WorkerSettings.model_validate({"producers": "auto", **settings})
    assert chosen_by_settings(GRAPH, worker) is expected
    assert chosen_producers(GRAPH, worker, group()) is expected
    assert chosen_producers(GRAPH, worker, group(NEW, NEW)) is expected


def test_an_application_without_tasks_needs_no_ownership_topic() -> None:
    auto = WorkerSettings(producers=Producers.AUTO)
    assert chosen_by_settings(graph_of("flights", {}), auto) is Producers.PARTITION


def test_beside_a_version_that_records_nothing_only_a_stated_choice_is_kept() -> None:
    """The start of a worker that was told to have its own id is refused then."""
    auto = WorkerSettings(producers=Producers.AUTO)
    assert chosen_producers(GRAPH, auto, group(NEW, OLD)) is Producers.PARTITION
    stated = WorkerSettings(producers=Producers.WORKER)
    assert chosen_producers(GRAPH, stated, group(NEW, OLD)) is Producers.WORKER
