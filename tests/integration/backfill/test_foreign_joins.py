"""A backfill of joins by foreign keys, and the worker that continues it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eosframework.config import load_settings
from eosframework.spark.backfill.api import Backfill
from tests.conftest import KafkaService
from tests.faults.test_foreign_keys import RECORDS, Foreign
from tests.support.processes.commands import here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_worker_after_a_backfill_joins_what_both_have_read(
    spark: SparkSession, kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique_name("foreign")
    foreign = Foreign(kafka.bootstrap_servers, name, tmp_path / name)
    foreign.change(RECORDS)
    servers = f"kafka.bootstrap_servers={foreign.bootstrap_servers}"
    topology = str(foreign.topology_file)
    Backfill(topology, job="history", settings=load_settings(None, [servers])).run(spark)
    assert foreign.findings() == []
    cut_over = here("backfill", "cutover", topology, "--job", "history", "--set", servers)
    assert cut_over.exit_code == 0, cut_over.err
    foreign.change(RECORDS)
    foreign.finish_all(instance="one", settings=foreign.keeping)
    assert foreign.findings() == []
    foreign.stop()
