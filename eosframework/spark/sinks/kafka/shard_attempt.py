"""One attempt to write a shard of a batch: Spark may restart or duplicate it.

The steps are those of a backfill's attempt (`spark/executor/functions`). The shards of a Spark
task are taken together (A1 to A3), then written one after the other:

    A1. a successor waits until the first attempt is silent or has ended
    A2. init the shard's transactional.id: fences every other attempt, and ends its transaction
    A3. read the shard's progress, and that the batch is still the sink's open one
    A4. skip the rows that are committed; their digest must be that of the progress
    A5. cut the rest into chunks by number and size
    A6. commit the chunk and the progress in one transaction
    A7. decide the outcome (`transactions/session`)
    A8. the last chunk's transaction records that the shard is complete

The attempt announces itself with its first chunk. Until then a successor sees no sign of life, and
takes the shard after `backfill.stall_seconds`: the first one then ends fenced, and nothing of it
was committed.

The Kafka clients that a Python worker of an executor keeps from one batch of a sink to the next.
A connection costs more than the rows of a small batch. Producers are not kept: a worker writes
another shard each time.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Protocol, Self

import structlog

from eosframework.config import Settings
from eosframework.errors import ClusterUnreachable, DataRejected, EosError, InstanceFenced, RunError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import SizeLimits
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.kafka.worker_clients import producer_client, producer_pool
from eosframework.spark.sinks.kafka.sink_log import ShardReceipts
from eosframework.spark.sinks.sink_entry import BatchIdentity, ShardProgress
from eosframework.transactions.attempts.attempt_takeover import SignOfLife, wait_for_turn
from eosframework.transactions.attempts.ownership import (
    Interrupted,
    OwnedTask,
    Ownership,
    init_ids,
    patiently,
    run_suffix,
    taken_over,
)
from eosframework.transactions.ports import Output

MODULUS = 2**64
"""Digests are sums modulo this number, as Spark's hashes have 64 bits."""


@dataclass(slots=True)
class ShardRows:
    """Encoded rows of a shard, in order.

    Args:
        outputs: the records.
        hashes: of all parts of each, as Spark computes them.
    """

    outputs: list[Output]
    hashes: list[int]

    def __len__(self) -> int:
        return len(self.outputs)

    def take(self, count: int) -> ShardRows:
        """Remove and return the first rows."""
        if count >= len(self):  # most pieces; their lists need not be copied
            taken = ShardRows(self.outputs, self.hashes)
            self.outputs, self.hashes = [], []
            return taken
        taken = ShardRows(self.outputs[:count], self.hashes[:count])
        del self.outputs[:count], self.hashes[:count]
        return taken

    def first(self, count: int) -> ShardRows:
        """Return the first rows; all of them are not copied."""
        if count >= len(self):
            return self
        return ShardRows(self.outputs[:count], self.hashes[:count])

    def extend(self, more: ShardRows) -> None:
        """Append rows."""
        self.outputs += more.outputs
        self.hashes += more.hashes

    def within(self, size: int) -> tuple[int, int]:
        """Return the number of rows whose values reach a size, and their size; else of all rows.

        Args:
            size: in bytes, positive.
        """
        sizes = [len(value) if (value := output[1]) else 0 for output in self.outputs]
        total = sum(sizes)
        if total < size:
            return len(self), total
        ends = list(accumulate(sizes))
        count = bisect_left(ends, size) + 1
        return count, ends[count - 1]


@dataclass(frozen=True, slots=True)
class ShardWork:
    """The shard and batch of an attempt.

    Args:
        task: the shard, as its attempts own it.
        sequence: of the batch.
        batch: the batch.
        chunk_records: most rows in a transaction.
        chunk_bytes: size of values after which a transaction gets no more rows.
        staged: the rows are read from a stage, so they are the same for every attempt.
        receipts: adds a receipt to each record; None: records get none.
    """

    task: OwnedTask[ShardProgress]
    sequence: int
    batch: BatchIdentity
    chunk_records: int
    chunk_bytes: int
    staged: bool
    receipts: ShardReceipts | None = None


