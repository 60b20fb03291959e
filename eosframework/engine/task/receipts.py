"""Receipts: a header on every output that names the input record that caused it.

With them an audit needs no functions. Three facts make that sound:

1. the outputs of one input partition are numbered without a gap, so that a missing number is a lost
   output and a repeated one a copy
2. a receipt has the number of outputs of its input, and the previous input with an output, so that
   a lost output differs from an input without outputs
3. the next number is stored in the metadata of the committed offset, in the same transaction, so
   that losses at the end show, too

The header's value, `__eos.receipt`, in ASCII:

    1/APPLICATION/SINCE/TOPIC/PARTITION/OFFSET/INDEX/COUNT/NUMBER/GAP/TRANSACTION
    1/flights/0/flights.raw/3/1234/0/2/1876/1/18

Rows that a backfill sorts have no offsets. Their origin is not the topic but the rows of a job for
it (`row_origin`), and a row's offset is its number in the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from eosframework.engine.task.transaction_receipts import (
    HEADER_TRANSACTION,
    TransactionReceipt,
)
from eosframework.records import Position, TopicPartition
from eosframework.transactions.ports import Message, Output, is_row

HEADER_RECEIPT = "__eos.receipt"

_VERSION = "1"
_SERIES = "r1"
_HEADERS = (HEADER_RECEIPT, HEADER_TRANSACTION)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The origin of an output.

    Args:
        since: offset of the input partition at which the numbering began.
        offset: offset of the input record.
        index: index among the outputs of this input record, from 0.
        count: number of outputs of the input record.
        number: index among the outputs of the input partition since `since`, from 0.
        gap: distance in offsets to the previous input record with outputs; 0: none, or, from the
            second output on, outputs of this record itself: of windows that it closed before.
        transaction: the task's transaction number.
    """

    application: str
    since: int
    topic: str
    partition: int
    offset: int
    index: int
    count: int
    number: int
    gap: int
    transaction: int

    @property
    def first(self) -> int:
        """Number of the first output of the same input record."""
        return self.number - self.index

    @property
    def end(self) -> int:
        """Number after the last output of the same input record."""
        return self.first + self.count

    @property
    def previous(self) -> int | None:
        """Offset of the previous input record with outputs; None: there is none."""
        return self.offset - self.gap if self.gap or self.first else None

    def __str__(self) -> str:
        return (
            f"{_VERSION}/{self.application}/{self.since}/{self.topic}/{self.partition}/"
            f"{self.offset}/{self.index}/{self.count}/{self.number}/{self.gap}/{self.transaction}"
        )

    @classmethod
    def parse(cls, value: bytes | None) -> Receipt | None:
        """Parse the result of `str`; None: not a receipt of this version."""
        try:
            version, application, since, topic, *numbers = (value or b"").decode("ascii").split("/")
            if version != _VERSION:
                return None
            receipt = cls(application, int(since), topic, *map(int, numbers))
        except (ValueError, TypeError):
            return None
        return receipt if 0 <= receipt.index < receipt.count and receipt.first >= 0 else None

    @classmethod
    def of(cls, message: Message) -> Receipt | None:
        """Return the receipt of an output; None: it has none of this version."""
        headers = message.headers() or ()
        return next((cls.parse(data) for name, data in headers if name == HEADER_RECEIPT), None)


@dataclass(frozen=True, slots=True)
class Series:
    """The numbering of the outputs of one input partition, as of a committed position.

    Args:
        since: offset of the input partition at which it began.
        number: number of the next output.
        last: offset of the last input record with outputs; None: there is none.
    """

    since: int
    number: int = 0
    last: int | None = None

    def __str__(self) -> str:
        return f"{_SERIES};{self.since};{self.number};{'' if self.last is None else self.last}"

    @classmethod
    def parse(cls, metadata: str) -> Series | None:
        """Parse the part after the progress in a position's metadata; None: there is none."""
        match metadata.rstrip("\0").split(";"):
            case [_, _, _, format_, since, number, last] if format_ == _SERIES:
                with suppress(ValueError):
                    return cls(int(since), int(number), int(last) if last else None)
                return None
            case _:
                return None


