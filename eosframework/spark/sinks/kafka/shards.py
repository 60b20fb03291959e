"""Shards of a Kafka sink: an attempt at each shard with rows, on executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter

from eosframework.errors import RunError
from eosframework.process.logs import configure_logs
from eosframework.spark.executor.functions import run_numbered
from eosframework.spark.session.executors import BatchFunction, RecordBatch, batch_of
from eosframework.spark.sinks.kafka.columns import ShardPiece, pieces_of
from eosframework.spark.sinks.kafka.shard_attempt import (
    ShardAttempt,
    ShardRows,
    ShardSpec,
    clients_of,
)
from eosframework.spark.sinks.kafka.sink_log import shard_claim
from eosframework.spark.sinks.sink_entry import ShardProgress, came_apart
from eosframework.transactions.task_attempts import TaskAttempt


def attempts(spec: ShardSpec) -> BatchFunction:
    """Return the function for `mapInArrow`: it writes the rows of shards in transactions."""

    def run(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        pieces = pieces_of(batches, spec.topic, spec.dead_letters)
        first = next(pieces, None)
        if first is None:
            return
        configure_logs(spec.settings.log)
        found = run_numbered(lambda number: _write(spec, number, chain([first], pieces)))
        yield batch_of([*found.items()], {"shard": "int64", "row_count": "int64"})

    return run


def _write(spec: ShardSpec, number: int, pieces: Iterator[ShardPiece]) -> dict[int, int]:
    """Write shard after shard; take those together that are known to follow."""
    task = ShardTask(spec, spec.attempt(clients_of(spec), number))
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
        attempt: of this Spark task.
    """

    def __init__(self, spec: ShardSpec, attempt: TaskAttempt[ShardProgress]) -> None:
        self._spec = spec
        self._attempt = attempt
        self._done: dict[int, ShardProgress] = {}
        self._taken: dict[int, ShardAttempt] = {}

    def has(self, shard: int) -> bool:
        """Return whether a shard was taken."""
        return shard in self._taken or shard in self._done

    def take(self, shards: Sequence[int]) -> None:
        """Take shards from every other attempt; see `TaskAttempt.take`.

        Args:
            shards: at least one, each with rows.

        Raises:
            InstanceFenced: another attempt took a shard meanwhile, or the batch is over.
            RunError: the brokers refuse an id.
            ClusterUnreachable: the cluster did not answer for long.
        """
        spec = self._spec
        claims = {n: shard_claim(spec.application, spec.sink, n, spec.sequence) for n in shards}
        numbers = {claim.key: shard for shard, claim in claims.items()}
        done, owned = self._attempt.take([*claims.values()], skip_complete=spec.is_staged)
        self._done.update({numbers[key]: progress for key, progress in done.items()})
        for one in owned:
            shard = numbers[one.claim.key]
            self._taken[shard] = ShardAttempt(spec, shard, self._attempt, one)

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
        done = self._done.get(shard)
        if done is not None and done.sequence != self._spec.sequence:
            name = f"shard {shard} of sink {self._spec.sink!r}"
            raise self._attempt.keys.policy.taken_over(name, done.attempt)
        return (done or self._taken[shard].run(rows)).rows

    def close(self) -> None:
        """Close the producers."""
        self._attempt.keys.close([taken.owned for taken in self._taken.values()])
