"""Cluster reads of an audit: log bounds, positions and committed records.

The processed input: by partition, the stretches that live workers and backfill jobs processed.
A stretch is processed in order, under one position that is committed with its outputs: the group's
offset for live workers, the progress in the control topic for a job. With receipts the position has
the numbering of the outputs, so that books judge both alike.

A cutover joins two stretches. Live workers begin at the end of the job's range and continue its
numbering, so that job and workers are one stretch from the beginning of the range on.

Where Spark sorted the rows of a task, the job's stretch is not one of the log: it consists of rows,
under the name that their receipts have (`receipts.row_origin`).

The audit of rows: records that Spark sorted for the tasks of a backfill job.
A row has no offset that a live task would see. Its receipt has its number in the task, under the
name `backfill.JOB:TOPIC`, and the task's progress has their count. So the books judge the rows of a
task like the records of a partition.

They show that each row that Spark gave to a task took effect once. Whether Spark gave all of them
follows for internal topics from the number of records in the range of the log. Files are not read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from eosframework.application.backfill_jobs import JobRange, job_ranges
from eosframework.application.journal import KafkaJournal
from eosframework.application.replay_marks import PREFIX, Marks, marks_in
from eosframework.config import KafkaSettings
from eosframework.engine.task.offsets import Progress
from eosframework.engine.task.receipts import Series, row_origin
from eosframework.errors import ClusterUnreachable, RunError, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import Batch, Ranges, read_ranges
from eosframework.operations.audit.audit_verdict import Detail, Verdict
from eosframework.operations.audit.receipt_books import Books, Span
from eosframework.process.steps import OnProgress
from eosframework.records import Position, TopicPartition, partitions_of


@dataclass(frozen=True, slots=True)
class Stretch:
    """Records of one input partition that were processed in order, up to a position.

    Args:
        position: the next offset, with its metadata.
        first: offset at which processing began; None: unknown.
        end: offset at which the range of a job ends; None: live workers continue.
        job: None: of live workers, after the cutover of a job if there was one.
        is_continued: live workers continued the numbering for some time, and ended it then.
    """

    position: Position
    first: int | None = None
    end: int | None = None
    job: str | None = None
    is_continued: bool = False

    @property
    def offset(self) -> int:
        """The next offset."""
        assert self.position.offset is not None, "a stretch has a position"
        return self.position.offset

    @property
    def series(self) -> Series | None:
        """The numbering at its position; None: its outputs have no receipts."""
        return Series.parse(self.position.metadata)


@dataclass(frozen=True, slots=True)
class ProcessedInput:
    """The stretches of each partition, the newest one last, and all ranges of jobs."""

    stretches: Mapping[TopicPartition, Sequence[Stretch]]
    jobs: Sequence[JobRange] = ()

    @property
    def rows(self) -> list[JobRange]:
        """The parts of jobs that were processed as rows."""
        return [one for one in self.jobs if one.in_rows]

    @property
    def positions(self) -> dict[TopicPartition, Position]:
        """The newest position of each partition: live, or that of a job before its cutover."""
        return {p: found[-1].position for p, found in self.stretches.items()}

    def offset_of(self, p: TopicPartition, stretch: Stretch) -> int:
        """Return the next offset of a stretch that an earlier reading found.

        After a cutover since then, or if live workers continued the numbering, it is theirs.
        """
        found = self.stretches.get(p, ())
        same = [one for one in found if one.job == stretch.job]
        if stretch.is_continued or not same:
            same = [*same, *found[-1:]]
        return max((one.offset for one in same), default=stretch.offset)


def processed_input(
    live: Mapping[TopicPartition, Position], jobs: Sequence[JobRange]
) -> ProcessedInput:
    """Return the processed input.

    Args:
        live: committed positions of the group, with an offset.
        jobs: the ranges of backfill jobs over the same topics.
    """
    by_partition: dict[TopicPartition, list[JobRange]] = {}
    for one in jobs:
        by_partition.setdefault(one.partition, []).append(one)
    stretches: dict[TopicPartition, Sequence[Stretch]] = {}
    for p in sorted({*live, *by_partition}):
        if found := _stretches(live.get(p), by_partition.get(p, [])):
            stretches[p] = found
    return ProcessedInput(stretches, jobs)


def _stretches(live: Position | None, jobs: Sequence[JobRange]) -> list[Stretch]:
    found = [
        Stretch(one.position, one.first, one.end, one.job, one.is_cut_over)
        for one in sorted(jobs, key=lambda one: one.offset)
        if not one.in_rows
    ]
    if live is None:
        return found
    before = next((one for one in jobs if one.is_cut_over), None)
    if before is None:
        return [*found, Stretch(live)]
    first = before.end if before.in_rows else before.first
    newest = Stretch(live, first)
    if _continues(newest, before):
        found = [one for one in found if one.job != before.job]
    return [*found, newest]


def _continues(live: Stretch, job: JobRange) -> bool:
    """Return whether live workers have the numbering of the job, or none of both has one."""
    numbering = None if job.in_rows else Series.parse(job.position.metadata)
    if numbering is None or live.series is None:
        return numbering is None
    return live.series.since == numbering.since


def origin_of(rows: JobRange) -> TopicPartition:
    """Return the partition that stands for a job's rows in receipts."""
    return TopicPartition(row_origin(rows.job, rows.partition.topic), rows.partition.partition)


