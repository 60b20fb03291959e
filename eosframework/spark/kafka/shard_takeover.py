"""The takeover of several shards, all at once: A1 to A3 of `shard_attempt`."""

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
from eosframework.spark.kafka.shard_attempt import ShardAttempt
from eosframework.spark.sink_entry import ShardProgress

Newest = Mapping[int, tuple[int, ShardProgress]]
"""By shard, the offset and the newest written progress; shards without any are left out."""


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

    def newest(self, shards: Sequence[int], since: int = 0) -> Newest:
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
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Own shards for their attempts (A1 to A3), or note that another attempt has completed them.

    Args:
        attempts: by shard; at least one.
        log: their progress.
        number: of the attempts, from 0.
        clock: seconds, monotonic.
        sleep: waits for a number of seconds.

    Raises:
        InstanceFenced: another attempt took a shard meanwhile, or the batch is over.
        RunError: the brokers refuse an id.
        ClusterUnreachable: the cluster did not answer for long.
    """
    shards = list(attempts)
    task = attempts[shards[0]].work.task
    events = structlog.get_logger(task.logger)
    retrying = partial(patiently, task=task.name, events=events, clock=clock, sleep=sleep)
    newest = retrying(lambda: log.newest(shards))
    if number > 0 or _is_shared(newest, task.run):  # A1
        wait_for_turn(_Watch(log, shards).look, task.stall_seconds, clock=clock, sleep=sleep)
        decided = retrying(lambda: log.watch(shards))
        for shard, attempt in attempts.items():
            if attempt.work.staged and shard in decided and decided[shard].complete:
                attempt.done = decided[shard]
    left = [shard for shard in shards if attempts[shard].done is None]
    if not left:
        return
    ids = [attempts[shard].work.task.transactional_id for shard in left]
    outputs = init_ids(task.outputs, ids, task.name, retrying)  # A2
    try:
        taken_at = retrying(log.written_end)  # A3
        known = retrying(lambda: log.read(left))
    except BaseException:
        task.outputs.close(outputs)
        raise
    for shard, output in zip(left, outputs, strict=True):
        attempts[shard].ownership.adopt(output, taken_at, known.get(shard))


def _is_shared(newest: Newest, run: str) -> bool:
    """Return whether another attempt of this run was active before."""
    names = [progress.attempt for _, progress in newest.values()]
    return bool(run) and any(name.endswith(run_suffix(run)) for name in names)


class _Watch:
    """Looks at the other attempt, which writes one shard after the other."""

    def __init__(self, log: ProgressLog, shards: Sequence[int]) -> None:
        self._log = log
        self._shards = shards
        self._newest: dict[int, tuple[int, ShardProgress]] = {}
        self._looked_to = 0

    def look(self) -> SignOfLife:
        """Return the sign of life in all entries up to now."""
        end = self._log.written_end()
        self._newest.update(self._log.newest(self._shards, self._looked_to))
        self._looked_to = end
        if not self._newest:
            return SignOfLife()
        offset, last = max(self._newest.values(), key=lambda one: one[0])
        ended = last.ended
        found = [self._newest.get(shard) for shard in self._shards]
        if all(one is not None and one[1].complete for one in found):
            decided = self._log.watch(self._shards)
            ended = all(shard in decided and decided[shard].complete for shard in self._shards)
        return SignOfLife(offset, ended)
