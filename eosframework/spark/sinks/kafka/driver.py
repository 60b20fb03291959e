"""A Kafka sink that this driver owns: its batches in the control topic, its Spark jobs.

A small batch in one transaction of the driver: all rows, and the entry that it is complete (S6).
The rows are those that attempts would write, shard after shard, with the same receipts. No attempt
can write them as well: the entry is the first one that names the batch, and it is complete.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import structlog

from eosframework.application.control_topic import ControlTopic
from eosframework.application.journal import KafkaJournal
from eosframework.application.output_limits import RelayDestinations, limits_of
from eosframework.config import Settings
from eosframework.engine.failures.refused_outputs import tolerant
from eosframework.errors import ClusterUnreachable, DataRejected, RunError, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import SizeLimits, size_limits
from eosframework.kafka.worker_clients import NOTHING_KNOWN, producer_client, producers
from eosframework.postgres.outbox.relay_position import Destination
from eosframework.spark.session.executors import Table, map_batches
from eosframework.spark.session.ordering import task_slots
from eosframework.spark.sinks.kafka.batch_progress import reported
from eosframework.spark.sinks.kafka.columns import (
    RESULT_SCHEMA,
    KafkaColumns,
    RefusedColumns,
    TopicLimits,
    in_order,
    in_shards,
    pieces_of,
)
from eosframework.spark.sinks.kafka.dead_rows import DeadLetters
from eosframework.spark.sinks.kafka.shard_attempt import ShardSpec
from eosframework.spark.sinks.kafka.shards import attempts
from eosframework.spark.sinks.kafka.sink_log import (
    LOST,
    batch_claim,
    moved,
    progress_in,
    receipt_bytes,
    receipts_of,
    shards_in,
)
from eosframework.spark.sinks.refused_rows import REASON, written_rows
from eosframework.spark.sinks.sink_entry import (
    BatchIdentity,
    Decision,
    ShardProgress,
    SinkBatch,
    are_few_expected,
    batch_key,
    decide,
    is_of_sink,
    policy_text,
    shard_of,
    shards_prefix,
)
from eosframework.topology.graph.graph import OnError, Policy
from eosframework.transactions.ports import Output
from eosframework.transactions.producing import fence
from eosframework.transactions.session.owned_keys import OwnedKey
from eosframework.transactions.task_attempts import AttemptWork, TaskAttempt
from eosframework.txnid import TransactionalId, reserved_topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

MOST_TRANSACTIONS = 3
"""Transactions without success, as if they take too long, after which executors cut the batch."""


def outputs_of(
    rows: Table,
    topic: str | None,
    application: str,
    sink: str,
    batch: SinkBatch,
    dead_letters: DeadLetters | None = None,
) -> tuple[list[Output], dict[int, int]]:
    """Return the records of a batch, and the number of rows by shard.

    Args:
        rows: all of them, in any order; columns as of `KafkaColumns.column`.
        topic: of all records; None: of their column.
        application: owner of the sink.
        sink: its name.
        batch: with the positions before it.
        dead_letters: makes those of refused rows; None: there are none.
    """
    outputs: list[Output] = []
    counts: dict[int, int] = {}
    for piece in pieces_of(in_order(rows).to_batches(), topic, dead_letters):
        first = counts.get(piece.shard, 0)
        counts[piece.shard] = first + len(piece.rows)
        receipts = receipts_of(application, sink, piece.shard, batch)
        made = piece.rows.outputs
        outputs += made if receipts is None else receipts.added(made, first)
    return outputs, counts


class _Whole(AttemptWork[SinkBatch]):
    """A batch in one transaction, which is given up if the brokers reject a record of it."""

    error: DataRejected | None = None

    def reject(self, error: DataRejected) -> None:
        """Leave the batch to the executors."""
        self.error = error


def commit_whole(
    attempt: TaskAttempt[SinkBatch],
    owned: OwnedKey[SinkBatch],
    outputs: list[Output],
    complete: SinkBatch,
) -> bool:
    """Commit a batch, and return whether it is committed; if not, nothing of it is visible.

    Args:
        attempt: owns the sink.
        owned: the sink's key.
        outputs: the records of all rows.
        complete: the entry of the batch once it is complete.

    Raises:
        InstanceFenced: another driver owns the sink.
        RunError: no transaction can succeed until the cause is fixed.
        ClusterUnreachable: no transaction was committed for long.
    """
    of_entries, whole = owned.work, _Whole(attempt, owned)
    try:
        for _ in range(MOST_TRANSACTIONS):
            if attempt.keys.write(owned, [outputs], complete):
                return True
            if whole.error is not None:
                break
    finally:
        owned.work = of_entries
    events = structlog.get_logger("eosframework.spark")
    error = str(whole.error or "the transaction was aborted several times")
    events.warning("batch_left_to_executors", batch=str(complete.batch), error=error)
    return False


@dataclass(frozen=True, slots=True)
class KafkaSinkOptions:
    """The options of a Kafka sink; see `kafka_sink`.

    Args:
        sink: name in ids and entries: the sink's, and its job's for a batch DataFrame.
        refused_by: label of another sink whose refused rows are all that this one writes.
    """

    application: str
    sink: str
    columns: KafkaColumns | RefusedColumns
    shards: int
    stage: bool
    follows: str | None
    settings: Settings
    on_error: OnError
    refused_by: str | None = None

    @property
    def label(self) -> str:
        """Name among all sinks of the application, and of the column in a stage."""
        return f"kafka_{self.sink}"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are known without the rows."""
        return tuple(topic for topic in (self.columns.topic, self.on_error.topic) if topic)

    @property
    def dead_letters(self) -> str | None:
        """The topic of dead letters."""
        return self.columns.topic if self.refused_by else self.on_error.topic

    def of_job(self, job: str) -> KafkaSinkOptions:
        """Return the sink of a batch DataFrame."""
        return replace(self, sink=f"{self.sink}.{job}")

    def own(self, offered: BatchIdentity) -> KafkaSinkDriver:
        """Own the sink (S1), unless it refuses the batch."""
        return KafkaSinkDriver(self, offered)

    def check_columns(self, frame: DataFrame) -> None:
        """Raise for columns that are missing or have an unsuitable type.

        Raises:
            ConfigurationError: names the column.
        """
        _ = self.columns.column(self.sink, frame, TopicLimits(), self.shards, self.on_error.policy)


