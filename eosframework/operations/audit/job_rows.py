"""The audit of rows: records that Spark sorted for the tasks of a backfill job.

A row has no offset that a live task would see. Its receipt has its number in the task, under the
name `backfill.JOB:TOPIC`, and the task's progress has their count. So the books judge the rows of a
task like the records of a partition.

They show that each row that Spark gave to a task took effect once. Whether Spark gave all of them
follows for internal topics from the number of records in the range of the log. Files are not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from eosframework.application.job_ranges import JobRange
from eosframework.errors import StartRefused
from eosframework.operations.audit.audit_logs import Logs
from eosframework.operations.audit.audit_verdict import Detail, Verdict
from eosframework.operations.audit.processed_input import ProcessedInput, origin_of
from eosframework.operations.audit.receipt_books import Books, Span
from eosframework.processing.transaction.offsets import Progress
from eosframework.processing.transaction.receipts import Series, row_origin
from eosframework.records import TopicPartition

SHOWN_PLACES = 5
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
    more = len(texts) - SHOWN_PLACES
    return ", ".join(texts[:SHOWN_PLACES]) + (f" and {more} more" if more > 0 else "")


def _difference(one: JobRange, missing: int) -> Verdict:
    kind, verb = ("lost", "missed") if missing > 0 else ("duplicated", "got too many")
    text = (
        f"job {one.job} {verb}: {one.partition} has {one.offset + missing:,} records from "
        f"@{one.first} to before @{one.end}, and the task processed {one.offset:,} rows"
    )
    return Verdict(lost=max(missing, 0), duplicated=max(-missing, 0), details=(Detail(kind, text),))
