"""Shards of a Kafka sink on executors: an attempt at each shard with rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter

from eosframework.application.control_log import ControlLog
from eosframework.backfill.executor.functions import run_numbered
from eosframework.backfill.spark.arrow_batches import BatchFunction, RecordBatch, batch_of
from eosframework.config import Settings
from eosframework.errors import RunError
from eosframework.kafka.admin.metadata import SizeLimits
from eosframework.process.logs import configure_logs
from eosframework.processing.attempts.ownership import OwnedTask
from eosframework.spark.kafka.columns import ShardPiece, pieces_of
from eosframework.spark.kafka.receipts import receipts_of
from eosframework.spark.kafka.shard_attempt import ShardAttempt, ShardRows, ShardWork
from eosframework.spark.kafka.shard_clients import ClientsKey, clients_of
from eosframework.spark.kafka.shard_takeover import attempt_name, take_shards
from eosframework.spark.kafka.sink_log import SETTLE_SECONDS, ShardLog, ShardsLog
from eosframework.spark.shard_rows import came_apart
from eosframework.spark.sink_entry import ShardProgress, SinkBatch
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
        writers: by shard, name of the attempt that completed it last, as far as it is known.
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
    writers: Mapping[int, str]


def attempts(spec: ShardSpec) -> BatchFunction:
    """Return the function for `mapInArrow`: it writes the rows of shards in transactions."""

    def run(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        pieces = pieces_of(batches, spec.topic)
        first = next(pieces, None)
        if first is None:
            return
        configure_logs(spec.settings.log)
        found = run_numbered(lambda number: _write(spec, number, chain([first], pieces)))
        rows = [(shard, one.rows, one.attempt) for shard, one in found.items()]
        yield batch_of(rows, {"shard": "int64", "row_count": "int64", "writer": "string"})

    return run


def _write(spec: ShardSpec, number: int, pieces: Iterator[ShardPiece]) -> dict[int, ShardProgress]:
    """Write shard after shard; take those together that are known to follow."""
    task = ShardTask(spec, number)
    done: dict[int, ShardProgress] = {}
    try:
        for shard, group in groupby(pieces, lambda piece: piece.shard):
            if shard in done:
                raise RunError(came_apart(shard))
            run = iter(group)
            first = next(run)
            following = map(attrgetter("rows"), run)
            rows: Iterable[ShardRows] = chain([first.rows], following)
            done[shard] = task.write(shard, first.ahead, rows)
    finally:
        task.close()
    return done


class ShardTask:
    """One attempt at a Spark task.

    Args:
        spec: of the batch.
        number: of the attempt, from 0.
    """

    def __init__(self, spec: ShardSpec, number: int) -> None:
        key = ClientsKey(spec.application, spec.sink, spec.settings, spec.limits, spec.topics)
        self._spec = spec
        self._number = number
        self._name = attempt_name(number, spec.run)
        self._clients = clients_of(key)
        control = ControlLog(
            spec.application,
            spec.settings.kafka,
            self._clients.admin,
            settle_seconds=SETTLE_SECONDS,
        )
        sequence, batch = spec.batch.sequence, spec.batch.batch
        self._log = ShardsLog(control, spec.sink, sequence, batch, spec.since)
        self._taken: dict[int, ShardAttempt] = {}

    def write(self, shard: int, ahead: Sequence[int], rows: Iterable[ShardRows]) -> ShardProgress:
        """Write the rows of a shard that are not committed, and return its complete progress.

        Args:
            shard: number of the shard.
            ahead: this shard and those that are known to follow it.
            rows: all rows of the shard in the batch, in order, at least one.

        Raises:
            InstanceFenced: another attempt has a shard, or the batch is over.
            RunError: no attempt can succeed until the cause is fixed.
            ClusterUnreachable: brokers were unavailable for long; another attempt may resume.
        """
        if shard not in self._taken:
            self._take(ahead)
        attempt = self._taken[shard]
        progress = attempt.run(rows)
        output = attempt.ownership.release()
        if output is not None:
            self._clients.keep(shard, progress.attempt, output)
        return progress

    def close(self) -> None:
        """Close the producers of shards that were not completed."""
        for attempt in self._taken.values():
            attempt.ownership.close()

    def _take(self, shards: Sequence[int]) -> None:
        writers = self._spec.writers
        found = {shard: self._clients.take(shard, writers.get(shard)) for shard in shards}
        kept = {shard: output for shard, output in found.items() if output is not None}
        attempts = {shard: ShardAttempt(self._work(shard), self._name) for shard in shards}
        take_shards(attempts, self._log, self._number, kept)
        self._taken.update(attempts)

    def _work(self, shard: int) -> ShardWork:
        spec, batch = self._spec, self._spec.batch
        task = OwnedTask(
            transactional_id=str(TransactionalId.sink(spec.application, spec.sink, shard)),
            name=f"shard {shard} of sink {spec.sink!r} of application {spec.application!r}",
            log=ShardLog(self._log, shard),
            outputs=self._clients.outputs,
            stall_seconds=spec.settings.backfill.stall_seconds,
            timeout_seconds=spec.settings.worker.transaction_timeout_seconds,
            logger="eosframework.spark",
            run=spec.run,
        )
        return ShardWork(
            task,
            batch.sequence,
            batch.batch,
            spec.settings.backfill.chunk_records,
            spec.settings.backfill.chunk_megabytes * 2**20,
            staged=batch.stage is not None,
            receipts=receipts_of(spec.application, spec.sink, shard, batch),
        )