class ReceiptedOutputs(list[Output]):
    """Outputs of a task on their way to the producer, each with its receipt.

    The numbering rolls back with the transaction: `rewind` makes dropped numbers available again.

    Args:
        application: owner of the task.
        origins: names of source topics in receipts, where these differ from the topics'.
    """

    def __init__(self, application: str, origins: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._application = application
        self._origins = origins or {}
        self._committed: dict[TopicPartition, Series] = {}
        self._open: dict[TopicPartition, Series] = {}
        self._prefix = self._suffix = ""
        self._number = 0
        self._last: int | None = None

    def restart(self, positions: Sequence[Position]) -> None:
        """Resume at committed positions; one without a numbering begins its own there."""
        for position in positions:
            series = Series.parse(position.metadata) or Series(position.offset or 0)
            self._committed[position.topic_partition] = series
        self.rewind()

    def begin(self, partition: TopicPartition, transaction: int) -> None:
        """Number the outputs of this partition's records from here on."""
        series = self._open[partition]
        topic, number = partition
        origin = self._origins.get(topic, topic)
        prefix = (_VERSION, self._application, series.since, origin, number, "")
        self._prefix = "/".join(map(str, prefix))
        self._suffix = f"/{transaction}"
        self._number, self._last = series.number, series.last

    def seal(self, mark: int, message: Message) -> None:
        """Add receipts to the outputs from index `mark`, without rows: they come from `message`."""
        places = range(mark, len(self))
        if any(map(is_row, self[mark:])):
            places = [place for place in places if not is_row(self[place])]
        count = len(places)
        if not count:
            return
        offset, number = message.offset(), self._number
        gap = 0 if self._last is None else offset - self._last
        prefix, suffix = self._prefix, self._suffix
        if count == 1:  # most records; by itself this takes a fifth less
            receipt = f"{prefix}{offset}/0/1/{number}/{gap}{suffix}"
            self[places[0]] = with_receipt(self[places[0]], receipt)
        else:
            for index, place in enumerate(places):
                receipt = f"{prefix}{offset}/{index}/{count}/{number + index}/{gap}{suffix}"
                self[place] = with_receipt(self[place], receipt)
        self._number, self._last = number + count, offset

    def attribute(self, transaction: TransactionReceipt) -> None:
        """Add the receipt of the transaction to outputs that no single record causes.

        A record that a step held until the clock moved stream time has the receipt of its input,
        which is removed.
        """
        self[:] = [with_transaction(output, transaction) for output in self]

    def named(self, partition: TopicPartition) -> TopicPartition:
        """Return a source partition as receipts name it."""
        return TopicPartition(self._origins.get(partition.topic, partition.topic), partition[1])

    def end(self, partition: TopicPartition) -> None:
        """Take the numbers given since `begin` into the open transaction."""
        series = self._open[partition]
        self._open[partition] = Series(series.since, self._number, self._last)

    def series(self, partition: TopicPartition) -> Series:
        """Return the numbering at the end of the open transaction."""
        return self._open[partition]

    def committed(self) -> None:
        """Take the open transaction as committed."""
        self._committed.update(self._open)

    def rewind(self) -> None:
        """Discard the numbers of the open transaction."""
        self._open.update(self._committed)


def row_origin(job: str, topic: str) -> str:
    """Return the name in receipts for the rows of a backfill job that stand for a topic.

    No topic has such a name: `:` is not allowed in it.
    """
    return f"backfill.{job}:{topic}"


def with_receipt(output: Output, receipt: str) -> Output:
    """Return an output with a receipt; a receipt of its input is replaced."""
    topic, value, key, place, _, _, timestamp, headers = output
    own = (HEADER_RECEIPT, receipt.encode("ascii"))
    kept = [*(h for h in headers if h[0] not in _HEADERS), own] if headers else [own]
    return (topic, value, key, place, None, None, timestamp, kept)


def with_transaction(output: Output, transaction: TransactionReceipt) -> Output:
    """Return an output with the receipt of its transaction, and without any other; not a row."""
    if is_row(output):
        return without_receipt(output)
    topic, value, key, place, _, _, timestamp, headers = output
    kept = [*(h for h in headers or () if h[0] not in _HEADERS), transaction.header]
    return (topic, value, key, place, None, None, timestamp, kept)


def without_receipt(output: Output) -> Output:
    """Return an output without the receipts of its input."""
    topic, value, key, place, _, origin, timestamp, headers = output
    kept = [h for h in headers or () if h[0] not in _HEADERS]
    return (
        output
        if len(kept) == len(headers or ())
        else (topic, value, key, place, None, origin, timestamp, kept)
    )
