"""Joins of every kind on a real broker, with the worker killed in the middle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import KafkaService
from tests.support.applications.joined import Shop


@pytest.mark.slow
def test_joins_of_every_kind_give_what_the_inputs_say_although_their_worker_is_killed(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path, seed: int
) -> None:
    name = unique_name("shop")
    shop = Shop(kafka.bootstrap_servers, name, tmp_path / name, seed)
    try:
        shop.fill(1500)
        faults = ["transaction.before_commit=kill@3"]
        settings = [*shop.keeping, "worker.batch_records=200"]
        killed = shop.start_worker(settings=settings, faults=faults, instance="one")
        killed.wait_for_fault("transaction.before_commit")
        assert killed.wait() == -9
        shop.finish_all(settings=shop.keeping, instance="one")
        assert shop.findings() == []
        said, gold = shop.gold_rows()
        assert said == gold
    finally:
        shop.stop()