class KafkaSinkDriver:
    """An `OwnedSink` in Kafka.

    Args:
        options: of the sink.
        offered: its first batch; a driver whose batch is refused must not fence the one that runs.

    Attributes:
        label: its name among all sinks of the application.

    Raises:
        StartRefused: the topic, the application or the sink cannot be used; names the way on.
        ClusterUnreachable: no broker answered in time.
    """

    def __init__(self, options: KafkaSinkOptions, offered: BatchIdentity) -> None:
        self.label = options.label
        self._options = options
        kafka = options.settings.kafka
        self._admin = ClusterAdmin(kafka)
        self._refuse_application()
        journal = KafkaJournal(options.application, kafka, self._admin)
        self._journal = journal
        self._outputs = producers(options.settings, self._limits, tuple(sorted(self._topics)))
        self._slots: list[int] | None = None
        self._since: int | None = None
        self._before: dict[str, Any] = {}
        self._counts: dict[int, int] = {}
        self._column: tuple[StructType, Column] | None = None
        self._attempt: TaskAttempt[SinkBatch] = TaskAttempt(
            self._outputs, journal, options.settings, 0, logger="eosframework.spark", lost=LOST
        )
        self._owned: list[OwnedKey[SinkBatch]] = []
        try:
            self._refuse_early(offered)
            self._end_leftovers()
            _, self._owned = self._attempt.take([batch_claim(options.application, options.sink)])
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """Its name within the application."""
        return self._options.sink

    @property
    def staged(self) -> bool:
        """True unless its user calls all plans repeatable."""
        return self._options.stage

    @property
    def shards(self) -> int:
        """The number of shards of new batches."""
        return self._options.shards

    @property
    def on_error(self) -> OnError:
        """Policy for rows that cannot be written."""
        return self._options.on_error

    @property
    def expects_few(self) -> bool:
        """The next batch is expected to fit one transaction."""
        return are_few_expected(self.last)

    @property
    def last(self) -> SinkBatch | None:
        """The last batch that it accepted."""
        return self._owned[0].known

    def decide(self, offered: BatchIdentity) -> Decision:
        """Return the handling of a batch (S2).

        Raises:
            StartRefused: the batch is neither the last one nor the next one.
        """
        return decide(self.name, self.last, offered, self._options.follows)

    def _refuse_early(self, offered: BatchIdentity) -> None:
        """Raise StartRefused if the sink refuses a batch, before an id is fenced.

        An open transaction may hide the newest entry, so only a refusal waits for it.
        """
        claim, follows = batch_claim(self._options.application, self.name), self._options.follows
        try:
            decide(self.name, claim.of(self._journal.decided([claim.key])), offered, follows)
        except StartRefused:
            decide(self.name, claim.of(self._journal.settled([claim.key])), offered, follows)

    def give_up(self) -> bool:
        """Give the open batch up unless some of its rows are committed.

        1. The entry is marked: an attempt that takes its shard from now on ends at A3. 2. The init
        of the ids ends the attempts that had passed A3. 3. What is committed now is all that ever
        will be.

        Returns:
            True: no attempt can commit a row of it any more, and it may be computed again.
        """
        last = self.last
        assert last is not None, "a batch is open"
        seen = self._journal.decided_under(shards_prefix(self.name))
        if any(row.rows for row in progress_in(seen, self.name, last.sequence).values()):
            if last.given_up:  # by a driver that ended after step 1
                self._mark(last, given_up=False)
            return False
        self._mark(last, given_up=True)
        self._fence(range(last.shards))
        committed = shards_in(self._journal, self.name, last.sequence)
        if any(one.rows for one in committed.values()):
            self._mark(last, given_up=False)
            return False
        return True

    def _mark(self, last: SinkBatch, *, given_up: bool) -> None:
        changes = {"given_up": given_up, "attempt": self._attempt.name, "written_at": _now_ms()}
        self._record(last.model_copy(update=changes))

    def column(self, frame: DataFrame) -> Column:
        """Return the record of each row, as a struct.

        Raises:
            ConfigurationError: a column is missing, or has an unsuitable type.
        """
        # It refers to columns by name, and takes a hundred calls of the JVM to build.
        if self._column is None or self._column[0] != frame.schema:
            columns, limits, shards = (
                self._options.columns,
                self._topic_limits,
                self._options.shards,
            )
            policy = self._options.on_error.policy
            made = columns.column(self.name, frame, limits, shards, policy)
            self._column = frame.schema, made
        return self._column[1]

    def write_at_once(self, offered: BatchIdentity, rows: Table) -> int | None:
        """Write a new batch and its completion in one transaction (S6).

        Returns:
            The number of rows; None: they do not fit one transaction, and nothing was written.
        """
        options = self._options
        topic = options.columns.topic
        if options.on_error.policy is Policy.SKIP:
            rows = rows.filter(rows.column(REASON).is_null())
        if topic is None:
            written = rows.filter(rows.column(REASON).is_null())
            self._refuse_topics(written.column("topic").unique().to_pylist())
        batch, made = self._opened(offered, None), self._dead_letters
        of_sink = topic, options.application, self.name, batch
        outputs, self._counts = outputs_of(rows, *of_sink, made and made(batch))
        complete = self._completed(batch, rows.num_rows)
        return (
            complete.rows
            if commit_whole(self._attempt, self._owned[0], outputs, complete)
            else None
        )

    def accept(self, offered: BatchIdentity, stage: str | None) -> SinkBatch:
        """Record that a batch is open (S3)."""
        batch = self._opened(offered, stage)
        self._since, self._before = self._journal.written_end(), {}
        self._record(batch)
        return batch

    def _opened(self, offered: BatchIdentity, stage: str | None) -> SinkBatch:
        """Return the entry of a new batch; attempts of an earlier one can commit no more."""
        last = self.last
        if last is not None and (
            last.shards != self._options.shards or last.batch.query != offered.query
        ):
            self._fence(range(last.shards))
        positions = self._positions_after(last)
        return SinkBatch(
            sequence=1 if last is None else last.sequence + 1,
            batch=offered,
            shards=self._options.shards,
            stage=stage,
            on_error=policy_text(self._options.on_error),
            positions=positions,
            receipts_since=self._receipts_since(last, positions),
            topics=() if last is None else last.topics,
            attempt=self._attempt.name,
            written_at=_now_ms(),
        )

    def write(self, rows: DataFrame, batch: SinkBatch) -> int:
        """Write all rows that are not committed, and return their number (S4)."""
        if self._options.on_error.policy is Policy.SKIP:
            rows = written_rows(rows)
        if self._since is None:
            self._since = self._journal.written_end()
            found = self._journal.settled_under(batch_key(self.name))
            self._before = {key: found[key] for key in found if is_of_sink(self.name, key)}
        try:
            self._counts = self._by_executors(rows, batch)
        except Exception:
            self._refuse_if_taken_over()
            raise
        if batch.stage is None:
            self._refuse_other_shards(batch, self._counts)
        return sum(self._counts.values())

    def complete(self, batch: SinkBatch, rows: int) -> None:
        """Record that a batch is complete (S5)."""
        self._record(self._completed(batch, rows))

    def _completed(self, batch: SinkBatch, rows: int) -> SinkBatch:
        """Return the entry of a complete batch, after its rows were counted by shard."""
        changes = {
            "complete": True,
            "rows": rows,
            "positions": moved(batch.positions, self._counts),
            "topics": tuple(sorted({*batch.topics, *self._topics})),
            "attempt": self._attempt.name,
            "written_at": _now_ms(),
        }
        return batch.model_copy(update=changes)

    def close(self) -> None:
        """Close the producers."""
        self._attempt.keys.close(self._owned)
        self._outputs.stop()

    # --- the entry ------------------------------------------------------------------------------

    def _record(self, batch: SinkBatch) -> None:
        while not self._attempt.keys.write(self._owned[0], (), batch):
            continue

    def _positions_after(self, last: SinkBatch | None) -> tuple[int, ...]:
        """Return the rows of each shard after a batch, which is given up if it is incomplete."""
        if last is None:
            return ()
        if last.complete:
            return last.positions
        committed = {
            shard: one.rows
            for shard, one in shards_in(self._journal, self.name, last.sequence).items()
        }
        return moved(last.positions, committed)

    def _receipts_since(
        self, last: SinkBatch | None, positions: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        """Return where receipts begin: where they began, unless they were switched on just now."""
        if not self._options.settings.worker.receipts:
            return None
        begun = None if last is None else last.receipts_since
        return positions if begun is None else begun

    def _fence(self, shards: Iterable[int]) -> None:
        """Init the ids of shards: no earlier attempt can commit, and none is open any more."""
        options = self._options
        application, sink = options.application, options.sink
        fence(self._outputs, (str(TransactionalId.sink(application, sink, n)) for n in shards))

    def _end_leftovers(self) -> None:
        """End transactions that killed attempts left open, instead of waiting for their timeout."""
        found = {shard_of(self.name, key) for key in self._journal.leftovers()}
        if shards := sorted(shard for shard in found if shard is not None):
            self._fence(shards)

    # --- rows ---------------------------------------------------------------------------------

    def _by_executors(self, frame: DataFrame, batch: SinkBatch) -> dict[int, int]:
        """Write a batch by a Spark job with a task for each shard."""
        if self._options.columns.topic is None:
            topics = frame.filter(f"{REASON} IS NULL") if REASON in frame.columns else frame
            self._refuse_topics([row[0] for row in topics.select("topic").distinct().collect()])
        if self._slots is None:
            self._slots = task_slots(frame.sparkSession, batch.shards)
        sharded = in_shards(frame, batch.shards, self._slots)
        written = map_batches(sharded, attempts(self._spec(batch)), RESULT_SCHEMA)
        with reported(self.label, batch, self._progress_of(batch)):
            results: list[Any] = written.collect()
        return {int(row[0]): int(row[1]) for row in results}

    def _progress_of(self, batch: SinkBatch) -> Callable[[], dict[int, ShardProgress]]:
        """Return the function that reads the progress of a batch in a thread of its own."""
        kafka, application = self._options.settings.kafka, self._options.application

        def read() -> dict[int, ShardProgress]:
            journal = KafkaJournal(application, kafka, ClusterAdmin(kafka))
            entries = journal.decided_under(shards_prefix(self.name))
            return progress_in(entries, self.name, batch.sequence)

        return read

    def _spec(self, batch: SinkBatch) -> ShardSpec:
        options, since = self._options, self._since
        assert since is not None, "the batch was accepted, or its entries were read"
        return ShardSpec(
            application=options.application,
            sink=self.name,
            settings=options.settings,
            batch=batch,
            since=since,
            before=self._before,
            topic=options.columns.topic,
            topics=tuple(sorted(self._topics)),
            dead_letters=self._dead_letters and self._dead_letters(batch),
            limits=self._limits,
            run=uuid.uuid4().hex[:8],
        )

    def _refuse_if_taken_over(self) -> None:
        """Raise InstanceFenced if another driver owns the sink.

        It removes the stage of a batch that it completed, so Spark's own reason would be that. The
        entry of a batch that this driver resumes was written by its predecessor.
        """
        with suppress(ClusterUnreachable):
            # A wait for open transactions would delay the error.
            claim, known = self._owned[0].claim, self.last
            last = claim.of(self._journal.decided([claim.key]))
            own = {self._attempt.name, "" if known is None else known.attempt}
            is_later = last is not None and (known is None or last.sequence >= known.sequence)
            if last is not None and is_later and last.attempt not in own:
                raise self._owned[0].taken_over(last.attempt)

    # --- refusals -------------------------------------------------------------------------------

    @cached_property
    def _topics(self) -> dict[str, Any]:
        return dict(self._admin.describe_topics(self._options.topics))

    @property
    def _limits(self) -> SizeLimits:
        is_one = self._options.columns.topic is not None
        return size_limits(self._topics.values(), are_all=is_one)

    @cached_property
    def _destinations(self) -> dict[str, Destination]:
        return self._described([*self._options.topics])

    @property
    def _topic_limits(self) -> TopicLimits:
        """The limits of the topic of all records."""
        options = self._options
        topic = options.columns.topic
        if topic is None:
            return TopicLimits()
        times = limits_of(self._topics[topic], {})
        earlier, later = times.before_ms, times.after_ms
        receipts = options.settings.worker.receipts
        return TopicLimits(
            topic,
            self._topics[topic].partitions,
            self._destinations[topic].most_bytes,
            None if earlier is None else tolerant(earlier),
            None if later is None else tolerant(later),
            receipt_bytes(options.application, self.name) if receipts else 0,
        )

    @property
    def _dead_letters(self) -> Callable[[SinkBatch], DeadLetters] | None:
        """Makes the dead letters of a batch; None: refused rows give none."""
        topic = self._options.dead_letters
        if topic is None:
            return None
        most = self._destinations[topic].most_bytes or None
        step = self._options.refused_by or self.label
        return lambda batch: DeadLetters(topic, step, self.name, batch, most)

    def _described(self, topics: list[str]) -> dict[str, Destination]:
        settings = self._options.settings
        producer = producer_client(settings, NOTHING_KNOWN)
        destinations = RelayDestinations(settings.kafka, self._admin, producer)
        for topic in topics:
            if reason := reserved_topic(topic):
                raise StartRefused(f"sink {self.name!r} cannot write: {reason}; choose another")
        found = destinations.describe(topics)
        for topic, destination in found.items():
            if destination.refusal is not None:
                raise StartRefused(
                    f"sink {self.name!r} cannot write: {destination.refusal}. Nothing was written; "
                    f"create topic {topic!r}, or correct its name"
                )
            if destination.needs_key and topic == self._options.dead_letters:
                raise StartRefused(
                    f"sink {self.name!r}: topic {topic!r} of on_error is compacted, and a refused "
                    f"row may have no key; choose a topic with cleanup.policy=delete"
                )
            if destination.needs_key and self._key is None:
                raise StartRefused(
                    f"sink {self.name!r}: topic {topic!r} is compacted, so its records need a key; "
                    f"name its column with key="
                )
        return found

    @property
    def _key(self) -> str | None:
        columns = self._options.columns
        return columns.key if isinstance(columns, KafkaColumns) else None

    def _refuse_topics(self, topics: list[str]) -> None:
        """Raise unless all topics of a column exist."""
        self._described(sorted(topics))
        self._topics.update(self._admin.describe_topics(topics))

    def _refuse_application(self) -> None:
        """Raise if the application has workers: their control topic has other progress.

        Raises:
            StartRefused: names what was found.
        """
        options = self._options
        control = ControlTopic(
            options.application,
            options.settings.kafka,
            self._admin,
            replication_factor=options.settings.topics.replication_factor,
        )
        _ = self._destinations
        control.ensure()
        kinds = {key.partition("/")[0] for key in control.refresh().entries} - {"sink"}
        members = self._admin.describe_group(options.application).members
        if kinds or members:
            found = f"entries of {', '.join(sorted(kinds))}" if kinds else "members in its group"
            raise StartRefused(
                f"application {options.application!r} has workers, a relay or backfills (found: "
                f"{found}). A sink needs an application name of its own, because a reset of the "
                f"other would remove the sink's progress; choose another application="
            )

    def _refuse_other_shards(self, batch: SinkBatch, counts: dict[int, int]) -> None:
        """Raise if shards have committed rows of a batch that has no rows for them now."""
        found = shards_in(self._journal, self.name, batch.sequence)
        if lost := sorted(shard for shard in found if shard not in counts):
            raise RunError(
                f"sink {self.name!r}: shard {lost[0]} has {found[lost[0]].rows} committed rows of "
                f"{batch.batch}, and the rows computed now have none for it: the plan is not "
                f"repeatable. Use stage=True, which computes a batch once; to continue, use a new "
                f"checkpoint and another sink name"
            )


def _now_ms() -> int:
    return round(time.time() * 1000)