OPEN_TRANSACTION_SECONDS = 90.0
"""Longest wait for an open transaction; brokers abort it after its timeout."""

Positions = dict[TopicPartition, int]


class Logs:
    """The topics of one application and the committed offsets of its group.

    Args:
        application: name of the application and of its group.
        inputs: input topics.
        settings: connection to the cluster.
        on_progress: see `OnProgress`.
    """

    def __init__(
        self,
        application: str,
        inputs: Iterable[str],
        settings: KafkaSettings,
        on_progress: OnProgress,
    ) -> None:
        self._application = application
        self._input_topics = sorted(inputs)
        self._settings = settings
        self._on_progress = on_progress
        self._broker_time: dict[str, bool] = {}
        self.admin = ClusterAdmin(settings)
        self._journal = KafkaJournal(
            application, settings, self.admin, settle_seconds=OPEN_TRANSACTION_SECONDS
        )

    @cached_property
    def inputs(self) -> list[TopicPartition]:
        """The partitions of the input topics.

        Raises:
            StartRefused: a topic does not exist.
        """
        found, missing = self.partitions(self._input_topics)
        if missing:
            raise StartRefused(
                f"input topic {missing[0]!r} does not exist at "
                f"{self._settings.bootstrap_servers}; there is nothing to audit. "
                f"Correct kafka.bootstrap_servers or the topology"
            )
        return found

    def partitions(self, topics: Iterable[str]) -> tuple[list[TopicPartition], list[str]]:
        """Return the partitions of the topics that exist, and the names of the others."""
        described = self.admin.describe_topics(topics)
        partitions = partitions_of({topic: it.partitions for topic, it in described.items()})
        return partitions, [topic for topic, facts in described.items() if not facts.exists]

    def replayed(self, topics: Iterable[str]) -> Mapping[TopicPartition, Marks]:
        """Return the dead letters that were replayed, by partition."""
        facts = self.admin.describe_topics(topics)
        ids = {name: found.topic_id for name, found in facts.items() if found.exists}
        return marks_in(self._journal.decided_under(PREFIX), ids) if ids else {}

    def has_broker_time(self, topic: str) -> bool:
        """Return whether the broker sets the timestamps of a topic."""
        if topic not in self._broker_time:
            setting = self.admin.topic_setting([topic], "message.timestamp.type")
            self._broker_time[topic] = setting.get(topic) == "LogAppendTime"
        return self._broker_time[topic]

    def compacted(self, topics: Iterable[str]) -> list[str]:
        """Return the topics with log compaction, which keep only the last record of each key."""
        policies = self.admin.topic_setting(topics, "cleanup.policy")
        return [topic for topic, policy in policies.items() if "compact" in (policy or "")]

    def bounds(self, partitions: Sequence[TopicPartition]) -> Ranges:
        """Return the first offset and the last stable one of each partition."""
        return self.admin.log_bounds(partitions)

    def firsts(self, partitions: Sequence[TopicPartition]) -> Positions:
        """Return the first offset that is still in the log of each partition."""
        return {p: first for p, (first, _) in self.bounds(partitions).items()}

    def stable_ends(self, partitions: Sequence[TopicPartition]) -> Positions:
        """Return the last stable offset of each partition."""
        return {p: end for p, (_, end) in self.bounds(partitions).items()}

    def processed(self) -> ProcessedInput:
        """Return the processed input, by positions that no open transaction can change.

        Raises:
            StartRefused: nothing was processed, or the application reads no topic.
        """
        if not self._input_topics:
            raise StartRefused(
                f"application {self._application!r} writes to no topic; there is nothing to audit"
            )
        # 1. the committed offsets are read, and there are none  2. a cutover commits some  3. the
        # jobs are read, and one is cut over: its progress counts. In the other order it would
        # count as a job alongside live workers.
        positions = {
            position.topic_partition: position
            for position in self._stable_positions()
            if position.offset is not None
        }
        jobs = [one for one in job_ranges(self._journal) if one.partition in self.inputs]
        if not positions and not jobs:
            raise StartRefused(
                f"group {self._application!r} has no committed position for "
                f"{', '.join(self._input_topics)}: nothing was processed, or the positions have "
                f"expired (offsets.retention.minutes), and there is no backfill job. There is "
                f"nothing to audit"
            )
        return processed_input(positions, jobs)

    def _stable_positions(self) -> list[Position]:
        inputs = self.inputs
        deadline = time.monotonic() + OPEN_TRANSACTION_SECONDS
        while True:
            try:
                return self.admin.committed(self._application, inputs)
            except ClusterUnreachable:
                # Unavailable brokers fail here too; an open transaction delays stable reads only.
                self.admin.committed(self._application, inputs, stable=False)
                if time.monotonic() > deadline:
                    raise RunError(
                        f"a transaction of {self._application!r} has held its positions open for "
                        f"more than {OPEN_TRANSACTION_SECONDS:g} s. Start the application's "
                        f"workers, or end it (`eosframework txn hanging`)"
                    ) from None
                self._on_progress("waiting for an open transaction that holds positions", 0, 0)

    def settled_ends(self, outputs: list[TopicPartition]) -> Positions:
        """Return end offsets past every record written by now, once all transactions are decided.

        Raises:
            RunError: a transaction stays open.
        """
        # 1. the ends are read  2. workers write more. Only what was written by 1 has to be
        # decided, so this ends although some transaction is open at every moment.
        written = self.admin.high_watermarks(outputs)
        deadline = time.monotonic() + OPEN_TRANSACTION_SECONDS
        while True:
            ends = self.stable_ends(outputs)
            behind = [p for p in outputs if ends[p] < written[p]]
            if not behind:
                return ends
            if time.monotonic() > deadline:
                raise RunError(
                    f"a transaction on {behind[0]} has been open since offset {ends[behind[0]]} "
                    f"for more than {OPEN_TRANSACTION_SECONDS:g} s, and readers stop there. Start "
                    f"the application's workers, or end it (`eosframework txn hanging`)"
                )
            self._on_progress(f"waiting for an open transaction on {behind[0]}", 0, 0)
            time.sleep(0.2)

    def read(self, ranges: Ranges, what: str) -> Iterable[Batch]:
        """Yield the records of each range that a `read_committed` reader sees, in offset order."""
        total = sum(end - start for start, end in ranges.values())
        done = dict.fromkeys(ranges, 0)
        for partition, messages in read_ranges(self._settings, ranges):
            yield partition, messages
            # In offsets, as the total is: markers and aborted records are not yielded.
            done[partition] = messages[-1].offset() + 1 - ranges[partition][0]
            self._on_progress(what, sum(done.values()), total)


