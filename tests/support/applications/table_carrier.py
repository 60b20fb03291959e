r"""A process that carries numbers of one partition into a table, as an executor does, to be killed.

python -m tests.support.applications.table_carrier \
    DSN APPLICATION RECORDS ATTEMPT PAUSE_SECONDS STALL_SECONDS
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
from pydantic import SecretStr

from eosframework import Topology
from eosframework.config import BackfillSettings, DatabaseSettings, KafkaSettings, Settings
from eosframework.records import TopicPartition
from eosframework.spark.backfill.stage_runner import TableTaskSpec, write_partition
from eosframework.spark.executor.attempt_context import Run
from eosframework.spark.job.job_entry import OffsetRange
from eosframework.spark.session.executors import pack
from eosframework.spark.session.spark_rows import RowMessage
from eosframework.testing import Fault, arm
from eosframework.topology.graph.graph import Graph
from eosframework.topology.resolve.resolve import resolve

PARTITION = TopicPartition("numbers", 0)
COMMIT_SECONDS = 0.5


def graph_of(application: str) -> Graph:
    app = Topology(application)
    app.stream("numbers", key=bytes, value="json").to_table("numbers")
    return resolve(app.loaded())


def work_of(dsn: str, application: str, records: int, stall_seconds: float) -> TableTaskSpec:
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers="not.asked:1"),
        database=DatabaseSettings(
            dsn=SecretStr(dsn), batch_rows=200, idle_transaction_timeout_seconds=2
        ),
        backfill=BackfillSettings(
            commit_interval_seconds=COMMIT_SECONDS, stall_seconds=stall_seconds
        ),
    )
    ranges = {PARTITION: OffsetRange(first=0, end=records)}
    return TableTaskSpec(pack(graph_of(application)), settings, {"numbers": "id"}, ranges)


def numbers(records: int, pause_seconds: float) -> Iterator[Run]:
    """Give rows; the second half of them only when the file is there that EOS_TEST_GATE names."""
    gate = os.environ.get("EOS_TEST_GATE")
    for first in range(0, records, 100):
        time.sleep(pause_seconds)
        while gate and first >= records / 2 and not Path(gate).exists():
            time.sleep(0.01)
        yield (
            PARTITION,
            [
                RowMessage(("numbers", 0, n, None, orjson.dumps({"n": n}), 0, None))
                for n in range(first, min(first + 100, records))
            ],
        )


def main() -> None:
    """Carry as the command line says."""
    dsn, application, records, attempt, pause_seconds, stall_seconds = sys.argv[1:]
    texts = [text for text in os.environ.get("EOS_TEST_FAULTS", "").split(";") if text]
    if texts:
        arm((Fault.parse(text) for text in texts), Path(os.environ["EOS_TEST_FAULT_DIRECTORY"]))
    work = work_of(dsn, application, int(records), float(stall_seconds))
    print(
        write_partition(work, PARTITION, numbers(int(records), float(pause_seconds)), int(attempt))
    )


if __name__ == "__main__":
    main()
