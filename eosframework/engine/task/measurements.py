"""Measurements of a worker: plain numbers, summed by the main thread.

Topics are counted batch by batch, not record by record, and a transaction counts when it is
committed, so that replays do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from eosframework.engine.histograms import SECONDS, Histogram, HistogramSnapshot
from eosframework.transactions.ports import Output

RECORDS = (1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0)

_topic_of = itemgetter(0)


@dataclass(frozen=True, slots=True)
class MeasuresSnapshot:
    """A snapshot of measurements; see `Measures`."""

    read: Mapping[str, int]
    written: Mapping[str, int]
    transaction_records: HistogramSnapshot
    transaction_seconds: HistogramSnapshot
    commit_seconds: HistogramSnapshot


class Measures:
    """Measurements of committed transactions.

    Attributes:
        read: records by source topic.
        written: records by topic, or rows by table.
        transaction_records: records per transaction, or rows per database transaction.
        transaction_seconds: from begin to the end of the commit.
        commit_seconds: per commit round, or per write to a database.
    """

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self.transaction_records = Histogram(RECORDS)
        self.transaction_seconds = Histogram(SECONDS)
        self.commit_seconds = Histogram(SECONDS)

    def committed(self, records: int, seconds: float) -> None:
        """Count a committed transaction.

        Args:
            records: of all tasks that share it.
            seconds: from its begin to the end of the commit.
        """
        self.transaction_records.add(records)
        self.transaction_seconds.add(seconds)

    def snapshot(self) -> MeasuresSnapshot:
        """Return the measurements so far."""
        return MeasuresSnapshot(
            dict(self.read),
            dict(self.written),
            self.transaction_records.snapshot(),
            self.transaction_seconds.snapshot(),
            self.commit_seconds.snapshot(),
        )


class TransactionMeasures:
    """Counts of the records that a task reads and writes in its open transaction.

    Args:
        measures: receives them when the transaction is committed.
    """

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._read: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        self._in_doubt: tuple[Counter[str], Counter[str]] | None = None

    def read(self, topic: str, records: int) -> None:
        """Count records that were read in the open transaction."""
        self._read[topic] += records

    def wrote(self, outputs: Sequence[Output]) -> None:
        """Count records that were produced, mostly to one topic: finding that out is cheaper."""
        topics = {output[0] for output in outputs}
        if len(topics) == 1:
            self._written[topics.pop()] += len(outputs)
        else:
            self._written.update(map(_topic_of, outputs))

    def committed(self) -> None:
        """Take the open transaction as committed."""
        self._add(self._read, self._written)
        self._read, self._written = Counter(), Counter()

    def dropped(self) -> None:
        """Set the open transaction aside; it may turn out to have been committed."""
        if self._read or self._written:
            self._in_doubt = self._read, self._written
            self._read, self._written = Counter(), Counter()

    def settled(self, *, committed: bool) -> None:
        """Report the outcome of the transaction that was dropped last."""
        if committed and self._in_doubt is not None:
            self._add(*self._in_doubt)
        self._in_doubt = None

    def _add(self, read: Counter[str], written: Counter[str]) -> None:
        self._measures.read.update(read)
        self._measures.written.update(written)
