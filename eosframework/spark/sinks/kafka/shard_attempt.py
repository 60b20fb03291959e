"""One attempt to write a shard of a batch: Spark may restart or duplicate it.

The steps are those of a backfill's attempt (`spark/executor/functions`). The shards of a Spark
task are taken together (A1 to A3, `transactions/task_attempts`), then written one after
the other:

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

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import structlog

from eosframework.application.journal import KafkaJournal
from eosframework.config import Settings
from eosframework.errors import ClusterUnreachable, DataRejected, EosError, InstanceFenced, RunError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import SizeLimits
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.kafka.worker_clients import producer_client, producer_pool
from eosframework.spark.sinks.kafka.dead_rows import DeadLetters
from eosframework.spark.sinks.kafka.sink_log import LOST, open_check, receipts_of
from eosframework.spark.sinks.sink_entry import REFUSED_LATE, ShardProgress, SinkBatch
from eosframework.transactions.ports import Output
from eosframework.transactions.session.owned_keys import OwnedKey
from eosframework.transactions.task_attempts import AttemptWork, TaskAttempt

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


@dataclass(frozen=True)
class ShardSpec:
    """The parameters of a batch's attempts, sent to the executors.

    Args:
        application: owner of the ids.
        sink: its name.
        settings: of the application.
        batch: open.
        since: offset in the control topic from which attempts read entries.
        before: the entries of the sink before that offset; none for a new batch.
        topic: of all records; None: of their column.
        topics: the topics to write, as far as they are known.
        limits: of these topics.
        run: id of the Spark job.
        dead_letters: makes those of refused rows; None: there are none.
    """

    application: str
    sink: str
    settings: Settings
    batch: SinkBatch
    since: int
    before: Mapping[str, Any]
    topic: str | None
    topics: tuple[str, ...]
    limits: SizeLimits
    run: str
    dead_letters: DeadLetters | None = None

    @property
    def of_clients(self) -> tuple[object, ...]:
        """The parameters of the clients that write the batch."""
        return self.application, self.sink, self.settings, self.limits, self.topics

    @property
    def sequence(self) -> int:
        """The sequence of the batch."""
        return self.batch.sequence

    @property
    def is_staged(self) -> bool:
        """True if the rows are the same for every attempt."""
        return self.batch.stage is not None

    def attempt(self, clients: ShardClients, number: int) -> TaskAttempt[ShardProgress]:
        """Return an attempt at shards of the batch.

        Args:
            clients: of the sink.
            number: of the attempt, from 0.
        """
        return TaskAttempt(
            clients.outputs,
            KafkaJournal(self.application, self.settings.kafka, clients.admin),
            self.settings,
            number,
            logger="eosframework.spark",
            lost=LOST,
            run=self.run,
            signs_since=self.since,
            since=self.since,
            before=self.before,
            checks=open_check(self.sink, self.batch),
        )


class ShardAttempt(AttemptWork[ShardProgress]):
    """One attempt at a shard.

    Args:
        spec: of its batch.
        shard: its number.
        attempt: has taken the shard.
        owned: the shard's key.
    """

    def __init__(
        self,
        spec: ShardSpec,
        shard: int,
        attempt: TaskAttempt[ShardProgress],
        owned: OwnedKey[ShardProgress],
    ) -> None:
        super().__init__(attempt, owned)
        self._spec = spec
        self._receipts = receipts_of(spec.application, spec.sink, shard, spec.batch)
        self._chunk_records = spec.settings.backfill.chunk_records
        self._chunk_bytes = spec.settings.backfill.chunk_megabytes * 2**20
        self._chunk = ShardRows([], [])
        self._bytes_left = self._chunk_bytes
        self._seen = 0
        self._seen_digest: int = 0
        self._limit: int | None = None
        self._events = structlog.get_logger("eosframework.spark").bind(
            transactional_id=owned.transactional_id
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
        try:
            return self._write(rows)
        except Exception as error:
            self._leave(error)
            raise

    # --- rows: A4, A5 ---------------------------------------------------------------------------

    def _write(self, rows: Iterable[ShardRows]) -> ShardProgress:
        known = self.owned.known
        if known is not None:
            if known.sequence != self._spec.sequence:  # of a later batch
                raise self.owned.taken_over(known.attempt)
            if known.complete and self._spec.is_staged:
                return known
        committed = 0 if known is None else known.rows
        held = ShardRows([], [])
        for piece in rows:
            self._take(held, committed)
            held = piece
        # The last piece is held back, so that the last chunk can complete the shard.
        self._take(held, committed, last=True)
        found = self.owned.known
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
            known = self.owned.known
            assert known is not None
            if self._seen == committed and self._seen_digest % MODULUS != known.digest:
                raise self._changed(known)
        while piece:
            room = self._chunk_records - len(self._chunk)
            count, size = piece.first(room).within(self._bytes_left)
            self._bytes_left -= size
            self._chunk.extend(piece.take(count))
            if len(self._chunk) >= self._chunk_records or self._bytes_left <= 0:
                self._flush(complete=last and not piece)
        if last and self._chunk:
            self._flush(complete=True)

    # --- transactions: A6 to A8 -----------------------------------------------------------------

    def _flush(self, *, complete: bool) -> None:
        """Commit the chunk, in parts while the brokers reject a record of it."""
        known = self.owned.known
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
            if self.attempt.keys.write(self.owned, [self._receipted(part)], progress):
                self._chunk.take(count)
                self._seen, self._seen_digest = progress.rows, progress.digest
        self._bytes_left = self._chunk_bytes

    def _part_rows(self) -> int:
        """Return the rows of the next transaction: fewer while brokers reject one, or throttle."""
        limits = (len(self._chunk), self._limit, self.owned.size.limit)
        return min(limit for limit in limits if limit is not None)

    def _receipted(self, part: ShardRows) -> list[Output]:
        receipts = self._receipts
        return part.outputs if receipts is None else receipts.added(part.outputs, self._seen)

    def _progress(
        self, *, rows: int, digest: int, complete: bool = False, ended: bool = False
    ) -> ShardProgress:
        return ShardProgress(
            sequence=self._spec.sequence,
            batch=self._spec.batch.batch,
            rows=rows,
            digest=digest,
            complete=complete,
            ended=ended,
            attempt=self.attempt.name,
            written_at=round(time.time() * 1000),
        )

    def records(self) -> int:
        """Return the rows of the open transaction."""
        return self._part_rows()

    def reject(self, error: DataRejected) -> None:
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
            f"{self.owned.claim.name}: topic {output[0]} refuses its row {self._seen}, with key "
            f"{output[2]!r:.80} and a value of {len(output[1] or b'')} bytes "
            f"({output[1] or b''!r:.80}): {error}. {REFUSED_LATE}. Change the topic so that it "
            f"accepts the record, and start the query again"
        ) from error

    def _leave(self, error: Exception) -> None:
        """Announce that this attempt ends early, so that its successor does not wait for it."""
        if isinstance(error, InstanceFenced | ClusterUnreachable):
            return
        with suppress(EosError):
            if self.attempt.keys.abort(self.owned):
                known = self.owned.known
                rows, digest = (0, 0) if known is None else (known.rows, known.digest)
                if known is None or not known.complete:
                    ended = self._progress(rows=rows, digest=digest, ended=True)
                    self.attempt.keys.write(self.owned, (), ended)

    # --- checks ---------------------------------------------------------------------------------

    def _changed(self, known: ShardProgress) -> RunError:
        return RunError(
            f"{self.owned.claim.name}: {known.rows} rows of {known.batch} are committed, and the "
            f"rows computed now are others: the plan is not repeatable, so the rest of the batch "
            f"is unknown. Nothing more was written. Use stage=True, which computes a batch once; "
            f"to continue without the rest of this batch, use a new checkpoint and another sink "
            f"name"
        )


_MOST_SINKS = 4
"""Sinks whose clients are kept; more of them in one session open theirs again for each task."""

_QUEUE = "queue.buffering.max.messages"

_QUEUED_RECORDS = 50_000
"""Records that wait in a shard's producer. Twice as many, as in a worker, take 20 MB more in each
Python worker, which is kept full by rows that are there already."""


@dataclass(frozen=True, slots=True)
class ShardClients:
    """The clients of one sink in this process.

    Args:
        parameters: see `ShardSpec.of_clients`.
        admin: an admin client.
        outputs: opens and closes the producers.
    """

    parameters: tuple[object, ...]
    admin: ClusterAdmin
    outputs: ProducerPool

    @classmethod
    def of(cls, spec: ShardSpec) -> Self:
        """Return clients for a batch."""
        client = producer_client(spec.settings, spec.limits)
        if _QUEUE not in spec.settings.kafka.properties:
            client[_QUEUE] = _QUEUED_RECORDS
        outputs = producer_pool(spec.settings, client, spec.topics)
        return cls(spec.of_clients, ClusterAdmin(spec.settings.kafka), outputs)

    def close(self) -> None:
        """Close the producers."""
        self.outputs.stop()


_CLIENTS: list[ShardClients] = []
"""Of this Python worker, the last used ones at the end."""


def clients_of(spec: ShardSpec) -> ShardClients:
    """Return the clients of a sink in this Python worker; those with other settings are closed."""
    wanted = spec.of_clients
    same = [one for one in _CLIENTS if one.parameters[:2] == wanted[:2]]
    for one in same:
        _CLIENTS.remove(one)
        if one.parameters != wanted:
            one.close()
    found = next((one for one in same if one.parameters == wanted), None)
    if found is None:
        found = ShardClients.of(spec)
    _CLIENTS.append(found)
    while len(_CLIENTS) > _MOST_SINKS:
        _CLIENTS.pop(0).close()
    return found
