"""Shards of a Kafka sink: an attempt at each shard with rows, on executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter

from eosframework.application.control_log import ControlLog
from eosframework.config import Settings
from eosframework.errors import RunError
from eosframework.kafka.admin.metadata import SizeLimits
from eosframework.process.logs import configure_logs
from eosframework.spark.executor.functions import run_numbered
from eosframework.spark.session.executors import BatchFunction, RecordBatch, batch_of
from eosframework.spark.sinks.kafka.columns import ShardPiece, pieces_of
from eosframework.spark.sinks.kafka.shard_attempt import (
    ClientsKey,
    ShardAttempt,
    ShardClients,
    ShardRows,
    ShardWork,
    attempt_name,
    clients_of,
    take_shards,
)
from eosframework.spark.sinks.kafka.sink_log import SETTLE_SECONDS, ShardLog, ShardsLog, receipts_of
from eosframework.spark.sinks.sink_entry import SinkBatch, came_apart
from eosframework.transactions.attempts.ownership import OwnedTask
from eosframework.txnid import TransactionalId


@dataclass(frozen=True)
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

    @property
    def clients_key(self) -> ClientsKey:
        """The settings of the clients that write the batch."""
        return ClientsKey(self.application, self.sink, self.settings, self.limits, self.topics)


def attempts(spec: ShardSpec) -> BatchFunction:
    """Return the function for `mapInArrow`: it writes the rows of shards in transactions."""

    def run(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        pieces = pieces_of(batches, spec.topic)
        first = next(pieces, None)
        if first is None:
            return
        configure_logs(spec.settings.log)
        found = run_numbered(lambda number: _write(spec, number, chain([first], pieces)))
        yield batch_of([*found.items()], {"shard": "int64", "row_count": "int64"})

    return run


def _write(spec: ShardSpec, number: int, pieces: Iterator[ShardPiece]) -> dict[int, int]:
    """Write shard after shard; take those together that are known to follow."""
    task = ShardTask(spec, clients_of(spec.clients_key), number)
    done: dict[int, int] = {}
    try:
        for shard, group in groupby(pieces, lambda piece: piece.shard):
            if shard in done:
                raise RunError(came_apart(shard))
            run = iter(group)
            first = next(run)
            following = map(attrgetter("rows"), run)
            if not task.has(shard):
                task.take(first.ahead)
            done[shard] = task.write(shard, chain([first.rows], following))
    finally:
        task.close()
    return done


class ShardTask:
    """The attempts at some shards.

    Args:
        spec: of the batch.
        clients: of the sink.
        number: of the attempts, from 0.
    """

    def __init__(self, spec: ShardSpec, clients: ShardClients, number: int) -> None:
        self._spec = spec
        self._outputs = clients.outputs
        self._number = number
        self._name = attempt_name(number, spec.run)
        control = ControlLog(
            spec.application,
            spec.settings.kafka,
            clients.admin,
            settle_seconds=SETTLE_SECONDS,
        )
        sequence, batch = spec.batch.sequence, spec.batch.batch
        self._log = ShardsLog(control, spec.sink, sequence, batch, spec.since)
        self._taken: dict[int, ShardAttempt] = {}

    def has(self, shard: int) -> bool:
        """Return whether a shard was taken."""
        return shard in self._taken

    def take(self, shards: Sequence[int]) -> None:
        """Take shards from every other attempt (A1 to A3).

        Args:
            shards: at least one, each with rows.

        Raises:
            InstanceFenced: another attempt took a shard meanwhile, or the batch is over.
            RunError: the brokers refuse an id.
            ClusterUnreachable: the cluster did not answer for long.
        """
        attempts = {shard: ShardAttempt(self._work(shard), self._name) for shard in shards}
        take_shards(attempts, self._log, self._number)
        self._taken.update(attempts)

    def write(self, shard: int, rows: Iterable[ShardRows]) -> int:
        """Write the rows of a taken shard that are not committed, and return their number.

        Args:
            shard: number of the shard.
            rows: all rows of the shard in the batch, in order, at least one.

        Raises:
            InstanceFenced: another attempt has the shard, or the batch is over.
            RunError: no attempt can succeed until the cause is fixed.
            ClusterUnreachable: brokers were unavailable for long; another attempt may resume.
        """
        return self._taken[shard].run(rows).rows

    def close(self) -> None:
        """Close the producers."""
        for attempt in self._taken.values():
            attempt.ownership.close()

    def _work(self, shard: int) -> ShardWork:
        spec, batch = self._spec, self._spec.batch
        task = OwnedTask(
            transactional_id=str(TransactionalId.sink(spec.application, spec.sink, shard)),
            name=f"shard {shard} of sink {spec.sink!r} of application {spec.application!r}",
            log=ShardLog(self._log, shard),
            outputs=self._outputs,
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
