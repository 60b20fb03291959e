"""Shards of a Kafka sink on executors: one attempt for each shard with rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from eosframework.application.control_log import ControlLog
from eosframework.backfill.executor.functions import run_numbered
from eosframework.backfill.spark.arrow_batches import BatchFunction, RecordBatch, batch_of
from eosframework.config import KafkaSettings, Settings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import SizeLimits
from eosframework.kafka.worker_clients import producers
from eosframework.process.logs import configure_logs
from eosframework.processing.attempts.ownership import OwnedTask
from eosframework.spark.kafka_columns import rows_of
from eosframework.spark.shard_attempt import ShardAttempt, ShardRows, ShardWork
from eosframework.spark.sink_entry import SinkBatch
from eosframework.spark.sink_log import SETTLE_SECONDS, ShardLog
from eosframework.spark.sink_receipts import receipts_of
from eosframework.txnid import TransactionalId


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """The parameters of a batch's attempts, sent to the executors.

    Args:
        application: owner of the ids.
        sink: its name.
        settings: of the application.
        batch: open.
        since: offset in the control topic at which the entries of the batch may begin; None: it is
            not known, because another driver opened the batch.
        topic: of all records; None: of their column.
        topics: the topics to write, as far as they are known.
        limits: of these topics.
        run: id of the Spark job.
    """

    application: str
    sink: str
    settings: Settings
    batch: SinkBatch
    since: int | None
    topic: str | None
    topics: tuple[str, ...]
    limits: SizeLimits
    run: str


def attempts(spec: ShardSpec) -> BatchFunction:
    """Return the function for `mapInArrow`: it writes the rows of a shard in transactions."""

    def run(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        found = rows_of(batches, spec.topic)
        first = next(found, None)
        if first is None:
            return
        shard, rows = first[0], chain([first[1]], (more for _, more in found))
        configure_logs(spec.settings.log)
        count = run_numbered(lambda number: _attempt(spec, shard, number, rows))
        yield batch_of([(shard, count)], {"shard": "int64", "row_count": "int64"})

    return run


def _attempt(spec: ShardSpec, shard: int, attempt_number: int, rows: Iterator[ShardRows]) -> int:
    settings, batch = spec.settings, spec.batch
    admin = _admin(settings.kafka)
    log = ControlLog(spec.application, settings.kafka, admin, settle_seconds=SETTLE_SECONDS)
    outputs = producers(settings, spec.limits, spec.topics)
    task = OwnedTask(
        transactional_id=str(TransactionalId.sink(spec.application, spec.sink, shard)),
        name=f"shard {shard} of sink {spec.sink!r} of application {spec.application!r}",
        log=ShardLog(log, spec.sink, shard, batch.sequence, batch.batch, spec.since),
        outputs=outputs,
        stall_seconds=settings.backfill.stall_seconds,
        timeout_seconds=settings.worker.transaction_timeout_seconds,
        logger="eosframework.spark",
        run=spec.run,
    )
    work = ShardWork(
        task,
        batch.sequence,
        batch.batch,
        settings.backfill.chunk_records,
        settings.backfill.chunk_megabytes * 2**20,
        staged=batch.stage is not None,
        receipts=receipts_of(spec.application, spec.sink, shard, batch),
    )
    try:
        return ShardAttempt(work, attempt_number).run(rows).rows
    finally:
        outputs.stop()


_ADMINS: list[tuple[KafkaSettings, ClusterAdmin]] = []
"""The last one: Spark runs many short tasks in one Python worker, and each connection costs one of
a micro-batch more than its rows."""


def _admin(settings: KafkaSettings) -> ClusterAdmin:
    """Return the admin client of this Python worker."""
    if not _ADMINS or _ADMINS[0][0] != settings:
        _ADMINS[:] = [(settings, ClusterAdmin(settings))]
    return _ADMINS[0][1]
