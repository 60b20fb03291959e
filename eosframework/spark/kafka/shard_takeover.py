"""The takeover of several shards, all at once: A1 to A3 of `shard_attempt`.

A driver that writes small batches itself keeps the producer of a shard, and writes the next batch
with it. No init is needed then (A2): its epoch fences all earlier attempts, and a later one has
inited the id, which refuses this producer from its first transaction on.

A3 needs no read of its own if no attempt has written the shards in this batch: there is no
progress.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import structlog

from eosframework.processing.attempts.attempt_takeover import SignOfLife, wait_for_turn
from eosframework.processing.attempts.ownership import init_ids, patiently, run_suffix
from eosframework.processing.ports import TransactionalOutput
from eosframework.spark.kafka.shard_attempt import ShardAttempt
from eosframework.spark.kafka.sink_log import Written
from eosframework.spark.sink_entry import ShardProgress


class ProgressLog(Protocol):
    """The progress of shards in a batch; see `ShardsLog`."""

    def read(self, shards: Sequence[int]) -> Mapping[int, ShardProgress]:
        """Return the progress of shards, once all transactions are decided."""
        ...

    def watch(self, shards: Sequence[int]) -> Mapping[int, ShardProgress]:
        """Return the decided progress of shards, without waiting."""
        ...

    def written_end(self) -> int:
        """Return the log end offset, past open transactions."""
        ...

    def written(self, shards: Sequence[int], since: int = 0) -> Written:
        """Return the newest progress of shards from an offset on, committed or not."""
        ...


def attempt_name(number: int, run: str) -> str:
    """Return a unique name for an attempt at a Spark task.

    Args:
        number: of the attempt, from 0.
        run: id of the Spark job; empty: there is none.
    """
    place = f"{socket.gethostname()}/{os.getpid()}"
    return f"{place}/{number}/{uuid.uuid4().hex[:8]}{run_suffix(run)}"


def take_shards(
    attempts: Mapping[int, ShardAttempt],
    log: ProgressLog,
    number: int,
    kept: Mapping[int, TransactionalOutput],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Own shards for their attempts (A1 to A3), or note that another attempt has completed them.

    Args:
        attempts: by shard; at least one.
        log: their progress.
        number: of the attempts, from 0.
        kept: producers of shards, each inited by this process, which no other attempt is known to
            have inited since. They are closed if this raises.
        clock: seconds, monotonic.
        sleep: waits for a number of seconds.

    Raises:
        InstanceFenced: another attempt took a shard meanwhile, or the batch is over.
        RunError: the brokers refuse an id.
        ClusterUnreachable: the cluster did not answer for long.
    """
    outputs = dict(kept)
    close = next(iter(attempts.values())).work.task.outputs.close
    try:
        _take(attempts, log, number, outputs, clock, sleep)
    except BaseException:
        close(list(outputs.values()))
        raise


def _take(
    attempts: Mapping[int, ShardAttempt],
    log: ProgressLog,
    number: int,
    outputs: dict[int, TransactionalOutput],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Do A1 to A3; `outputs` has the open producers all the time."""
    shards = list(attempts)
    task = attempts[shards[0]].work.task
    events = structlog.get_logger(task.logger)
    retrying = partial(patiently, task=task.name, events=events, clock=clock, sleep=sleep)
    written = retrying(lambda: log.written(shards))
    if number > 0 or _is_shared(written, task.run):  # A1
        look = partial(_look, log, shards)
        wait_for_turn(look, task.stall_seconds, clock=clock, sleep=sleep)
        decided = retrying(lambda: log.watch(shards))
        for shard, attempt in attempts.items():
            if attempt.work.staged and shard in decided and decided[shard].complete:
                attempt.done = decided[shard]
                if shard in outputs:
                    task.outputs.close([outputs.pop(shard)])
    left = [shard for shard in shards if attempts[shard].done is None]
    fresh = [shard for shard in left if shard not in outputs]
    if fresh:  # A2
        ids = [attempts[shard].work.task.transactional_id for shard in fresh]
        opened = init_ids(task.outputs, ids, task.name, retrying)
        outputs.update(zip(fresh, opened, strict=True))
    taken_at = written.end
    known: Mapping[int, ShardProgress] = {}
    if fresh or (left and not written.is_untouched):  # A3
        taken_at = retrying(log.written_end)
        known = retrying(lambda: log.read(left))
    for shard in left:
        attempts[shard].ownership.adopt(outputs[shard], taken_at, known.get(shard))


def _is_shared(written: Written, run: str) -> bool:
    """Return whether another attempt of this run was active before."""
    names = [progress.attempt for _, progress in written.newest.values()]
    return bool(run) and any(name.endswith(run_suffix(run)) for name in names)


def _look(log: ProgressLog, shards: Sequence[int]) -> SignOfLife:
    """Return the sign of life of the other attempt, which writes one shard after the other."""
    newest = log.written(shards).newest
    if not newest:
        return SignOfLife()
    offset, last = max(newest.values(), key=lambda one: one[0])
    ended = last.ended
    if all(shard in newest and newest[shard][1].complete for shard in shards):
        decided = log.watch(shards)
        ended = all(shard in decided and decided[shard].complete for shard in shards)
    return SignOfLife(offset, ended)