class ShardAttempt:
    """One attempt at a shard; `take_shards` takes the shard for it first (A1 to A3).

    Args:
        work: its shard and batch.
        name: of the attempt; see `attempt_name`.
        clock: seconds, monotonic.
        sleep: waits for a number of seconds.

    Attributes:
        work: its shard and batch.
        ownership: of the shard.
        done: progress of another attempt that has completed the shard; None: it is to be written.
    """

    def __init__(
        self,
        work: ShardWork,
        name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.work = work
        self.done: ShardProgress | None = None
        self.ownership = Ownership(work.task, name, clock=clock, sleep=sleep)
        self.ownership.on_reject = self._reject
        self._name = name
        self._chunk = ShardRows([], [])
        self._bytes_left = work.chunk_bytes
        self._seen = 0
        self._seen_digest: int = 0
        self._limit: int | None = None
        self._events = structlog.get_logger("eosframework.spark").bind(
            transactional_id=work.task.transactional_id
        )

    def run(self, rows: Iterable[ShardRows]) -> ShardProgress:
        """Write the rows of the shard that are not committed, and return its complete progress.

        Args:
            rows: all rows of the shard in the batch, in order, at least one.

        Raises:
            InstanceFenced: another attempt has the shard, or the batch is over.
            RunError: no attempt can succeed until the cause is fixed.
            ClusterUnreachable: brokers were unavailable for long; another attempt may resume.
        """
        if self.done is not None:
            return self._of_this_batch(self.done)
        try:
            return self._write(rows)
        except Exception as error:
            self._leave(error)
            raise

    # --- rows: A4, A5 ---------------------------------------------------------------------------

    def _write(self, rows: Iterable[ShardRows]) -> ShardProgress:
        known = self.ownership.known
        if known is not None:
            self._of_this_batch(known)
            if known.complete and self.work.staged:
                return known
        committed = 0 if known is None else known.rows
        held = ShardRows([], [])
        for piece in rows:
            self._take(held, committed)
            held = piece
        # The last piece is held back, so that the last chunk can complete the shard.
        self._take(held, committed, last=True)
        found = self.ownership.known
        assert found is not None, "a shard has at least one row"
        if not found.complete or self._seen != found.rows:
            raise self._changed(found)
        self._events.info("shard_complete", shard_rows=found.rows)
        return found

    def _take(self, piece: ShardRows, committed: int, *, last: bool = False) -> None:
        """Skip committed rows (A4), and commit full chunks (A5)."""
        if skipped := piece.take(max(committed - self._seen, 0)):
            self._seen += len(skipped)
            self._seen_digest += sum(skipped.hashes)
            known = self.ownership.known
            assert known is not None
            if self._seen == committed and self._seen_digest % MODULUS != known.digest:
                raise self._changed(known)
        while piece:
            room = self.work.chunk_records - len(self._chunk)
            count, size = piece.first(room).within(self._bytes_left)
            self._bytes_left -= size
            self._chunk.extend(piece.take(count))
            if len(self._chunk) >= self.work.chunk_records or self._bytes_left <= 0:
                self._flush(complete=last and not piece)
        if last and self._chunk:
            self._flush(complete=True)

    # --- transactions: A6 to A8 -----------------------------------------------------------------

    def _flush(self, *, complete: bool) -> None:
        """Commit the chunk, in parts while the brokers reject a record of it."""
        known = self.ownership.known
        if known is not None and known.complete:
            raise self._changed(known)
        while self._chunk:
            count = self._part_rows()
            part = self._chunk.first(count)
            progress = self._progress(
                rows=self._seen + count,
                digest=(self._seen_digest + sum(part.hashes)) % MODULUS,
                complete=complete and count == len(self._chunk),
            )
            if self.ownership.write(self._receipted(part), progress):
                self._chunk.take(count)
                self._seen, self._seen_digest = progress.rows, progress.digest
        self._bytes_left = self.work.chunk_bytes

    def _part_rows(self) -> int:
        """Return the rows of the next transaction: fewer while brokers reject one, or throttle."""
        limits = (len(self._chunk), self._limit, self.ownership.session.size.limit)
        return min(limit for limit in limits if limit is not None)

    def _receipted(self, part: ShardRows) -> list[Output]:
        receipts = self.work.receipts
        return part.outputs if receipts is None else receipts.added(part.outputs, self._seen)

    def _progress(
        self, *, rows: int, digest: int, complete: bool = False, ended: bool = False
    ) -> ShardProgress:
        return ShardProgress(
            sequence=self.work.sequence,
            batch=self.work.batch,
            rows=rows,
            digest=digest,
            complete=complete,
            ended=ended,
            attempt=self._name,
            written_at=round(time.time() * 1000),
        )

    def _reject(self, error: DataRejected) -> None:
        """Bisect a chunk with a record that the brokers reject.

        Raises:
            RunError: names the record.
        """
        count = self._part_rows()
        if count > 1:
            self._limit = count // 2
            return
        output = self._chunk.outputs[0]
        raise RunError(
            f"{self.work.task.name}: topic {output[0]} refuses its row {self._seen}, with key "
            f"{output[2]!r:.80} and a value of {len(output[1] or b'')} bytes: {error}. The rows "
            f"before it are committed. Change the topic so that it accepts the record, and start "
            f"the query again: it resumes at this row"
        ) from error

    def _leave(self, error: Exception) -> None:
        """Announce that this attempt ends early, so that its successor does not wait for it."""
        if isinstance(error, InstanceFenced | ClusterUnreachable):
            return
        with suppress(EosError, Interrupted):
            if self.ownership.abort():
                known = self.ownership.known
                rows, digest = (0, 0) if known is None else (known.rows, known.digest)
                if known is None or not known.complete:
                    self.ownership.write((), self._progress(rows=rows, digest=digest, ended=True))

    # --- checks ---------------------------------------------------------------------------------

    def _of_this_batch(self, found: ShardProgress) -> ShardProgress:
        """Return progress of this batch; a later batch ends the attempt."""
        if found.sequence != self.work.sequence:
            raise taken_over(self.work.task.name, found)
        return found

    def _changed(self, known: ShardProgress) -> RunError:
        return RunError(
            f"{self.work.task.name}: {known.rows} rows of {known.batch} are committed, and the "
            f"rows computed now are others: the plan is not repeatable, so the rest of the batch "
            f"is unknown. Nothing more was written. Use stage=True, which computes a batch once; "
            f"to continue without the rest of this batch, use a new checkpoint and another sink "
            f"name"
        )


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


_MOST_SINKS = 4
"""Sinks whose clients are kept; more of them in one session open theirs again for each task."""

_QUEUE = "queue.buffering.max.messages"

_QUEUED_RECORDS = 50_000
"""Records that wait in a shard's producer. Twice as many, as in a worker, take 20 MB more in each
Python worker, which is kept full by rows that are there already."""


@dataclass(frozen=True, slots=True)
class ClientsKey:
    """The settings of a sink's clients.

    Args:
        application: owner of the sink.
        sink: its name.
        settings: of the application.
        limits: of the topics that it writes.
        topics: these topics, as far as they are known.
    """

    application: str
    sink: str
    settings: Settings
    limits: SizeLimits
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShardClients:
    """The clients of one sink in this process.

    Args:
        key: their settings.
        admin: an admin client.
        outputs: opens and closes the producers.
    """

    key: ClientsKey
    admin: ClusterAdmin
    outputs: ProducerPool

    @classmethod
    def of(cls, key: ClientsKey) -> Self:
        """Return clients with some settings."""
        client = producer_client(key.settings, key.limits)
        if _QUEUE not in key.settings.kafka.properties:
            client[_QUEUE] = _QUEUED_RECORDS
        outputs = producer_pool(key.settings, client, key.topics)
        return cls(key, ClusterAdmin(key.settings.kafka), outputs)

    def close(self) -> None:
        """Close the producers."""
        self.outputs.stop()


_CLIENTS: list[ShardClients] = []
"""Of this Python worker, the last used ones at the end."""


def clients_of(key: ClientsKey) -> ShardClients:
    """Return the clients of a sink in this Python worker; those with other settings are closed."""
    name = key.application, key.sink
    same = [one for one in _CLIENTS if (one.key.application, one.key.sink) == name]
    for one in same:
        _CLIENTS.remove(one)
        if one.key != key:
            one.close()
    found = next((one for one in same if one.key == key), None)
    if found is None:
        found = ShardClients.of(key)
    _CLIENTS.append(found)
    while len(_CLIENTS) > _MOST_SINKS:
        _CLIENTS.pop(0).close()
    return found