_SHOWN_PLACES = 5
"""Places that a note lists."""


@dataclass(frozen=True, slots=True)
class JobRows:
    """The rows of all jobs of an application.

    Args:
        processed: the input as of the begin of the audit.
        is_whole: the audit covers the whole range.
        receipts: receipts may judge.
    """

    processed: ProcessedInput
    is_whole: bool
    receipts: bool

    @property
    def judged(self) -> list[JobRange]:
        """The rows that receipts judge, by task."""
        return [one for one in self.processed.rows if self._reason(one) is None]

    @property
    def left_out(self) -> list[JobRange]:
        """The processed rows that are not judged, by task."""
        found = (one for one in self.processed.rows if self._reason(one) is not None)
        return [one for one in found if one.offset]

    def _reason(self, one: JobRange) -> str | None:
        """Return why some rows are not judged."""
        if not one.has_receipts:
            return "processed without receipts (worker.receipts), and in another order than the log"
        if not self.receipts:
            return (
                "functions cannot judge rows, whose order is not that of the log (--by functions)"
            )
        return None if self.is_whole else "rows are judged only without --from and --to"

    def refuse_left_out(self) -> None:
        """Raise if receipts do not cover all rows.

        Raises:
            StartRefused: names the first task without receipts.
        """
        for one in self.left_out:
            if not one.has_receipts:
                raise StartRefused(
                    f"the {one.offset:,} rows of {origin_of(one)} have no receipts: job {one.job} "
                    f"ran with worker.receipts=false. Leave --by receipts out to audit the rest"
                )

    def spans(self, now: ProcessedInput) -> Iterator[Span]:
        """Yield the span of each task; `now` has the progress when the outputs were complete.

        Rows that are not judged have empty spans: their receipts are recognized.
        """
        ends = {origin_of(one): one.offset for one in self.judged}
        for one in now.rows:
            origin = origin_of(one)
            found = next((it for it in self.processed.rows if origin_of(it) == origin), one)
            if (series := Series.parse(found.position.metadata)) is not None:
                yield Span(
                    origin,
                    0,
                    ends.get(origin, 0),
                    position=found.offset,
                    series=series,
                    transaction=Progress.parse(found.position.metadata).transaction,
                    position_now=one.offset,
                )

    def count(self, books: Books) -> None:
        """Count the rows as input records."""
        books.take_ranges_as_inputs({origin_of(one) for one in self.judged})

    def compare_with_log(self, logs: Logs) -> Verdict:
        """Compare the number of rows of complete tasks with the records of internal topics."""
        wanted = {
            one: (one.first, one.end)
            for one in self.judged
            if one.complete and not one.of_files and one.end is not None
        }
        firsts = logs.firsts([one.partition for one in wanted])
        compared = {
            one: bounds for one, bounds in wanted.items() if firsts[one.partition] <= one.first
        }
        records = Counter[TopicPartition]()
        ranges = {one.partition: bounds for one, bounds in compared.items()}
        for partition, messages in logs.read(ranges, "internal topic"):
            records[partition] += len(messages)
        verdict = Verdict(
            notes=tuple(
                f"{one.partition} begins at offset {firsts[one.partition]}: the number of its "
                f"records cannot be compared with the rows of job {one.job}"
                for one in wanted
                if one not in compared
            )
        )
        for one in compared:
            if missing := records[one.partition] - one.offset:
                verdict += _difference(one, missing)
        return verdict

    def notes(self) -> Iterator[str]:
        """Yield notes on rows that are not judged, or only from where Spark read them."""
        for topic, job in sorted({(o.partition.topic, o.job) for o in self.judged if o.of_files}):
            yield (
                f"rows of job {job} from files in place of topic {topic} are judged as Spark read "
                f"them ({row_origin(job, topic)}[TASK]@ROW); the files are not read"
            )
        for reason, rows in groupby(self.left_out, key=self._reason):
            yield (
                f"{_listed([f'{one.offset:,} rows of {origin_of(one)}' for one in rows])}: not "
                f"judged; {reason}"
            )


def notes_on_jobs(jobs: Iterable[JobRange]) -> Iterator[str]:
    """Yield a note on each job that is not complete."""
    for job, ranges in groupby(jobs, key=lambda one: one.job):
        left = [one for one in ranges if not one.complete]
        if left:
            places = [
                f"{origin_of(one) if one.in_rows else one.partition}@{one.offset}" for one in left
            ]
            yield f"job {job} is not complete: it is judged up to {_listed(places)}"


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN_PLACES
    return ", ".join(texts[:_SHOWN_PLACES]) + (f" and {more} more" if more > 0 else "")


def _difference(one: JobRange, missing: int) -> Verdict:
    kind, verb = ("lost", "missed") if missing > 0 else ("duplicated", "got too many")
    text = (
        f"job {one.job} {verb}: {one.partition} has {one.offset + missing:,} records from "
        f"@{one.first} to before @{one.end}, and the task processed {one.offset:,} rows"
    )
    return Verdict(lost=max(missing, 0), duplicated=max(-missing, 0), details=(Detail(kind, text),))
